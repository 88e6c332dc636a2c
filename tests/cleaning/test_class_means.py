"""Neighbours and whitened centres together: each part against an oracle, then the whole on new samples."""

import dataclasses

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm
from scipy.special import softmax
from sklearn.covariance import shrunk_covariance
from sklearn.metrics import roc_auc_score
from torch.nn.functional import normalize

from graphclean.cleaning import Audit, Panel, audit_embeddings, class_means
from graphclean.cleaning.class_means import SHRINKAGE, Whitening
from graphclean.cleaning.evidence import Standardiser
from graphclean.cleaning.knn_model import NearestPosterior
from graphclean.config import AuditSettings
from graphclean.errors import InputError
from graphclean.graph import knn_graph, nearest_neighbours
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


def test_a_sample_has_no_part_in_the_centres_it_is_judged_by() -> None:
    generator = torch.Generator().manual_seed(0)
    unit = normalize(torch.randn(12, 5, generator=generator), dim=1)
    own = torch.rand(12, 3, generator=generator)
    own[1:, 2] = 0  # the first sample is all there is of the last class
    found = class_means._leave_own_out(unit, own, own.T @ unit)
    for i in range(12):
        others = torch.arange(12) != i
        centres = normalize(own[others].T @ unit[others], dim=1)
        np.testing.assert_allclose(found[i], centres @ unit[i], atol=1e-4)
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
    closeness, share = rng.normal(0.3, 0.1, 20_000), rng.uniform(0.01, 0.99, 20_000)
    odds = 2 + 0.7 * np.log(share / (1 - share)) - 12 * closeness
    believed = 1 / (1 + np.exp(-odds))
    np.testing.assert_allclose(class_means._fit_ood(closeness, share, believed), (2, 0.7, 12), rtol=0.02)
    _, by_share, by_distance = class_means._fit_ood(closeness, share, 1 - believed)
    assert by_share == by_distance == 0, "neither may speak for the opposite"


BOTH = AuditSettings(judges="panel")


def weigh(panel: Panel, unit: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """As for new samples: with what their nearest nodes say."""
    return panel.weigh(unit, NearestPosterior(panel.nodes, panel.posterior)(unit))


def judge(audit: Audit, new: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    assert audit.predictor is not None
    assert audit.panel is not None
    known, ood = weigh(audit.panel.panel, audit.predictor.standardiser(new.astype(np.float32)))
    torch.testing.assert_close(known.exp().sum(1), torch.ones(len(new), dtype=known.dtype))
    return known.argmax(1).numpy(), ood.numpy()


def test_round_classes_are_told_better_than_by_neighbours_alone() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 5, 1600)  # the fifth is of no class
    shared = rng.normal(size=(1600, 5)) @ rng.normal(size=(5, 100))
    z = shared + rng.normal(size=(1600, 100)) + 0.7 * rng.normal(size=(5, 100))[truth]
    labels = np.where((truth == 4) | (rng.random(1600) < 0.3), rng.integers(0, 4, 1600), truth)
    old, audit = (audit_embeddings(z[:500], labels[:500], settings=s) for s in (AuditSettings(), BOTH))
    assert old.predictor is not None
    classes, ood = judge(audit, z[500:])
    before = old.predictor.predict(z[500:])
    known = truth[500:] < 4
    right = (classes == truth[500:])[known].mean()
    assert right > (before.predicted_label.to_numpy() == truth[500:])[known].mean() + 0.01
    assert roc_auc_score(~known, ood) > roc_auc_score(~known, before.ood_score)
    # The training samples, each judged without its own part, look to it as new ones do.
    assert audit.panel is not None
    assert audit.panel.prior.ood.mean() == pytest.approx(ood.mean(), abs=0.03)
    ours, theirs = (
        score_verdicts(a.verdicts, np.where(truth < 4, truth, -1)[:500], truth[:500] == 4)
        for a in (audit, old)
    )
    assert ours.labels_right > theirs.labels_right
    assert ours.ood_auroc > theirs.ood_auroc


def test_classes_of_any_shape_are_left_to_the_neighbours() -> None:
    rng = np.random.default_rng(0)
    corner = rng.integers(0, 2, (900, 2))
    z = 3 * (2 * corner - 1) @ rng.normal(size=(2, 8)) + rng.normal(size=(900, 8))
    truth = corner[:, 0] ^ corner[:, 1]  # each class is two clouds, with the same mean
    labels = np.where(rng.random(900) < 0.2, 1 - truth, truth)
    classes, _ = judge(audit_embeddings(z[:600], labels[:600], settings=BOTH), z[600:])
    assert (classes == truth[600:]).mean() > 0.97


def test_tiny_classes_copies_and_missing_labels_are_survived() -> None:
    z, labels, _ = blobs([80, 80, 2, 1], noise=0.0)
    labels[::7] = -1
    labels[-1] = 3
    z, labels = np.concatenate([z, z[:40]]), np.concatenate([labels, labels[:40]])
    audit = audit_embeddings(z, labels, settings=BOTH)
    assert audit.panel is not None
    assert audit.beliefs is not None
    np.testing.assert_allclose(audit.beliefs.sum(1), 1)
    assert np.isfinite(audit.panel.panel.weights).all()
    assert len(audit.panel.panel.nodes) == len(z) - 40
    classes, ood = judge(audit, z[:160])
    assert (classes == np.repeat([0, 1], 80)).mean() > 0.95
    assert (ood < 0.5).mean() > 0.95


def test_a_panel_is_restored_from_its_tensors() -> None:
    z, labels, _ = blobs([40] * 3, noise=0.2, ood=20)
    audit = audit_embeddings(z, labels, settings=BOTH)
    assert audit.panel is not None
    fitted = audit.panel.panel
    again = Panel.restore(fitted.tensors(), list(fitted.weights))
    unit = Standardiser.fit(z.astype(np.float32))(z.astype(np.float32))
    for ours, theirs in zip(weigh(fitted, unit), weigh(again, unit), strict=True):
        assert torch.equal(ours, theirs)
    other = dataclasses.replace(fitted, weights=fitted.weights._replace(centres=0.0, neighbours=0.0))
    assert torch.allclose(weigh(other, unit)[0], torch.full((len(z), 3), -np.log(3)))
    with pytest.raises(KeyError):
        Panel.restore({}, list(fitted.weights))


def test_a_graph_alone_is_refused() -> None:
    z, labels, _ = blobs([20, 20])
    graph = knn_graph(nearest_neighbours(torch.as_tensor(z), 5))
    with pytest.raises(InputError, match=r"needs embeddings; with a graph, set audit\.judges=neighbours"):
        audit_embeddings(None, labels, graph=graph, settings=BOTH)
