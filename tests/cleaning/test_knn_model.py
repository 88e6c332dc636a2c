import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from graphclean.cleaning import KnnModel, infer_verdicts
from graphclean.cleaning.knn_model import fit_temperature, known_probabilities, neighbor_shares
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


def test_new_samples_get_their_class_and_ood_are_told(split: Split) -> None:
    predictor, z, truth = split
    table = predictor.predict(z, [f"n{i}" for i in range(len(z))])
    assert list(table.columns) == ["id", "predicted_label", "probability", "ood_score", "verdict"]
    assert table.id[3] == "n3"
    known = truth >= 0
    assert (table.predicted_label.to_numpy() == truth)[known].mean() > 0.97
    assert roc_auc_score(~known, table.ood_score) > 0.85
    rejected = (table.verdict == "ood").to_numpy()
    assert rejected[known].mean() < 0.15
    assert rejected[~known].mean() > 0.5


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


def test_the_temperature_that_made_the_targets_is_found_again() -> None:
    shares = np.random.default_rng(0).dirichlet([1, 1, 1, 1], 4000)
    known = known_probabilities(torch.as_tensor(shares), 1.8).numpy()
    ood = np.linspace(0, 0.9, 4000)[:, None]
    assert fit_temperature(shares, np.column_stack([known * (1 - ood), ood])) == pytest.approx(1.8, rel=0.01)


def test_probabilities_sum_to_one_whatever_the_shares() -> None:
    shares = torch.tensor([[1.0, 0, 0], [0, 0, 1.0], [0.4, 0.4, 0.2]], dtype=torch.float64)
    known = known_probabilities(shares, 2.0).numpy()
    np.testing.assert_allclose(known.sum(1), 1)
    assert known[0, 0] > 0.99
    np.testing.assert_allclose(known[1:], 0.5)


@pytest.mark.parametrize("seed", range(3))
def test_what_was_expected_to_be_rejected_is(seed: int) -> None:
    """New samples of five classes and of none, beside what the training samples say."""
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
    assert cleaning.detection is not None
    found = cleaning.detection.found
    assert found.promised is None, "which samples are good is a verdict"
    assert found.rejected_ood is not None
    assert rejected[truth >= 0].mean() == pytest.approx(0.05, abs=0.035)
    assert rejected[truth < 0].mean() == pytest.approx(found.rejected_ood, abs=0.15)
