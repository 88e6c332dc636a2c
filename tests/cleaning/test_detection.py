"""The detector on features: leave-one-out against doing it, then what it rejects of new samples."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from graphclean.cleaning import detection as room
from graphclean.cleaning import infer_verdicts
from graphclean.cleaning.detection import RIDGE, FeatureDetector, Signs, SignWeights, leave_one_out
from graphclean.config import CleaningSettings, OodSettings

Cloud = tuple[np.ndarray, np.ndarray]


def clouds(rng: np.random.Generator, centers: np.ndarray, n: int, width: int = 24) -> Cloud:
    truth = rng.integers(0, len(centers), n)
    return centers[truth] + 0.7 * rng.normal(size=(n, width)), truth


def test_taken_out_is_as_if_never_there() -> None:
    """Mean, covariance and centers of the others, and the same ridge."""
    rng = np.random.default_rng(0)
    x, own = rng.normal(size=(30, 4)) @ rng.normal(size=(4, 4)) + 1, rng.random((30, 3))
    own[1:, 2] = 0  # the first sample is all there is of the last class
    mean = x.mean(0)
    away = x - mean
    covariance = away.T @ away / 30
    ridge = RIDGE * np.trace(covariance) / 4 * np.eye(4)
    root = np.linalg.inv(np.linalg.cholesky((1 - RIDGE) * covariance + ridge)).T
    total = own.sum(0)
    centers = own.T @ (away @ root) / total[:, None]
    found = leave_one_out(*map(torch.as_tensor, (away @ root, own, centers, total)), 30).numpy()
    for i in range(30):
        others = np.arange(30) != i
        left = x[others] - x[others].mean(0)
        inverse = np.linalg.inv((1 - RIDGE) * left.T @ left / 29 + 30 / 29 * ridge)
        mine = x[i] - x[others].mean(0)
        for k in range(3):
            if i == 0 and k == 2:
                assert found[i, k] == -1
                continue
            center = np.average(x[others], axis=0, weights=own[others, k]) - x[others].mean(0)
            lengths = np.sqrt((mine @ inverse @ mine) * (center @ inverse @ center))
            assert found[i, k] == pytest.approx(mine @ inverse @ center / lengths, abs=1e-9)


@pytest.mark.parametrize("widest", [2048, 16])
def test_new_samples_score_as_training_samples_do(monkeypatch: pytest.MonkeyPatch, widest: int) -> None:
    """Without OOD: unknown classes lie far out, and the promised share of good samples is rejected."""
    monkeypatch.setattr(room, "WIDEST", widest)
    rng = np.random.default_rng(1)
    centers = rng.normal(size=(9, 24))
    z, truth = clouds(rng, centers[:6], 500)
    labels = np.where(rng.random(500) < 0.2, rng.integers(0, 6, 500), truth)
    cleaning = infer_verdicts(z, labels)
    assert cleaning.detection is not None
    assert cleaning.predictor is not None
    found = cleaning.detection.found
    assert not cleaning.detection.detector.learned
    assert (found.promised, found.rejected_ood) == (0.05, None)
    good, other = (
        cleaning.predictor.score(clouds(rng, some, 2000)[0]) for some in (centers[:6], centers[6:])
    )
    assert good.rejected.mean() == pytest.approx(0.05, abs=0.02)
    score = np.append(good.ood_score, other.ood_score)
    assert roc_auc_score(np.arange(4000) >= 2000, score) > 0.9
    assert other.rejected.mean() > 0.5


def test_ood_samples_are_learned_from() -> None:
    """They are no farther out than others by distance alone, and lie together.

    Of eight classes, since labels of so many tell how many OOD samples there are.
    """
    rng = np.random.default_rng(2)
    centers = rng.normal(size=(9, 24))
    z, truth = clouds(rng, centers, 1400)
    labels = np.where((truth == 8) | (rng.random(1400) < 0.2), rng.integers(0, 8, 1400), truth)
    cleaning = infer_verdicts(z, labels)
    assert cleaning.detection is not None
    assert cleaning.predictor is not None
    assert cleaning.detection.detector.learned
    assert min(cleaning.detection.detector.weights[1:]) >= 0
    new, truth = clouds(rng, centers, 2000)
    judged = cleaning.predictor.score(new)
    assert roc_auc_score(truth == 8, judged.ood_score) > 0.98
    assert judged.rejected[truth < 8].mean() == pytest.approx(0.05, abs=0.03)
    assert 0 <= judged.ood_score.min() <= judged.ood_score.max() <= 1


def test_the_share_counts_most_and_the_score_is_the_probability() -> None:
    """By hand: deviations, the given weights, and the two numbers that odds were made with."""
    rng = np.random.default_rng(0)
    signs = rng.normal(3, [0.1, 0.2, 2, 0.1], size=(20_000, 4))
    centers, _, share, ood_center = (signs / signs.std(0)).T
    odds = -12 + 0.8 * (centers + 3 * share + ood_center)
    odds -= odds.mean() + 1
    intercept, *weights = room._learn(signs, 1 / (1 + np.exp(-odds)))
    np.testing.assert_allclose(weights, 0.8 * np.array([1, 0, 3, 1]) / signs.std(0), rtol=0.02)
    np.testing.assert_allclose(intercept + signs @ weights, odds, atol=0.2)
    opposite = room._learn(signs, 1 / (1 + np.exp(odds)))[1:]
    assert opposite == (0, 0, 0, 0), "never speaks for the opposite"


def test_a_posterior_that_overrates_distance_does_not_mislead() -> None:
    """What lies far out is half believed to be OOD, but only the share can tell."""
    rng = np.random.default_rng(0)
    ood = rng.random(4000) < 0.2
    far, share = rng.normal(size=4000), rng.normal(3.0 * ood)
    signs = np.column_stack([far, rng.normal(size=4000), share, rng.normal(1.0 * ood)])
    believed = 1 / (1 + np.exp(2 - 2 * far - 2 * share))
    weights = room._learn(signs, believed)
    assert roc_auc_score(ood, signs @ weights[1:]) > roc_auc_score(ood, believed) + 0.02


def test_the_distance_is_a_mean_in_which_both_vary_alike() -> None:
    rng = np.random.default_rng(0)
    signs = Signs(*(torch.as_tensor(rng.normal(3, spread, 500)) for spread in (0.1, 2, 1, 1)))
    weights = room._by_distance(signs)
    plain = FeatureDetector(torch.zeros(1), torch.eye(1), torch.zeros(2, 1), weights, learned=False)
    assert weights.centers + weights.neighbors == pytest.approx(1)
    first, second = signs.centers.std(correction=0), signs.neighbors.std(correction=0)
    expected = (second * signs.centers + first * signs.neighbors) / (first + second)
    torch.testing.assert_close(plain.weigh(signs), expected)


def test_few_samples_say_that_nothing_can_be_promised() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(18) % 6
    z = 9 * np.eye(6, 8)[labels] + 0.1 * rng.normal(size=(18, 8))
    cleaning = infer_verdicts(z, labels, settings=CleaningSettings(k=(2,), near_duplicates=False))
    assert cleaning.detection is not None
    assert cleaning.detection.found.promised is None
    few = "18 known samples can't calibrate how many good inputs are rejected: for 5 %, 19 are needed"
    assert few in cleaning.summary.warnings


def test_copies_have_the_score_of_their_node() -> None:
    rng = np.random.default_rng(3)
    z, labels = clouds(rng, rng.normal(size=(4, 24)), 300)
    once = infer_verdicts(z, labels)
    twice = infer_verdicts(np.concatenate([z, z[:50]]), np.concatenate([labels, labels[:50]]))
    assert once.detection is not None
    assert twice.detection is not None
    assert (twice.detection.score[300:] == twice.detection.score[:50]).all()
    assert twice.detection.found.calibrated_on == 300


def test_a_share_that_is_set_is_the_one_that_is_rejected() -> None:
    rng = np.random.default_rng(4)
    z, labels = clouds(rng, rng.normal(size=(4, 24)), 600)
    found = [
        infer_verdicts(z, labels, ood=settings).detection
        for settings in (OodSettings(), OodSettings(reject=0.2), OodSettings(threshold="0.5"))
    ]
    shares = [detection.found.rejected_known for detection in found if detection is not None]
    assert shares[0] == pytest.approx(0.05, abs=0.01)
    assert shares[1] == pytest.approx(0.2, abs=0.01)
    last = found[2]
    assert last is not None
    assert (last.found.threshold, last.found.how, last.found.promised) == (0.5, "fixed", None)


def test_it_is_restored_from_what_was_saved() -> None:
    rng = np.random.default_rng(5)
    z, labels = clouds(rng, rng.normal(size=(3, 24)), 200)
    detection = infer_verdicts(z, labels).detection
    assert detection is not None
    detector = detection.detector
    again = FeatureDetector.restore(detector.state_dict(), detector.facts())
    unit, share, near = torch.randn(9, 24), torch.rand(9), torch.rand(9)
    assert torch.equal(detector(unit, share, near), again(unit, share, near))
    with pytest.raises(ValueError, match="parts don't fit"):
        FeatureDetector.restore({**detector.state_dict(), "root": torch.eye(3)}, detector.facts())
    for name in ("mean", "centers"):
        with pytest.raises(ValueError, match="the right shape"):
            FeatureDetector.restore({**detector.state_dict(), name: torch.tensor(1.0)}, detector.facts())
    nowhere = SignWeights(*[float("nan")] * 5)
    with pytest.raises(ValueError, match="parts don't fit"):
        FeatureDetector.restore(detector.state_dict(), {**detector.facts(), "weights": nowhere})
    broken = {**detector.state_dict(), "mean": torch.full((24,), torch.inf)}
    with pytest.raises(ValueError, match="other than numbers"):
        FeatureDetector.restore(broken, detector.facts())
