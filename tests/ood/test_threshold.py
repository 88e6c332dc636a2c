import math

import numpy as np
import pytest

from graphclean.config import OodSettings
from graphclean.metrics import best_threshold, open_set_f
from graphclean.ood.threshold import find_threshold, holds_ood

AUTO = OodSettings()


def skewed(share: float, n: int = 8000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """1 − s(x), P(OOD) and the truth, with a long tail of known samples, as training leaves them."""
    rng = np.random.default_rng(0)
    p = np.where(rng.random(n) < share, 0.97, 0.01)
    is_ood = rng.random(n) < p
    known = np.where(rng.random(n) < 0.2, rng.uniform(0.4, 0.8, n), rng.normal(0.75, 0.04, n))
    return 1 - np.where(is_ood, rng.gamma(3, 0.06, n), known), p, is_ood


@pytest.mark.parametrize("share", [0.02, 0.2, 0.5])
def test_of_a_network_it_comes_close_to_the_best(share: float) -> None:
    score, p, is_ood = skewed(share)
    assert holds_ood(score, p)
    found = find_threshold(score, p, AUTO, learned=True)
    right = np.ones(len(score), dtype=bool)
    best = best_threshold(score, right, is_ood)
    assert open_set_f(right, score <= found.threshold, is_ood) > best.f - 0.02
    assert found.ood_share == pytest.approx(p.mean())
    assert found.rejected_known == pytest.approx((score > found.threshold)[~is_ood].mean(), abs=0.02)
    assert found.promised is None


def test_a_threshold_by_hand() -> None:
    score = np.array([0.9, 0.8, 0.7, 0.2, 0.1])
    p = np.array([1.0, 0.5, 0.0, 0.0, 0.0])
    found = find_threshold(score, p, AUTO, learned=True)
    assert found.threshold == pytest.approx((0.9 + 0.45) / 2)
    assert (found.rejected_known, found.rejected_ood, found.calibrated_on) == (0.5, 1.0, 0)
    assert (found.ood_share, found.how) == (pytest.approx(0.3), "auto")
    fixed = find_threshold(score, p, OodSettings(threshold="0.85"), learned=True)
    assert (fixed.threshold, fixed.how, fixed.rejected_known) == (0.85, "fixed", 0)
    unknown = find_threshold(score, p, AUTO, learned=False)
    assert (unknown.threshold, unknown.rejected_ood) == (pytest.approx(0.9, abs=0.01), None)


def test_conformal_by_hand() -> None:
    """Of 39 good inputs, the ⌈40 × 0.9⌉ = 36th smallest; an OOD sample has no say."""
    score, p = np.append(np.arange(39.0), 5.0), np.append(np.zeros(39), 1.0)
    found = find_threshold(score, p, OodSettings(reject=0.1), learned=True, good=score[:39])
    assert (found.threshold, found.calibrated_on, found.promised) == (35, 39, 0.1)
    assert found.rejected_known == pytest.approx(3 / 39)
    assert found.rejected_ood == 0


def test_without_good_inputs_conformal_goes_by_the_selected_samples_and_promises_nothing() -> None:
    score, p = np.append(np.arange(39.0), [70.0, 80.0]), np.append(np.zeros(39), [1.0, 1.0])
    conformal = OodSettings(reject=0.1, threshold="conformal")
    found = find_threshold(score, p, conformal, learned=True, selected=score[:39])
    assert (found.threshold, found.calibrated_on, found.promised, found.how) == (35, 0, None, "auto")
    assert (found.rejected_known, found.rejected_ood) == (pytest.approx(3 / 39), 1)
    with_good = find_threshold(score, p, conformal, learned=True, selected=score[:5], good=score[:39])
    assert (with_good.threshold, with_good.promised) == (35, 0.1)
    auto = find_threshold(score, p, OodSettings(reject=0.1), learned=True, selected=score[:39])
    nothing = find_threshold(score, p, conformal, learned=True, selected=score[:0])
    assert nothing.threshold == auto.threshold == (75 + 19) / 2


@pytest.mark.parametrize("n", [19, 20, 57, 400])
def test_what_is_promised_holds(n: int) -> None:
    """Over many draws 5 % of new scores are above the threshold at most, and 5 % − 1/(n + 1) at least."""
    rng = np.random.default_rng(n)
    rejected = []
    for _ in range(2000):
        known = rng.exponential(size=n)
        found = find_threshold(known, np.zeros(n), AUTO, learned=False, good=known)
        assert found.promised == 0.05
        rejected.append(math.exp(-found.threshold))
    error = np.std(rejected) / 2000**0.5
    assert 0.05 - 1 / (n + 1) - 4 * error <= np.mean(rejected) <= 0.05 + 4 * error


def test_too_few_promise_nothing() -> None:
    few = np.arange(18.0)
    found = find_threshold(few, np.zeros(18), AUTO, learned=False, good=few)
    assert (found.threshold, found.promised, found.calibrated_on) == (17, None, 18)


@pytest.mark.parametrize("nothing", [0.0, 0.005, np.nan])
def test_where_nothing_is_ood_a_network_rejects_next_to_nothing(nothing: float) -> None:
    score = np.random.default_rng(0).normal(0.2, 0.05, 5000)
    p = np.full(5000, nothing)
    assert not holds_ood(score, p)
    found = find_threshold(score, p, AUTO, learned=False)
    assert found.threshold == pytest.approx(np.quantile(score, 0.99), abs=1e-9)
    assert found.rejected_known == pytest.approx(0.01, abs=1e-3)
    assert found.rejected_ood is None
    assert found.promised is None, "training drew them inwards"
    assert found.ood_share == pytest.approx(np.nan_to_num(nothing))


def test_mislabeled_samples_taken_for_ood_teach_nothing() -> None:
    """Without OOD samples, those that pass for OOD by their labels lie among the others."""
    rng = np.random.default_rng(0)
    score = rng.normal(0.1, 0.05, 5000)
    p = np.where(rng.random(5000) < 0.08, 0.9, 0.05)
    assert not holds_ood(score, p)
    assert holds_ood(score + (p > 0.5), p)


def test_few_ood_samples_teach_nothing() -> None:
    score = np.append(np.zeros(100), np.ones(10))
    assert holds_ood(score, score)
    assert not holds_ood(score[:-1], score[:-1])
    assert not holds_ood(np.ones(20), np.ones(20))
    many = np.append(np.zeros(2000), np.ones(19))
    assert not holds_ood(many, many), "under one in a hundred"


def test_odd_scores_are_survived() -> None:
    score = np.full(9, 0.7)
    for good in (None, score):
        found = find_threshold(score, np.full(9, 0.2), AUTO, learned=False, good=good)
        assert found.threshold == pytest.approx(0.7)


def test_settings_that_are_no_threshold_are_refused() -> None:
    for bad in ("", "high", "nan", "inf", "-inf"):
        with pytest.raises(ValueError, match="threshold must be auto, conformal or a number"):
            OodSettings(threshold=bad)
    for share in (0.0, 1.0, math.nan):
        with pytest.raises(ValueError, match="reject must be between 0 and 1"):
            OodSettings(reject=share)
    # Scores have the range of their detector.
    for good in ("1.01", "-2"):
        settings = OodSettings(threshold=good)
        assert find_threshold(np.array([0.0, 2.0]), np.zeros(2), settings, learned=False).threshold == float(
            good
        )
