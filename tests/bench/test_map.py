"""Two dimensions of z: neighbors stay neighbors, and what can't be drawn is told."""

import numpy as np
import pytest
from sklearn.manifold import trustworthiness

from graphclean.bench.map import MAPPED, choose_mapped, make_map


def clusters(n: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    centers = rng.normal(0, 1, (10, 64))
    z = centers[rng.integers(0, 10, n)] + rng.normal(0, 0.5, (n, 64))
    return (z / np.linalg.norm(z, axis=1, keepdims=True)).astype(np.float32)


def test_neighbors_are_kept_and_places_are_the_same_twice() -> None:
    z = clusters(150)
    points = make_map(z)
    assert points is not None
    assert trustworthiness(z, points, n_neighbors=5) > 0.9
    again = make_map(z)
    assert again is not None
    assert np.array_equal(points, again)


@pytest.mark.parametrize(
    "z",
    [
        np.zeros((150, 64), np.float32),
        np.ones((3, 64), np.float32),
        np.arange(150, dtype=np.float32)[:, None],
        np.full((150, 64), np.inf, np.float32),
        np.full((150, 64), np.nan, np.float32),
    ],
    ids=["alike", "few", "narrow", "infinite", "nan"],
)
def test_no_map_of_too_little(z: np.ndarray) -> None:
    assert make_map(z) is None


def test_every_run_shows_the_same_samples() -> None:
    chosen = choose_mapped(20_000)
    assert len(np.unique(chosen)) == MAPPED
    assert np.array_equal(chosen, choose_mapped(20_000))
    assert len(choose_mapped(9)) == 9
