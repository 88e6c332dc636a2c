import numpy as np
import pytest

from graphclean.config import OodSettings
from graphclean.metrics import best_threshold, open_set_f
from graphclean.ood.threshold import find_threshold

AUTO = OodSettings()


def skewed(share: float, n: int = 8000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """1 − s(x), P(OOD) and the truth, with a long tail of known samples, as training leaves them."""
    rng = np.random.default_rng(0)
    p = np.where(rng.random(n) < share, 0.97, 0.01)
    is_ood = rng.random(n) < p
    known = np.where(rng.random(n) < 0.2, rng.uniform(0.4, 0.8, n), rng.normal(0.75, 0.04, n))
    return 1 - np.where(is_ood, rng.gamma(3, 0.06, n), known), p, is_ood


@pytest.mark.parametrize("share", [0.02, 0.2, 0.5])
def test_auto_comes_close_to_the_best_border(share: float) -> None:
    score, p, is_ood = skewed(share)
    found = find_threshold(score, p, AUTO)
    right = np.ones(len(score), dtype=bool)
    best = best_threshold(score, right, is_ood)
    assert open_set_f(right, score <= found.threshold, is_ood) > best.f - 0.02
    assert found.ood_share == pytest.approx(p.mean())
    # OOD samples that are not quite certain count a little as known: the estimate errs to the high side.
    assert 0 <= found.rejected_known - (score > found.threshold)[~is_ood].mean() < 0.04


def test_a_border_by_hand() -> None:
    score = np.array([0.9, 0.8, 0.7, 0.2, 0.1])
    p = np.array([1.0, 0.5, 0.0, 0.0, 0.0])
    found = find_threshold(score, p, AUTO)
    assert found.threshold == pytest.approx((0.9 + 0.45) / 2)
    assert found.rejected_known == pytest.approx((0.5 + 1) / 3.5)
    assert (found.ood_share, found.how) == (pytest.approx(0.3), "auto")
    fixed = find_threshold(score, p, OodSettings(threshold="0.85"))
    assert (fixed.threshold, fixed.how, fixed.rejected_known) == (0.85, "fixed", 0)


@pytest.mark.parametrize("nothing", [0.0, 0.005, np.nan])
def test_where_nothing_is_ood_next_to_nothing_is_rejected(nothing: float) -> None:
    score = np.random.default_rng(0).normal(0.2, 0.05, 5000)
    found = find_threshold(score, np.full(5000, nothing), AUTO)
    assert found.threshold == pytest.approx(np.quantile(score, 0.99))
    assert found.rejected_known == pytest.approx(0.01, abs=1e-3)
    assert found.ood_share == pytest.approx(np.nan_to_num(nothing))


def test_mislabeled_samples_taken_for_ood_draw_no_border() -> None:
    """Without OOD samples, those that pass for OOD by their labels lie among the others."""
    rng = np.random.default_rng(0)
    score = rng.normal(0.1, 0.05, 5000)
    found = find_threshold(score, np.where(rng.random(5000) < 0.08, 0.9, 0.05), AUTO)
    assert found.threshold == pytest.approx(np.quantile(score, 0.99))
    assert found.rejected_known < 0.02


def test_a_border_on_probabilities_rejects_a_few_at_least() -> None:
    chance = np.linspace(0, 1, 1001)
    assert find_threshold(chance, chance, AUTO, auto=0.5).threshold == 0.5
    none = find_threshold(chance / 4, chance / 4, AUTO, auto=0.5)
    assert none.threshold == pytest.approx(0.99 / 4)
    assert find_threshold(chance, chance, OodSettings(threshold="0.3"), auto=0.5).threshold == 0.3


def test_odd_scores_are_survived() -> None:
    assert find_threshold(np.full(9, 0.7), np.full(9, 0.2), AUTO).threshold == pytest.approx(0.7)
    all_ood = find_threshold(np.array([0.9, 0.8]), np.ones(2), AUTO)
    assert np.isfinite([all_ood.threshold, all_ood.rejected_known]).all()


def test_settings_that_are_no_border_are_refused() -> None:
    for bad in ("", "high", "nan", "inf", "-inf"):
        with pytest.raises(ValueError, match="threshold must be auto or a number"):
            OodSettings(threshold=bad)
    # Scores have the range of their detector.
    for good in ("1.01", "-2"):
        score = find_threshold(np.array([0.0, 2.0]), np.zeros(2), OodSettings(threshold=good))
        assert score.threshold == float(good)
