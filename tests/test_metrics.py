import numpy as np
import pytest
from sklearn.metrics import roc_auc_score, roc_curve, top_k_accuracy_score

from graphclean.metrics import (
    auroc,
    best_threshold,
    fpr_at_95,
    open_set_f,
    score_cleaning,
    score_open_set,
    top_k_accuracy,
)


def drawn(seed: int, ties: bool = False) -> tuple[np.ndarray, ...]:
    """OOD scores, whether right, and whether OOD."""
    rng = np.random.default_rng(seed)
    is_ood = rng.random(400) < 0.4
    score = 1 - rng.normal(np.where(is_ood, 0.3, 0.7), 0.2)
    return np.round(score, 1) if ties else score, rng.random(400) < 0.9, is_ood


@pytest.mark.parametrize("seed", range(3))
def test_auroc_and_fpr_equal_scikit_learn(seed: int) -> None:
    score, _, is_ood = drawn(seed)
    assert auroc(score, is_ood) == roc_auc_score(is_ood, score)
    false, true, _ = roc_curve(~is_ood, -score)
    assert fpr_at_95(score, is_ood) == pytest.approx(false[true >= 0.95].min())
    border = np.sort(score[~is_ood])[-1 - int(0.05 * (~is_ood).sum())]
    assert fpr_at_95(score, is_ood) == pytest.approx((score <= border)[is_ood].mean(), abs=0.01)


def test_fpr_of_tied_scores_by_hand() -> None:
    """Twenty scores, each of one known sample and one OOD: 19 of either pass together."""
    score = np.repeat(np.arange(20.0), 2)
    assert fpr_at_95(score, np.tile([True, False], 20)) == pytest.approx(0.95)


@pytest.mark.parametrize("k", [1, 2, 5, 49, 50, 60])
def test_top_k_accuracy_equals_scikit_learn(k: int) -> None:
    rng = np.random.default_rng(3)
    truth = rng.integers(0, 50, 400)
    scores = rng.normal(0, 1, (400, 50))
    scores[np.arange(400), truth] += 1
    shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    if k < 50:  # scikit-learn warns of a metric that is always 1
        assert top_k_accuracy(shares, truth, k) == top_k_accuracy_score(
            truth, shares, k=k, labels=np.arange(50)
        )
    else:
        assert top_k_accuracy(shares, truth, k) == 1
    if k == 1:
        assert top_k_accuracy(shares, truth, k) == (shares.argmax(1) == truth).mean()


def test_top_k_accuracy_of_ties_and_of_nothing_by_hand() -> None:
    """Four equal shares: the first class is the prediction, the first two are the top 2."""
    equal, truth = np.full((4, 4), 0.25), np.arange(4)
    assert [top_k_accuracy(equal, truth, k) for k in (1, 2, 4)] == [0.25, 0.5, 1]
    assert (equal.argmax(1) == truth).mean() == top_k_accuracy(equal, truth, 1)
    assert np.isnan(top_k_accuracy(equal[:0], truth[:0], 5))


def test_open_set_f_by_hand() -> None:
    right = np.array([True, True, False, True, False, False])
    accepted = np.array([True, False, True, True, True, False])
    is_ood = np.array([False, False, False, False, True, True])
    # TP 2; FP 2 (one rejected, one wrong); FN 1.
    assert open_set_f(right, accepted, is_ood) == pytest.approx(4 / 7)
    assert open_set_f(~right, ~accepted, is_ood) == 0


def test_nothing_rejected_gives_the_papers_dividemix_column() -> None:
    right = np.arange(20_000) < 9226
    is_ood = np.arange(20_000) >= 10_000
    f = open_set_f(right, np.ones(20_000, dtype=bool), is_ood)
    assert f == pytest.approx(2 * 0.9226 / (2 + 0.9226))
    assert f == pytest.approx(0.632, abs=0.002)


@pytest.mark.parametrize("ties", [False, True])
def test_best_threshold_equals_trying_every_one(ties: bool) -> None:
    score, right, is_ood = drawn(7, ties)
    tried = [open_set_f(right, score <= border, is_ood) for border in np.unique(score)]
    best = best_threshold(score, right, is_ood)
    assert best.f == pytest.approx(max(tried))
    assert open_set_f(right, score <= best.threshold, is_ood) == pytest.approx(best.f)


def test_scores_together_and_without_ood() -> None:
    predicted = np.array([0, 1, 1, 0])
    scores = score_open_set(predicted, np.array([0.1, 0.2, 0.6, 0.8]), np.array([0, 1, 0, -1]), threshold=0.5)
    assert scores.accuracy == pytest.approx(2 / 3)
    assert scores.auroc == 1
    assert scores.fpr95 == 0
    assert scores.f == pytest.approx(4 / 5)
    assert np.isnan(score_open_set(predicted, np.ones(4), np.array([0, 1, 0, 0]), 0.5).auroc)


def test_cleaning_by_hand() -> None:
    labels, truth = np.array([0, 1, 1, 0, 1]), np.array([0, 1, 0, -1, 0])
    scores = score_cleaning(labels, np.array([True, False, True, True, False]), truth)
    assert (scores.selected, scores.wrong_known, scores.ood) == (3, 1, 1)
    assert scores.noise_rate == pytest.approx(2 / 3)
    assert scores.label_accuracy == pytest.approx(1 / 2)
    assert np.isnan(score_cleaning(labels, np.zeros(5, dtype=bool), truth).noise_rate)
