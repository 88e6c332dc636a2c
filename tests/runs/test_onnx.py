"""Models under onnxruntime, compared with what predicts in Python."""

import copy
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from graphclean.cleaning import KnnModel, infer_verdicts
from graphclean.cleaning.detection import FeatureDetector, SignWeights
from graphclean.cleaning.evidence import Standardizer
from graphclean.cleaning.inputs import encode_labels
from graphclean.config import apply_settings, load_preset
from graphclean.errors import InputError
from graphclean.methods import build_method
from graphclean.ood import Threshold
from graphclean.ood.detector import Outputs
from graphclean.ood.detectors import OWN_DETECTORS, load_detector
from graphclean.runs import onnx as export
from graphclean.runs.onnx import Served, check, random_pictures, to_onnx
from graphclean.training.fit import fit
from graphclean.training.inference import read_outputs
from graphclean.training.model import NetworkModel
from graphclean.training.networks import Ensemble, build_network
from tests.cleaning.test_pipeline import blobs

onnx = pytest.importorskip("onnx", reason="needs the extra onnx")
onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")
pytest.importorskip("onnxscript", reason="needs the extra onnx")
pytestmark = pytest.mark.usefixtures("one_thread")

CLASSES = ["ant", "bee", "cat", "dog"]


def trained(
    name: str, shape: tuple[int, ...], detector: str = "prototypes", *, members: int = 1
) -> NetworkModel:
    """A network of random weights, with norms that have seen data, and one class without a prototype."""
    torch.manual_seed(0)
    networks = [build_network(name, len(CLASSES), input_shape=shape) for _ in range(members)]
    network = networks[0] if members == 1 else Ensemble(networks)
    network.train()
    with torch.no_grad():
        network(torch.randn(16, *shape))
    standardizer = None
    if len(shape) == 1:
        z = np.random.default_rng(0).normal(5, 3, (50, *shape)).astype(np.float32)
        z[:, 1] = 7  # a constant feature
        standardizer = Standardizer.fit(z)
    prototypes = normalize(torch.randn(len(CLASSES), 64 * members), dim=1)
    prototypes[2] = 0
    kind = load_detector(detector)
    made = kind(len(CLASSES), 64 * members if kind.needs == "z" else network.feature_dim)
    if detector == "prototypes":
        made.load_state_dict({"prototypes": prototypes})
    else:
        with torch.no_grad():
            out = read_outputs(network.eval(), torch.randn(90, *shape), kind.needs)
            made.take_head(*network.linear_head())
            made.fit(out, torch.arange(90) % len(CLASSES))
    found = Threshold(1 - 0.1, 0, None, 0, 100)
    return NetworkModel(network.eval(), {}, shape, CLASSES, standardizer, prototypes, made, found)


def run_onnx(content: bytes, inputs: np.ndarray) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    assert [output.name for output in session.get_outputs()] == ["probabilities", "ood_score", "rejected"]
    return session.run(None, {given.name: inputs})


def assert_same(content: bytes, model: NetworkModel | KnnModel, inputs: np.ndarray) -> None:
    """In batches of one, of two and of all, against `predict`."""
    table = model.predict(inputs)
    for size in (1, 2, len(inputs)):
        probabilities, score, rejected = run_onnx(content, inputs[:size])
        part = table[:size]
        assert probabilities.shape == (size, len(model.classes))
        np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-5)
        np.testing.assert_allclose(probabilities.max(1), part.probability, atol=1e-4)
        assert [model.classes[best] for best in probabilities.argmax(1)] == part.predicted_label.tolist()
        np.testing.assert_allclose(score, part.ood_score, atol=1e-4, rtol=1e-4)
        assert rejected.dtype == bool
        assert rejected.tolist() == (part.verdict == "ood").tolist()
    assert 0 < rejected.sum() < len(inputs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shape", "prototype_ensemble", "flip_tta", "detector"),
    [
        ("small-conv", (1, 8, 8), True, False, "prototypes"),
        ("small-conv", (1, 8, 8), False, False, "msp"),
        ("small-conv", (1, 8, 8), False, True, "mahalanobis-layers"),
        ("small-conv", (3, 33, 21), False, True, "prototypes"),  # its pooling has windows of different sizes
        ("preact-resnet18", (3, 16, 16), False, False, "prototypes"),
        ("embedding-head", (12,), False, False, "prototypes"),
    ],
)
def test_networks_say_the_same(
    name: str, shape: tuple[int, ...], prototype_ensemble: bool, flip_tta: bool, detector: str
) -> None:
    model = replace(trained(name, shape, detector), prototype_ensemble=prototype_ensemble)
    model.network.flip_tta = flip_tta
    rng = np.random.default_rng(1)
    if len(shape) == 1:
        inputs = rng.normal(5, 3, (20, *shape)).astype(np.float32)
    else:
        inputs = rng.integers(0, 256, (20, *shape), dtype=np.uint8)
        inputs[::2] = random_pictures(10, shape).numpy()
    middle = np.median(model.score(inputs).ood_score)
    model = replace(model, found=Threshold(float(middle), 0, None, 0, 100))
    served = Served(model, None)
    content = to_onnx(served, {})
    assert check(content, served, model.predict).largest_difference < 1e-4
    assert_same(content, model, inputs)


@pytest.mark.slow
@pytest.mark.parametrize("detector", ["prototypes", "knn"])
def test_two_networks_say_the_same(detector: str) -> None:
    model = trained("small-conv", (1, 8, 8), detector, members=2)
    inputs = np.random.default_rng(1).integers(0, 256, (20, 1, 8, 8), dtype=np.uint8)
    middle = np.median(model.score(inputs).ood_score)
    model = replace(model, found=Threshold(float(middle), 0, None, 0, 100))
    content = to_onnx(Served(model, None), {})
    assert_same(content, model, inputs)


class AllDetectors(nn.Module):
    """The scores of every detector that needs no gradients, as columns."""

    def __init__(self, features: torch.Tensor) -> None:
        super().__init__()
        self.head = nn.Linear(16, 4)
        made = [one for one in map(load_detector, OWN_DETECTORS) if one.needs != "inputs"]
        self.detectors = nn.ModuleList(one(4, 16) for one in made)
        for detector in self.detectors:
            detector.take_head(3 * self.head.weight, self.head.bias)
            detector.fit(self.read(features), torch.arange(len(features)) % 5 - 1)

    def read(self, features: torch.Tensor) -> Outputs:
        return Outputs(self.head(features), features, features, (features[:, :7], features))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        outputs = self.read(features)
        return torch.stack([detector(outputs) for detector in self.detectors], 1)


@pytest.mark.slow
@torch.no_grad()
def test_every_detector_that_needs_no_gradients_says_the_same() -> None:
    torch.manual_seed(0)
    features = torch.randn(200, 16).relu()
    judge = AllDetectors(features[:150]).eval()
    with export._quiet_exporter():
        program = torch.onnx.export(
            judge,
            (features[:3],),
            input_names=["features"],
            dynamic_shapes=({0: torch.export.Dim("batch")},),
            opset_version=export.OPSET,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    content = program.model_proto.SerializeToString()
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"features": features[150:].numpy()})
    assert found.shape == (50, len(judge.detectors))
    tolerance = export.EXPORT_TOLERANCE
    np.testing.assert_allclose(found, judge(features[150:]).numpy(), atol=tolerance, rtol=tolerance)


@pytest.mark.slow
def test_neighbors_say_the_same() -> None:
    z, labels, _ = blobs([60] * 3, noise=0.3, ood=50)
    held = np.arange(len(z)) % 5 == 0
    model = infer_verdicts(z[~held], labels[~held]).predictor
    assert model is not None
    served = Served(model, None)
    content = to_onnx(served, {})
    assert check(content, served, model.predict).inputs > 30
    assert_same(content, model, z[held].astype(np.float32))


@pytest.mark.slow
@pytest.mark.parametrize("unlike", [False, True])
def test_heads_with_class_means_say_the_same(unlike: bool) -> None:
    """Trained on features that carry classes, and on a constant feature and a tiny class besides."""
    z, labels, _ = blobs([60, 60, 60, 2] if unlike else [60] * 3, noise=0.3, ood=50)
    if unlike:
        z[:, 0] = 3
    held = np.arange(len(z)) % 5 == 0
    config = apply_settings(load_preset("embeddings"), ["training.epochs=2", "cleaning.k=10"])
    model = fit(z[~held], encode_labels(labels[~held]), config, build_method(config)).model
    assert model.class_means is not None
    served = Served(model, None)
    content = to_onnx(served, {})
    assert check(content, served, model.predict).inputs > 30
    assert_same(content, model, z[held].astype(np.float32))


def few(nodes: torch.Tensor) -> KnnModel:
    """A predictor of these nodes, which belong to two classes or none by turns."""
    posterior = torch.eye(3)[torch.arange(len(nodes)) % 3] * 0.9 + 0.1 / 3
    standardizer = Standardizer(np.zeros(nodes.shape[1], np.float32), np.ones(nodes.shape[1], np.float32))
    centers = normalize(torch.randn(3, nodes.shape[1]), dim=1)
    weights = SignWeights(-4.0, 1.2, 0.7, 0.4, 0.3)
    detector = FeatureDetector(nodes.mean(0), torch.eye(nodes.shape[1]), centers, weights, learned=True)
    found = Threshold(0.5, 0.05, 0.5, 0.3, len(nodes))
    return KnnModel([0, 1], standardizer, nodes, posterior, 1.5, detector, found)


@pytest.mark.slow
def test_fewer_nodes_than_neighbors_wanted() -> None:
    generator = torch.Generator().manual_seed(3)
    model = few(normalize(torch.randn(4, 6, generator=generator), dim=1))
    served = Served(model, None)
    content = to_onnx(served, {})
    check(content, served, model.predict)
    inputs = torch.randn(30, 6, generator=generator).numpy()
    inputs[0] = -model.nodes.sum(0).numpy()
    _, score, _ = run_onnx(content, inputs)
    np.testing.assert_allclose(score, model.predict(inputs).ood_score, atol=1e-4)


@pytest.mark.slow
def test_a_model_that_is_off_is_refused() -> None:
    model = trained("small-conv", (1, 8, 8))
    served = Served(model, None)
    shifted = copy.deepcopy(served)
    with torch.no_grad():
        shifted.judge.network.classifier.bias[1] += 0.01
    with pytest.raises(InputError, match=r"disagrees with PyTorch \(by up to 0.00\d, 0.0001 is allowed\)"):
        check(to_onnx(shifted, {}), served, model.predict)
    eager = copy.deepcopy(served)
    eager.judge.threshold -= 0.5  # the same numbers, and other verdicts
    with pytest.raises(InputError, match="disagrees"):
        check(to_onnx(eager, {}), served, model.predict)
    elsewhere = model.prototypes.roll(1, 1)
    detector = copy.deepcopy(model.detector)
    detector.load_state_dict({"prototypes": elsewhere})
    moved = replace(model, prototypes=elsewhere, detector=detector)
    with pytest.raises(InputError, match="disagrees"):
        check(to_onnx(served, {}), served, moved.predict)


@pytest.mark.slow
def test_neighbors_that_all_tie_are_refused() -> None:
    model = few(torch.eye(16)[:1].repeat(30, 1))
    served = Served(model, None)
    with pytest.raises(InputError, match="nearness is left to rounding"):
        check(to_onnx(served, {}), served, model.predict)


def test_what_no_onnx_file_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "LIMIT", 1000)
    with pytest.raises(InputError, match="fewer samples"):
        to_onnx(Served(few(torch.eye(20)), None), {})


@pytest.mark.slow
def test_the_file_is_plain(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    served = Served(trained("small-conv", (1, 8, 8)), None)
    with caplog.at_level(logging.WARNING):
        content = to_onnx(served, {"classes": ["é", 1], "input": "as it is"})
    assert (capfd.readouterr(), caplog.records) == (("", ""), [])
    model = onnx.load_from_string(content)
    onnx.checker.check_model(model, full_check=True)
    assert {p.key: p.value for p in model.metadata_props} == {"classes": '["é", 1]', "input": "as it is"}
    assert model.opset_import[0].version >= 17
    assert str(Path(torch.__file__).parents[1]).encode() not in content
    assert str(Path(export.__file__).parent).encode() not in content
    assert to_onnx(served, {"classes": ["é", 1], "input": "as it is"}) == content
