import numpy as np
import pytest
from scipy.stats import norm

from graphclean.evaluate.openset import best_zeta, open_set_f
from graphclean.ood import OodSettings
from graphclean.ood.thresholds import auto_threshold, find_threshold, fixed_threshold


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


@pytest.mark.parametrize("zeta", [0.5, 0.7, 0.8])
def test_a_fixed_border_says_what_it_rejects(zeta: float) -> None:
    rng = np.random.default_rng(0)
    stranger = rng.random(20_000) < 0.3
    s = rng.normal(np.where(stranger, 0.35, 0.85), np.where(stranger, 0.12, 0.06))
    found = fixed_threshold(s, zeta)
    assert found.zeta == zeta
    assert found.how == "fixed"
    assert found.rejected_known == pytest.approx((s < zeta)[~stranger].mean(), abs=0.01)
    assert found.ood_share == pytest.approx(0.3, abs=0.02)
    assert find_threshold(s, OodSettings(zeta=str(zeta))) == found


def test_a_fixed_border_on_one_hump_counts_all_as_known() -> None:
    s = np.random.default_rng(0).normal(0.8, 0.05, 5000)
    found = fixed_threshold(s, 0.8)
    assert found.rejected_known == pytest.approx((s < 0.8).mean())
    assert found.ood_share == 0


def test_the_settings_choose() -> None:
    s = np.random.default_rng(0).normal(0.8, 0.05, 500)
    assert find_threshold(s, OodSettings()) == auto_threshold(s)
    for bad in ("", "high", "nan", "1.01", "-2", "inf"):
        with pytest.raises(ValueError, match="zeta must be auto or a number"):
            OodSettings(zeta=bad)
