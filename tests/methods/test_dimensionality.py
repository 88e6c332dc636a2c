"""Local intrinsic dimensionality by hand, against a plain count, and where the dimension is known."""

import numpy as np
import pytest
import torch

from graphclean.methods.blocks.dimensionality import local_dimensionality


def ball(n: int, d: int, seed: int = 0) -> torch.Tensor:
    """Evenly from a ball of d dimensions."""
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=(n, d))
    direction /= np.linalg.norm(direction, axis=1, keepdims=True)
    return torch.tensor(direction * rng.random((n, 1)) ** (1 / d))


def plain(x: np.ndarray, k: int) -> np.ndarray:
    """A sample at a time."""
    found = []
    for i in range(len(x)):
        r = np.sort(np.linalg.norm(np.delete(x, i, 0) - x[i], axis=1))[:k]
        found.append(-k / np.log(r / r[-1]).sum())
    return np.array(found)


def test_by_hand() -> None:
    """Of the first of four points on a line, neighbors are at 1, 2 and 4."""
    line = torch.tensor([[0.0], [1.0], [2.0], [4.0]])
    expected = -3 / (np.log(1 / 4) + np.log(2 / 4))
    assert float(local_dimensionality(line, 3)[0]) == pytest.approx(expected)


def test_it_is_that_of_a_plain_count_in_each_of_several_sets() -> None:
    x = np.random.default_rng(1).normal(size=(3, 40, 6)).astype(np.float32)
    found = local_dimensionality(torch.tensor(x), 7)
    assert found.shape == (3, 40)
    for of_set, each in zip(found, x, strict=True):
        np.testing.assert_allclose(of_set, plain(each.astype(np.float64), 7), rtol=1e-6)


@pytest.mark.parametrize(("d", "together", "of_128"), [(2, 2.2, 2.0), (10, 9.8, 7.8), (20, 17.5, 13.7)])
def test_it_grows_with_the_dimension_of_a_ball(d: int, together: float, of_128: float) -> None:
    """Less than that does: the nearest of few points are far."""
    x = ball(3968, d)
    in_sets = local_dimensionality(x.view(-1, 128, d), 20).mean()
    assert float(in_sets) == pytest.approx(of_128, rel=0.05)
    assert float(local_dimensionality(x, 20).mean()) == pytest.approx(together, rel=0.05)


def test_copies_leave_it_finite_unless_all_are_copies() -> None:
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    x[:5] = x[0]
    found = local_dimensionality(x, 10)
    assert bool(found.isfinite().all())
    assert bool((found > 0).all())
    assert bool(local_dimensionality(torch.zeros(6, 2), 3).isinf().all())
