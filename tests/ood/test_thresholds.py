import numpy as np
import pytest
from scipy.stats import norm

from graphclean.evaluate.openset import best_zeta, open_set_f
from graphclean.ood import OodSettings
from graphclean.ood.thresholds import auto_threshold, find_threshold, fixed_threshold, informed_threshold


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


def far_out(share: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """s, P(OOD) and the truth, where a quarter of the known lie far out: two normals take these for OOD."""
    rng = np.random.default_rng(0)
    p = np.where(rng.random(8000) < share, 0.97, 0.01)
    stranger = rng.random(8000) < p
    known = np.where(rng.random(8000) < 0.25, rng.uniform(0.6, 0.95, 8000), rng.normal(0.97, 0.01, 8000))
    return np.where(stranger, rng.normal(0.4, 0.1, 8000), known), p, stranger


@pytest.mark.parametrize("share", [0.05, 0.2, 0.5])
def test_probabilities_from_elsewhere_give_a_better_border(share: float) -> None:
    s, p, stranger = far_out(share)
    found = informed_threshold(s, p)
    right = np.ones(len(s), dtype=bool)
    best = best_zeta(s, right, stranger).f
    assert open_set_f(right, s >= found.zeta, stranger) > best - 0.015
    assert open_set_f(right, s >= auto_threshold(s).zeta, stranger) < best - 0.05
    # Strangers that are not quite certain count a little as known: the estimate errs to the high side.
    assert 0 <= found.rejected_known - (s < found.zeta)[~stranger].mean() < 0.04
    assert found.ood_share == pytest.approx(p.mean())
    assert find_threshold(s, OodSettings(), p) == found


def test_a_border_by_hand() -> None:
    s = np.array([0.1, 0.2, 0.2, 0.6, 0.8, 0.9])
    p = np.array([0.9, 0.1, 1.0, 0.2, 0.0, 0.0])
    # Mistakes of rejecting 0, 1, 3, 4, 5, 6: 2.2, 1.4, 1.3, 1.9, 2.9, 3.9.
    found = informed_threshold(s, p)
    assert found.zeta == pytest.approx(0.4)
    assert found.rejected_known == pytest.approx(1.0 / 3.8)
    fixed = informed_threshold(s, p, 0.15)
    assert (fixed.zeta, fixed.how) == (0.15, "fixed")
    assert fixed.rejected_known == pytest.approx(0.1 / 3.8)


def test_odd_probabilities_are_survived() -> None:
    s = np.random.default_rng(0).normal(0.8, 0.05, 500)
    nothing = informed_threshold(s, np.zeros(500))
    assert nothing.zeta == pytest.approx(np.quantile(s, 0.01))
    assert nothing.rejected_known == pytest.approx(0.01, abs=0.003)
    assert informed_threshold(np.full(9, 0.7), np.full(9, 0.2)).rejected_known == 0
    for unusable in (np.full(500, np.nan), np.ones(500)):
        assert find_threshold(s, OodSettings(), unusable) == auto_threshold(s)
