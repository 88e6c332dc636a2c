"""A training job on arrays: from noisy digits to verdicts, a threshold and predictions."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import make_blobs
from sklearn.metrics import roc_auc_score
from torch.nn.functional import normalize

from graphclean.cleaning import infer_verdicts
from graphclean.cleaning.inputs import Labels, encode_labels
from graphclean.config import apply_settings, load_preset
from graphclean.data.digits import noisy_digits
from graphclean.errors import InputError
from graphclean.methods import build_method
from graphclean.metrics import score_open_set, score_verdicts
from graphclean.training.fit import finish, fit, prepare
from graphclean.training.model import load_trained


@pytest.mark.slow
def test_noisy_digits_end_to_end(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    digits = noisy_digits(noise=0.4, seed=7)
    pixels = digits.images
    truth = np.where(digits.is_ood, -1, digits.truth)
    train, test = np.arange(1200), np.arange(1200, len(truth))
    config = apply_settings(load_preset("demo"), ["training.epochs=12"])
    epochs: list[int] = []
    result = fit(
        pixels[train],
        encode_labels(digits.labels[train]),
        config,
        build_method(config),
        on_epoch=lambda r, _: epochs.append(r.epoch),
    )
    assert epochs == list(range(1, 13))
    scores = score_verdicts(result.cleaning.verdicts, digits.truth[train], digits.is_ood[train])
    assert scores.label_accuracy > 0.95
    assert scores.ood_auroc > 0.9
    table = result.cleaning.verdicts
    assert table.selected.to_numpy().tolist() == result.trained.selection.selected.tolist()
    assert result.cleaning.summary.selected == table.selected.sum()
    new = result.predict(pixels[test])
    open_set = score_open_set(new.classes, new.ood_score, truth[test], result.model.threshold)
    assert open_set.accuracy > 0.93
    assert open_set.auroc > 0.85
    assert 0 < result.model.threshold < 1
    assert new.probability.max() <= 1
    assert result.seconds > 0
    both = replace(result.model, prototype_ensemble=True)
    both.save(tmp_path)
    loaded = load_trained(tmp_path, torch.device("cpu")).score(pixels[test])
    np.testing.assert_array_equal(loaded.probabilities, both.score(pixels[test]).probabilities)
    np.testing.assert_array_equal(loaded.ood_score, new.ood_score)
    assert np.abs(loaded.probabilities - new.probabilities).max() > 0.01
    assert (loaded.classes == truth[test])[truth[test] >= 0].mean() > 0.93


def blobs(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features of three overlapping classes and OOD samples between them, labels 40 % wrong, and the
    truth.
    """
    rng = np.random.default_rng(seed)
    centers = 3 * np.eye(4, 20)
    truth = rng.integers(0, 4, 800)
    features = (centers[truth] + rng.normal(0, 1, (800, 20))).astype(np.float32)
    given = np.where(rng.random(800) < 0.4, rng.integers(0, 3, 800), np.minimum(truth, 2))
    given[truth == 3] = rng.integers(0, 3, int((truth == 3).sum()))
    return features, given, truth


def test_heads_on_features_keep_the_verdicts_of_cleaning_and_classify_better() -> None:
    torch.set_num_threads(1)
    features, given, truth = blobs()
    train, test = np.arange(400), np.arange(400, 800)
    config = load_preset("embeddings")
    result = fit(features[train], encode_labels(given[train]), config, build_method(config))
    own = infer_verdicts(features[train], given[train], settings=config.cleaning)
    pd.testing.assert_frame_equal(result.cleaning.verdicts, own.verdicts)
    cleaning = infer_verdicts(features[train], given[train])
    assert cleaning.predictor is not None
    known = truth[test] < 3
    new, old = result.predict(features[test]), cleaning.predictor.predict(features[test])
    right = (new.classes == truth[test])[known].mean()
    assert right > (old.predicted_label.to_numpy() == truth[test])[known].mean()
    assert roc_auc_score(~known, new.ood_score) > roc_auc_score(~known, old.ood_score) - 0.01
    # The prototypes are of the selection in the table (Eq. 8).
    chosen = own.verdicts.selected.to_numpy()
    z = result.trained.z[chosen & (own.verdicts.proposed_label == 1).to_numpy()]
    assert torch.allclose(result.model.prototypes[1], normalize(z.mean(0), dim=0), atol=1e-5)


def test_prototypes_are_not_heard_beside_class_means() -> None:
    features, given, _ = blobs()
    config = apply_settings(load_preset("embeddings"), ["training.prototype_ensemble=true"])
    with pytest.raises(InputError, match="combined with class means already"):
        prepare(features, encode_labels(given), config, build_method(config))


@pytest.mark.slow
def test_features_without_a_class_signal_decide_nothing() -> None:
    """A head on many features memorizs random labels , and its z would find them right."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(600, 256)), encode_labels(rng.integers(0, 10, 600))
    config = load_preset("embeddings")
    prepared = prepare(features, labels, config, build_method(config))
    assert prepared.trainer.prior is None
    result = finish(prepared, prepared.trainer.train())
    assert set(result.cleaning.verdicts.verdict) == {"uncertain"}
    assert "no class signal" in result.cleaning.summary.warnings[-1]
    on_z = infer_verdicts(result.trained.z, labels)
    assert on_z.summary.signal > 5


def test_plain_cross_entropy_on_features_is_told_the_given_labels() -> None:
    features, given, _ = blobs()
    config = apply_settings(load_preset("embeddings"), ["method.name=cross-entropy"])
    prepared = prepare(features, encode_labels(given), config, build_method(config))
    assert prepared.trainer.prior is None
    assert prepared.verdicts is None


def test_labels_drawn_from_verdicts_keep_the_order_of_the_classes() -> None:
    """Names that look like numbers sort otherwise as numbers: the columns of the posterior must not."""
    features, codes = make_blobs(120, n_features=20, centers=3, random_state=0)
    labels = Labels(codes, ["10", "7", "8"])
    config = apply_settings(load_preset("embeddings"), ["training.epochs=6", "cleaning.k=10"])
    result = fit(features, labels, config, build_method(config))
    assert (result.predict(features).classes == codes).mean() > 0.97
    assert result.cleaning.verdicts["given_label"].tolist() == [labels.classes[code] for code in codes]


@pytest.mark.slow
def test_good_inputs_that_were_not_trained_on_set_a_networks_threshold() -> None:
    """A network draws inwards what it is trained on: by its own samples nothing can be promised."""
    digits = noisy_digits(noise=0.2, seed=3)
    known = np.flatnonzero(~digits.is_ood)
    train, good, new = known[:500], known[500:750], known[750:]
    config = apply_settings(load_preset("demo"), ["training.epochs=8"])
    labels = encode_labels(digits.labels[train])
    prepared = prepare(digits.images[train], labels, config, build_method(config))
    trained = prepared.trainer.train()
    blind, told = (finish(prepared, trained, good=some) for some in (None, digits.images[good]))
    assert blind.model.found.promised is None
    found = told.model.found
    assert (found.promised, found.calibrated_on) == (0.05, 250)
    rank = int(np.ceil(251 * 0.95)) - 1
    assert found.threshold == np.sort(told.predict(digits.images[good]).ood_score)[rank]
    assert told.predict(digits.images[new]).rejected.mean() == pytest.approx(0.05, abs=0.025)
