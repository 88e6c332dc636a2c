"""Every detector on one trained network: fitted, scored, saved, exported, or refused before training."""

import dataclasses
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from graphclean.cleaning.inputs import encode_labels
from graphclean.config import Config, OodSettings, apply_settings, load_preset
from graphclean.data.digits import noisy_digits
from graphclean.errors import InputError
from graphclean.methods import build_method
from graphclean.methods.cross_entropy import CrossEntropy
from graphclean.ood import find_threshold
from graphclean.ood.detector import Detector, Outputs
from graphclean.ood.detectors import OWN_DETECTORS, load_detector
from graphclean.ood.detectors.prototypes import NO_DETECTOR
from graphclean.training.batches import ResidentInputs
from graphclean.training.detection import TrainingOutputs, fit_detector
from graphclean.training.fit import Prepared, TrainingResult, finish, prepare
from graphclean.training.inference import read_outputs, run_network
from graphclean.training.model import load_trained
from graphclean.training.networks import Ensemble, build_network

N = 240
FOR_ALL = [name for name in OWN_DETECTORS if not load_detector(name).methods]
"""Detectors that any network will do for."""
RELU = {"she", "react", "ash", "scale"}


def config(*settings: str) -> Config:
    tiny = ("training.epochs=3", "training.batch_size=64", "cleaning.k=10", *settings)
    return apply_settings(load_preset("demo"), ["method.name=cross-entropy", *tiny])


def prepared(*settings: str, **options: Any) -> Prepared:
    digits, made = noisy_digits(noise=0.2), config(*settings)
    options = {"method": build_method(made)} | options
    return prepare(digits.images[:N], encode_labels(digits.labels[:N]), made, **options)


@pytest.fixture(scope="module")
def result() -> TrainingResult:
    """With every detector, and images by which their thresholds keep a promise."""
    with torch.random.fork_rng():
        run = prepared(more=[load_detector(name) for name in FOR_ALL])
        digits = noisy_digits()
        good = digits.images[N : 2 * N][~digits.is_ood[N : 2 * N]]
        return finish(run, run.trainer.train(), good=good)


@pytest.mark.slow
@pytest.mark.parametrize("name", FOR_ALL)
def test_every_detector_judges_a_trained_network_and_keeps_its_promise(
    result: TrainingResult, name: str, tmp_path: Path
) -> None:
    model, digits = result.more[name], noisy_digits()
    rows = slice(N, 2 * N)
    found = model.score(digits.images[rows])
    assert np.isfinite(found.ood_score).all()
    assert len(np.unique(found.ood_score)) > N / 2
    good = ~digits.is_ood[rows]
    count = int(good.sum())
    assert (model.found.calibrated_on, model.found.promised) == (count, 0.05)
    kept = np.ceil((count + 1) * 0.95)
    assert found.rejected[good].sum() == count - kept
    assert model.detector_name == name
    model.save(tmp_path)
    again = load_trained(tmp_path, torch.device("cpu"))
    np.testing.assert_array_equal(again.score(digits.images[rows]).ood_score, found.ood_score)
    assert (again.obstacle is None) == (name != "odin")


@pytest.mark.slow
def test_detectors_next_to_it_change_nothing(result: TrainingResult) -> None:
    alone = prepared()
    found = finish(alone, alone.trainer.train())
    assert found.model.detector.name == result.model.detector.name == "msp"
    np.testing.assert_array_equal(found.ood_score, result.ood_score)


def gathered(n: int = 60) -> TrainingOutputs:
    """Random features of a network that is not asked."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(n, 4, generator=generator)
    outputs = Outputs(features[:, :3], features, features)
    labels = torch.arange(n) % 4 - 1
    return TrainingOutputs(nn.Identity(), ResidentInputs(features), outputs, labels, 3)


def test_selected_samples_are_scored_without_themselves() -> None:
    """By folds of a fifth in which every class has its share; all others by the detector itself."""
    source, made = gathered(), load_detector("knn")
    detector, score = fit_detector(made, CrossEntropy(), source)
    inside = detector(source.outputs).double().numpy()
    chosen = (source.labels >= 0).numpy()
    np.testing.assert_allclose(score[~chosen], inside[~chosen])
    assert (score[chosen] >= inside[chosen]).all()
    assert score[chosen].mean() > inside[chosen].mean() + 0.01
    rows = np.flatnonzero(chosen)
    rows = rows[np.argsort(source.labels[rows].numpy(), kind="stable")]
    for fold in (rows[part::5] for part in range(5)):
        assert np.bincount(source.labels[fold].numpy()).tolist() == [3, 3, 3]
        bank = normalize(source.outputs.z[np.setdiff1d(rows, fold)], dim=1)
        distance = torch.cdist(normalize(source.outputs.z[fold], dim=1), bank).sort(1).values
        np.testing.assert_allclose(score[fold], distance[:, len(bank) // 6 - 1], rtol=1e-5)


@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("name", ["mahalanobis", "rmd", "knn", "kl-matching", "prototypes"])
def test_next_to_nothing_selected_gives_a_score_and_a_threshold(name: str, count: int) -> None:
    source = gathered()
    labels = torch.where(torch.arange(60) < count, 1, -1)
    detector, score = fit_detector(
        load_detector(name), CrossEntropy(), dataclasses.replace(source, labels=labels)
    )
    assert np.isfinite(score).all()
    for wanted in ("auto", "conformal"):
        settings = OodSettings(threshold=wanted)
        found = find_threshold(
            score, np.zeros(60), settings, learned=False, selected=score[(labels >= 0).numpy()]
        )
        assert np.isfinite(found.threshold)
    if count == 0:
        assert not (score > found.threshold).any()
        assert detector.notes() == [NO_DETECTOR]


def test_a_detector_that_learns_next_to_nothing_scores_all_by_itself() -> None:
    source = gathered()
    detector, score = fit_detector(load_detector("energy"), CrossEntropy(), source)
    np.testing.assert_array_equal(score, detector(source.outputs).double().numpy())


@pytest.mark.parametrize("name", [*sorted(RELU), "mahalanobis-layers", "vim"])
def test_features_with_signs_are_refused_before_training_by_what_needs_a_relu(name: str) -> None:
    settings = ("training.network=preact-resnet18", f"ood.detector={name}")
    prepared(*settings)
    if name not in RELU:
        prepared(*settings, "training.trunk=release")
        return
    with pytest.raises(InputError, match=rf"^ood\.detector={name}: .* after a ReLU, .*, such as energy$"):
        prepared(*settings, "training.trunk=release")


class Opaque(CrossEntropy):
    """Predicts by a network of another kind."""

    info = dataclasses.replace(CrossEntropy.info, name="opaque")

    def predictor(self) -> nn.Module:
        return nn.Sequential(self.networks["main"])


class OfOpaque(Detector):
    """Reads what a method alone has."""

    name, needs, title = "of-opaque", "logits", "by a head of the method"
    methods: ClassVar[tuple[str, ...]] = ("opaque",)


def test_what_a_network_does_not_have_is_refused_before_training() -> None:
    for name in ("knn", "mahalanobis-layers", "vim"):
        with pytest.raises(InputError, match=rf"^ood\.detector={name}: it needs .* opaque doesn't give"):
            prepared(f"ood.detector={name}", method=Opaque())
    prepared("ood.detector=energy", method=Opaque())
    prepared(method=Opaque(), detector=OfOpaque)
    with pytest.raises(InputError, match=r"needs a network trained by opaque, not by cross-entropy"):
        prepared(detector=OfOpaque)


@pytest.mark.parametrize("flip_tta", [False, True])
def test_the_head_and_the_layers_are_those_of_the_outputs(flip_tta: bool) -> None:
    pixels = torch.rand(5, 1, 8, 8)
    torch.manual_seed(0)
    members = [build_network("small-conv", 3, input_shape=(1, 8, 8)) for _ in range(2)]
    for network in (members[0], Ensemble(members)):
        for member in members:
            member.flip_tta = flip_tta
        network.eval()
        with torch.no_grad():
            plain, out = (read_outputs(network, pixels, needs) for needs in ("features", "layers"))
            weight, bias = network.linear_head()
        assert plain.features is not None
        assert out.features is not None
        assert plain.features.shape[1] == network.feature_dim == out.layers[-1].shape[1]
        torch.testing.assert_close(plain.features @ weight.T + bias, plain.logits)
        for name in ("logits", "z", "features"):
            torch.testing.assert_close(getattr(out, name), getattr(plain, name))
        torch.testing.assert_close(out.layers[-1], plain.features)
        assert len(out.layers) == 3


def test_batches_leave_a_network_as_it_was() -> None:
    network = build_network("small-conv", 3, input_shape=(1, 8, 8)).train()
    images = torch.zeros(7, 1, 8, 8, dtype=torch.uint8)
    for inputs, out in run_network(network, torch.split(images, 4), "features"):
        assert not network.training
        assert out.features is not None
        assert len(inputs) == len(out.features)
    assert network.training


def test_a_method_may_equip_its_detector() -> None:
    class Equipping(CrossEntropy):
        def equip(self, detector: Detector) -> None:
            detector.register_buffer("own", torch.ones(3))

    detector, _ = fit_detector(load_detector("knn"), Equipping(), gathered())
    assert isinstance(detector.own, Tensor)
