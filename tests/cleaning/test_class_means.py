"""Neighbors and whitened centers together: each part against an oracle, then the whole on new samples."""

import dataclasses

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm
from scipy.special import softmax
from sklearn.covariance import shrunk_covariance
from torch.nn.functional import normalize

from graphclean.cleaning import CleaningResult, KnnClassMeans, class_means, infer_verdicts
from graphclean.cleaning.class_means import SHRINKAGE, Whitening
from graphclean.cleaning.evidence import Standardizer
from graphclean.cleaning.knn_model import NearestPosterior
from graphclean.config import CleaningSettings
from graphclean.errors import InputError
from graphclean.graph import knn_graph, nearest_neighbors
from graphclean.metrics import score_verdicts
from tests.cleaning.test_pipeline import blobs


@pytest.mark.parametrize("shape", [(300, 20), (15, 40)])
def test_whitening_is_the_shrunk_covariance_to_the_power_of_minus_a_half(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    z = (rng.normal(size=shape) @ rng.normal(size=(shape[1], shape[1])) + 1).astype(np.float32)
    fitted = Whitening.fit(torch.as_tensor(z))
    covariance = np.cov(z.T, bias=True)
    expected = (z - z.mean(0)) @ np.linalg.inv(np.real(sqrtm(shrunk_covariance(covariance, SHRINKAGE))))
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(fitted(torch.as_tensor(z)), expected, atol=1e-4)


def test_directions_beyond_the_leading_ones_are_whitened_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    spread = np.array([9.0, 4.0, *[1.0] * 8], dtype=np.float32)
    z = torch.as_tensor(rng.normal(size=(40_000, 10)).astype(np.float32) * spread)
    whole = Whitening.fit(z)(z)
    monkeypatch.setattr(class_means, "DIRECTIONS", 2)
    few = Whitening.fit(z)
    assert few.directions.shape == (10, 2)
    torch.testing.assert_close(few(z), whole, atol=0.01, rtol=0)


def test_a_sample_has_no_part_in_the_centers_it_is_judged_by() -> None:
    generator = torch.Generator().manual_seed(0)
    unit = normalize(torch.randn(12, 5, generator=generator), dim=1)
    own = torch.rand(12, 3, generator=generator)
    own[1:, 2] = 0  # the first sample is all there is of the last class
    found = class_means._leave_one_out(unit, own, own.T @ unit)
    for i in range(12):
        others = torch.arange(12) != i
        centers = normalize(own[others].T @ unit[others], dim=1)
        np.testing.assert_allclose(found[i], centers @ unit[i], atol=1e-4)
    assert found[0, 2] == 0


def test_weights_are_found_again_through_noisy_labels() -> None:
    rng = np.random.default_rng(0)
    cosine, log_shares = rng.normal(0, 0.1, (20_000, 3)), np.log(rng.dirichlet([1] * 3, 20_000))
    chance = softmax(30 * cosine + 0.8 * log_shares, axis=1)
    truth = (chance.cumsum(1) < rng.random((20_000, 1))).sum(1)
    transition = np.array([[0.7, 0.2, 0.1], [0.0, 0.6, 0.4], [0.1, 0.1, 0.8]])
    labels = (transition[truth].cumsum(1) < rng.random((20_000, 1))).sum(1)
    found = class_means._fit_classes(cosine, log_shares, np.ones(20_000), labels, transition)
    np.testing.assert_allclose(found, (30, 0.8), rtol=0.1)


def test_the_chance_of_ood_is_found_again() -> None:
    rng = np.random.default_rng(0)
    similarity, share = rng.normal(0.3, 0.1, 20_000), rng.uniform(0.01, 0.99, 20_000)
    odds = 2 + 0.7 * np.log(share / (1 - share)) - 12 * similarity
    believed = 1 / (1 + np.exp(-odds))
    np.testing.assert_allclose(class_means._fit_ood(similarity, share, believed), (2, 0.7, 12), rtol=0.02)
    _, by_share, by_distance = class_means._fit_ood(similarity, share, 1 - believed)
    assert by_share == by_distance == 0, "neither may speak for the opposite"


BOTH = CleaningSettings(classifier="knn+class-means")


def combine(class_means: KnnClassMeans, unit: torch.Tensor) -> torch.Tensor:
    """As for new samples: with what their nearest nodes say."""
    return class_means.known(unit, NearestPosterior(class_means.nodes, class_means.posterior)(unit).shares)


def judge(cleaning: CleaningResult, new: np.ndarray) -> np.ndarray:
    assert cleaning.predictor is not None
    assert cleaning.class_means is not None
    known = combine(cleaning.class_means.model, cleaning.predictor.standardizer(new.astype(np.float32)))
    torch.testing.assert_close(known.exp().sum(1), torch.ones(len(new), dtype=known.dtype))
    return known.argmax(1).numpy()


def test_round_classes_are_told_better_than_by_neighbors_alone() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 5, 1600)  # the fifth is of no class
    shared = rng.normal(size=(1600, 5)) @ rng.normal(size=(5, 100))
    z = shared + rng.normal(size=(1600, 100)) + 0.7 * rng.normal(size=(5, 100))[truth]
    labels = np.where((truth == 4) | (rng.random(1600) < 0.3), rng.integers(0, 4, 1600), truth)
    old, cleaning = (
        infer_verdicts(z[:500], labels[:500], settings=s) for s in (CleaningSettings(classifier="knn"), BOTH)
    )
    assert old.predictor is not None
    classes = judge(cleaning, z[500:])
    before = old.predictor.predict(z[500:])
    known = truth[500:] < 4
    right = (classes == truth[500:])[known].mean()
    assert right > (before.predicted_label.to_numpy() == truth[500:])[known].mean() + 0.01
    ours, theirs = (
        score_verdicts(a.verdicts, np.where(truth < 4, truth, -1)[:500], truth[:500] == 4)
        for a in (cleaning, old)
    )
    assert ours.label_accuracy > theirs.label_accuracy
    assert ours.ood_auroc > theirs.ood_auroc


def test_classes_of_any_shape_are_left_to_the_neighbors() -> None:
    rng = np.random.default_rng(0)
    corner = rng.integers(0, 2, (900, 2))
    z = 3 * (2 * corner - 1) @ rng.normal(size=(2, 8)) + rng.normal(size=(900, 8))
    truth = corner[:, 0] ^ corner[:, 1]  # each class is two clouds, with the same mean
    labels = np.where(rng.random(900) < 0.2, 1 - truth, truth)
    classes = judge(infer_verdicts(z[:600], labels[:600], settings=BOTH), z[600:])
    assert (classes == truth[600:]).mean() > 0.97


def test_tiny_classes_copies_and_missing_labels_are_survived() -> None:
    z, labels, _ = blobs([80, 80, 2, 1], noise=0.0)
    labels[::7] = -1
    labels[-1] = 3
    z, labels = np.concatenate([z, z[:40]]), np.concatenate([labels, labels[:40]])
    cleaning = infer_verdicts(z, labels, settings=BOTH)
    assert cleaning.class_means is not None
    assert cleaning.posterior is not None
    np.testing.assert_allclose(cleaning.posterior.sum(1), 1)
    assert np.isfinite(cleaning.class_means.model.weights).all()
    assert len(cleaning.class_means.model.nodes) == len(z) - 40
    assert (judge(cleaning, z[:160]) == np.repeat([0, 1], 80)).mean() > 0.95


def test_class_means_is_restored_from_its_tensors() -> None:
    z, labels, _ = blobs([40] * 3, noise=0.2, ood=20)
    cleaning = infer_verdicts(z, labels, settings=BOTH)
    assert cleaning.class_means is not None
    fitted = cleaning.class_means.model
    again = KnnClassMeans.restore(fitted.tensors(), list(fitted.weights))
    unit = Standardizer.fit(z.astype(np.float32))(z.astype(np.float32))
    assert torch.equal(combine(fitted, unit), combine(again, unit))
    other = dataclasses.replace(fitted, weights=fitted.weights._replace(centers=0.0, neighbors=0.0))
    assert torch.allclose(combine(other, unit), torch.full((len(z), 3), -np.log(3)))
    with pytest.raises(KeyError):
        KnnClassMeans.restore({}, list(fitted.weights))


def test_a_graph_alone_is_refused() -> None:
    z, labels, _ = blobs([20, 20])
    graph = knn_graph(nearest_neighbors(torch.as_tensor(z), 5))
    with pytest.raises(InputError, match=r"needs embeddings; with a graph, set cleaning\.classifier=knn"):
        infer_verdicts(None, labels, graph=graph, settings=BOTH)
