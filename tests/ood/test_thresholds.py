import numpy as np
import pytest
from scipy.stats import norm

from graphclean.evaluate.openset import best_zeta, open_set_f
from graphclean.ood.thresholds import auto_threshold


@pytest.mark.parametrize("share", [0.1, 0.3, 0.6])
def test_finds_where_two_normals_cross(share: float) -> None:
    rng = np.random.default_rng(0)
    stranger = rng.random(20_000) < share
    s = rng.normal(np.where(stranger, 0.35, 0.85), np.where(stranger, 0.12, 0.06))
    found = auto_threshold(s)
    assert found.ood_share == pytest.approx(share, abs=0.02)
    grid = np.linspace(0.35, 0.85, 5001)
    odds = share * norm.pdf(grid, 0.35, 0.12) - (1 - share) * norm.pdf(grid, 0.85, 0.06)
    assert found.zeta == pytest.approx(grid[np.argmax(odds <= 0)], abs=0.01)
    assert found.rejected_known == pytest.approx((s < found.zeta)[~stranger].mean(), abs=0.01)
    right = np.ones(20_000, dtype=bool)
    best = best_zeta(s, right, stranger).f
    assert open_set_f(right, s >= found.zeta, stranger) > best - 0.015


@pytest.mark.parametrize("seed", range(3))
def test_one_hump_rejects_next_to_nothing(seed: int) -> None:
    s = np.random.default_rng(seed).normal(0.8, 0.05, 5000)
    found = auto_threshold(s)
    assert (s < found.zeta).mean() <= 0.05


def test_constant_scores_are_survived() -> None:
    found = auto_threshold(np.full(50, 0.7))
    assert found.zeta == pytest.approx(0.7)
    assert found.ood_share == 0
