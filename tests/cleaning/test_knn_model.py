import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from graphclean.cleaning import KnnModel, infer_verdicts
from graphclean.cleaning.knn_model import (
    Calibration,
    expected_rejects,
    fit_calibration,
    neighbor_shares,
)
from graphclean.errors import InputError
from graphclean.graph import Neighbors
from tests.cleaning.test_pipeline import blobs

Split = tuple[KnnModel, np.ndarray, np.ndarray]


@pytest.fixture(scope="module")
def split() -> Split:
    """An audit of most of a noisy set, and what was held back with its truth."""
    z, labels, truth = blobs([150] * 4, noise=0.3, ood=120)
    held = np.arange(len(z)) % 5 == 0
    predictor = infer_verdicts(z[~held], labels[~held]).predictor
    assert predictor is not None
    return predictor, z[held], truth[held]


@pytest.mark.parametrize("detector", ["knn", "prototypes"])
def test_new_samples_get_their_class_and_ood_are_told(split: Split, detector: str) -> None:
    predictor, z, truth = split
    table = predictor.with_detector(detector).predict(z, [f"n{i}" for i in range(len(z))])
    assert list(table.columns) == ["id", "predicted_label", "probability", "ood_score", "verdict"]
    assert table.id[3] == "n3"
    known = truth >= 0
    assert (table.predicted_label.to_numpy() == truth)[known].mean() > 0.97
    assert roc_auc_score(~known, table.ood_score) > 0.85
    rejected = (table.verdict == "ood").to_numpy()
    assert rejected[known].mean() < 0.15
    assert rejected[~known].mean() > 0.5


def test_probabilities_are_calibrated(split: Split) -> None:
    predictor, z, truth = split
    table = predictor.predict(z)
    assert table.ood_score.mean() == pytest.approx((truth < 0).mean(), abs=0.07)


def test_other_widths_are_refused(split: Split) -> None:
    with pytest.raises(InputError, match="these embeddings have 3 columns, the run was made with 16"):
        split[0].predict(np.ones((2, 3)))


def test_shares_are_the_weighted_mean_of_the_neighbors() -> None:
    posterior = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    found = Neighbors(
        torch.tensor([[0, 1], [2, 0], [1, 2]]), torch.tensor([[0.6, 0.2], [0.5, -0.5], [0.0, 0.0]])
    )
    expected = [[0.75, 0.25], [0.5, 0.5], [0.25, 0.75]]
    np.testing.assert_allclose(neighbor_shares(found, posterior), expected, atol=1e-7)


def test_calibration_recovers_what_made_the_targets() -> None:
    rng = np.random.default_rng(0)
    shares = rng.dirichlet([1, 1, 1, 1], 4000)
    wanted = Calibration(1.8, -0.7, 1.4)
    known, ood = (part.numpy() for part in wanted(torch.as_tensor(shares)))
    posterior = np.column_stack([known * (1 - ood)[:, None], ood])
    np.testing.assert_allclose(fit_calibration(shares, posterior), wanted, atol=0.05)


def test_calibrated_values_are_probabilities() -> None:
    shares = torch.tensor([[1.0, 0, 0], [0, 0, 1.0], [0.4, 0.4, 0.2]], dtype=torch.float64)
    known, ood = (part.numpy() for part in Calibration(2.0, 0.0, 1.0)(shares))
    np.testing.assert_allclose(known.sum(1), 1)
    assert known[0, 0] > 0.99
    np.testing.assert_allclose(ood, [0.001, 0.999, 0.2])


def test_what_will_be_rejected_is_weighed_by_posterior() -> None:
    """P(OOD) as the neighbors have it, at a border of a half."""
    as_it_is = Calibration(1.0, 0.0, 1.0)
    far = np.repeat([0.9, 0.6, 0.4, 0.1], 10)
    shares = np.column_stack([1 - far, far])
    believed = np.repeat([1.0, 0.5, 0.5, 0.0], 10)
    posterior = np.column_stack([1 - believed, believed])
    assert expected_rejects(as_it_is, shares, posterior) == pytest.approx({"known": 0.25, "ood": 0.75})
    ten, fewer = (np.column_stack([1 - part * believed, part * believed]) for part in (0.5, 0.49))
    assert set(expected_rejects(as_it_is, shares, ten)) == {"known", "ood"}
    assert set(expected_rejects(as_it_is, shares, fewer)) == {"known"}
    assert expected_rejects(as_it_is, shares, np.column_stack([0.2 * believed, 1 - 0.2 * believed])) == {}


def test_prototypes_reject_what_is_far_from_all_of_them(split: Split) -> None:
    predictor, z, _ = split
    predictor = predictor.with_detector("prototypes")
    table = predictor.predict(z)
    unit = predictor.standardizer(z).numpy()
    prototypes = predictor.prototypes.numpy()
    cosine = unit @ (prototypes / np.linalg.norm(prototypes, axis=1, keepdims=True)).T
    np.testing.assert_allclose(table.ood_score, 1 - cosine.max(1), atol=1e-5)
    assert ((table.verdict == "ood").to_numpy() == (1 - cosine.max(1) > predictor.threshold)).all()
    assert table.predicted_label.tolist() == [predictor.classes[best] for best in cosine.argmax(1)]


def test_an_unknown_detector_is_refused_with_the_nearest(split: Split) -> None:
    with pytest.raises(InputError, match=r"no detector prototype; did you mean prototypes\?"):
        split[0].with_detector("prototype")


@pytest.mark.parametrize("seed", range(3))
def test_what_was_expected_to_be_rejected_is(seed: int) -> None:
    """New samples of five classes and of none, beside the cautious estimate of the audit."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(5, 16))

    def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
        truth = rng.integers(-1, 5, n)
        spread = np.where(truth[:, None] < 0, rng.normal(size=(n, 16)), centers[truth])
        return spread + 0.6 * rng.normal(size=(n, 16)), truth

    z, truth = draw(900)
    labels = np.where((truth < 0) | (rng.random(900) < 0.3), rng.integers(0, 5, 900), truth)
    cleaning = infer_verdicts(z, labels)
    assert cleaning.predictor is not None
    new, truth = draw(900)
    rejected = (cleaning.predictor.predict(new).verdict == "ood").to_numpy()
    expected = cleaning.summary.rejects
    assert rejected[truth >= 0].mean() == pytest.approx(expected["known"], abs=0.05)
    assert 0 < rejected[truth < 0].mean() - expected["ood"] < 0.3
