"""Networks of timm as embedders and as trunks: with a stand-in, and for real where timm can be imported."""

import hashlib
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from graphclean.config import TrainingSettings, load_preset
from graphclean.embed import embedder_version, load_embedder
from graphclean.embed.backbones import Backbone, require_timm
from graphclean.embed.timm import TimmEmbedder
from graphclean.errors import InputError
from graphclean.runs.inputs import recorded_reading
from graphclean.runs.photos import Embedding
from graphclean.runs.schema import SourceRecord
from graphclean.training.inference import describe_network, rebuild_network
from graphclean.training.networks import TimmNetwork, build_network, network_options, require_network
from graphclean.training.views import scale
from tests.builders import Cli
from tests.embed.fakes import MEAN, STD, StandIn, fake_timm


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A stand-in for timm; what models were asked of it."""
    made: list[dict[str, Any]] = []
    for name, module in fake_timm(["tiny", "fixed"], fixed=["fixed"], made=made).items():
        monkeypatch.setitem(sys.modules, name, module)
    return made


def photos(n: int, size: int, channels: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (n, channels, size, size), generator=generator, dtype=torch.uint8)


def test_an_embedder_takes_size_and_scaling_from_the_model(calls: list[dict[str, Any]]) -> None:
    embedder = load_embedder("timm:tiny")
    assert (embedder.name, embedder.size) == ("timm:tiny", 20)
    assert embedder(photos(1, 20)).shape == (1, 6)
    assert calls == [{"name": "tiny", "pretrained": True}]
    batch = photos(3, 20)
    scaled = (batch.float() / 255 - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
    plain = StandIn(3, 0, pretrained=True).eval()
    with torch.no_grad():
        expected = plain.forward_features(scaled).mean((2, 3))
    assert torch.allclose(embedder(batch), expected, atol=1e-5)
    assert not embedder.network.training


@pytest.mark.usefixtures("calls")
def test_an_embedder_works_where_it_is_told() -> None:
    embedder = load_embedder("timm:tiny", torch.device("meta"))
    assert {part.device.type for part in embedder.network.parameters()} == {"meta"}


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize("command", ["clean", "train"])
def test_commands_say_where(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    for row in range(60):
        place = tmp_path / "photos" / ("dark" if row % 2 else "light") / f"{row}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (100 * (row % 2) + row, 0, row)).save(place)
    places: list[str] = []

    class Recording(TimmEmbedder):
        def to(self, device: torch.device) -> TimmEmbedder:  # type: ignore[override]
            places.append(device.type)
            return self

    monkeypatch.setattr("graphclean.embed.TimmEmbedder", Recording)
    options = ["--embedder", "timm:tiny", "--out", "run", "--quiet", "--set", "cleaning.k=5"]
    options += ["--set", "training.epochs=1", "--set", "method.warmup_epochs=1"] if command == "train" else []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "this machine has no CUDA" in cli(command, "photos", *options, "--device", "cuda").err
    assert places == []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert cli(command, "photos", *options, "--device", "cpu").code == 0
    assert cli("predict", "run", "photos", "--device", "cpu", "--quiet").code == 0
    assert places == ["cpu", "cpu"]
    assert cli("data", "cache", "--clear").code == 0
    if command == "clean":
        assert cli(command, "photos", *options, "--out", "other/run").code == 0
        assert places[2:] == ["cuda"]
    else:
        assert cli("train", "photos", "--out", "run", "--resume", "--quiet", "--device", "cpu").code == 0
        assert places[2:] == ["cpu"]


@pytest.mark.usefixtures("calls")
def test_what_cannot_be_had_is_one_line() -> None:
    for name in ("tinny", "hf-hub:someone/model", "local-dir:/etc"):
        with pytest.raises(InputError, match=f"^timm:{name}: timm has no such network; did you mean timm:"):
            load_embedder(f"timm:{name}")
        with pytest.raises(InputError, match="timm has no such network"):
            require_network(f"timm:{name}")
    with pytest.raises(InputError, match=r"^timm:tiny.gone: can't be loaded: no weights$"):
        load_embedder("timm:tiny.gone")
    with pytest.raises(InputError, match="takes square images, not 8 × 9 pixels"):
        build_network("timm:tiny", 2, input_shape=(3, 8, 9))


def test_weights_of_a_file(
    calls: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mine.safetensors"
    for name, said in (("mine.safetensors", "no such file"), ("mine.pth", "are a .safetensors file")):
        with pytest.raises(InputError, match=said):
            load_embedder(f"timm:tiny@{tmp_path / name}")
    file.write_bytes(b"weights")
    spec = f"timm:tiny@{file}"
    assert load_embedder(spec).name == spec
    assert calls[-1]["name"] == "tiny"
    assert calls[-1]["pretrained_cfg_overlay"] == {"file": str(file)}
    load_embedder("timm:tiny")
    assert "pretrained_cfg_overlay" not in calls[-1]
    monkeypatch.setattr("graphclean.embed.version", lambda _: "1.0")
    digest = hashlib.sha256(b"weights").hexdigest()
    assert embedder_version(spec) == f"1.0-{digest}"
    assert embedder_version("timm:tiny") == "1.0"
    described = Embedding(spec, torch.device("cpu")).describe()
    assert described == {"embedder": spec, "weights": digest}
    source = cast(SourceRecord, {"kind": "photos", **described})
    assert recorded_reading(source, tmp_path, torch.device("cpu")).describe() == described
    file.write_bytes(b"others")
    with pytest.raises(InputError, match="has other weights by now; make the run again"):
        recorded_reading(source, tmp_path, torch.device("cpu"))


@pytest.mark.parametrize("error", [ModuleNotFoundError, RuntimeError])
def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, error: type[Exception]) -> None:
    """Beside a torch it was not built for, torchvision raises a RuntimeError."""

    def fail(_: str) -> Any:
        raise error("operator torchvision::nms does not exist")

    monkeypatch.setattr("graphclean.embed.backbones.import_module", fail)
    with pytest.raises(InputError, match=r'timm:x needs the extra "timm": pip install "\.\[timm\]" in the'):
        load_embedder("timm:x")


def test_a_network_undoes_our_scaling_and_does_its_own(calls: list[dict[str, Any]]) -> None:
    torch.manual_seed(0)
    network = build_network("timm:tiny", 4, input_shape=(3, 16, 16), pretrained=True)
    assert calls[-1] == {"name": "tiny", "pretrained": True}
    network.eval()
    batch = photos(5, 16)
    with torch.no_grad():
        out = network(scale(batch))
        expected = Backbone("tiny", pretrained=True).eval()(batch.float())
        assert torch.allclose(network.forward_features(scale(batch)), expected, atol=1e-5)
    assert (out.logits.shape, out.z.shape) == ((5, 4), (5, 64))
    assert torch.allclose(out.z.norm(dim=1), torch.ones(5))
    gray = build_network("timm:tiny", 4, input_shape=(1, 16, 16)).eval()
    assert gray(scale(photos(2, 16, channels=1))).logits.shape == (2, 4)


def test_a_network_from_scratch_may_take_imagenets_statistics(calls: list[dict[str, Any]]) -> None:
    """Its own are those of published weights, which it doesn't start from."""
    settings = TrainingSettings(
        network="timm:tiny", pretrained=False, normalization="imagenet", image_size=20, crop_size=16
    )
    torch.manual_seed(0)
    network = build_network("timm:tiny", 4, input_shape=(3, 20, 20), **network_options(settings)).eval()
    assert calls == [{"name": "tiny", "pretrained": False}]
    assert isinstance(network, TimmNetwork)
    batch = photos(5, 20)
    x = batch[:, :, 2:18, 2:18].float() / 255
    for channel, (mean, std) in enumerate(zip((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), strict=True)):
        x[:, channel] = (x[:, channel] - mean) / std
    with torch.no_grad():
        expected = network.trunk.network.forward_features(x).mean((2, 3))
        features = network(scale(batch)).features
        assert features is not None
        assert torch.allclose(features, expected, atol=1e-4)
    described = describe_network(settings, network)
    assert described["options"] == {"crop_size": 16, "normalization": "imagenet"}
    again = rebuild_network(described, network.state_dict(), 4, (3, 20, 20))
    with torch.no_grad():
        assert torch.equal(again(scale(batch)).logits, network(scale(batch)).logits)


def test_sizes_are_told_to_those_that_must_know(calls: list[dict[str, Any]]) -> None:
    build_network("timm:fixed", 2, input_shape=(3, 32, 32))
    assert calls[-1] == {"name": "fixed", "pretrained": False, "img_size": 32}
    build_network("timm:tiny", 2, input_shape=(3, 32, 32))
    assert "img_size" not in calls[-1]


def test_a_saved_network_is_rebuilt_without_published_weights(calls: list[dict[str, Any]]) -> None:
    settings = TrainingSettings(network="timm:tiny")
    network = build_network("timm:tiny", 3, input_shape=(3, 8, 8), pretrained=True).eval()
    calls.clear()
    again = rebuild_network(describe_network(settings, network), network.state_dict(), 3, (3, 8, 8))
    assert calls == [{"name": "tiny", "pretrained": False}]
    x = scale(photos(2, 8))
    with torch.no_grad():
        assert torch.equal(again(x).logits, network(x).logits)


@pytest.mark.slow
@pytest.mark.usefixtures("calls", "one_thread")
def test_from_images_to_predictions_and_onnx(cli: Cli, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(90) % 3
    images = rng.integers(0, 60, (90, 12, 12, 3))
    images[np.arange(90), :, :, labels] += 150
    np.savez(tmp_path / "x.npz", x=images.astype(np.uint8), y=labels)
    settings = [
        "training.network=timm:tiny",
        "training.epochs=16",
        "method.warmup_epochs=1",
        "training.batch_size=30",
    ]
    settings += ["training.strong_augmentation=off", "graph.k=8", "cleaning.k=10"]
    done = cli("train", "x.npz", *(word for setting in settings for word in ("--set", setting)))
    assert done.code == 0
    assert cli("predict", "runs/x-train", "x.npz", "--quiet", "--out", "p.csv").code == 0
    predicted = np.loadtxt(tmp_path / "p.csv", delimiter=",", skiprows=1, usecols=1)
    assert (predicted == labels).mean() > 0.9
    pytest.importorskip("onnxruntime")
    assert cli("export", "runs/x-train", "--quiet").code == 0


@pytest.fixture
def real_timm() -> None:
    try:
        require_timm("resnet18")
    except InputError as error:
        pytest.skip(f"timm can't be imported here: {error.__cause__}")


@pytest.mark.slow
@pytest.mark.usefixtures("real_timm")
def test_the_papers_network_for_webvision_from_scratch() -> None:
    """Inception-ResNet-v2 as published: 54.38 million parameters with 50 classes, and our projector."""
    settings = load_preset("webvision50").training
    network = build_network(settings.network, 50, input_shape=(3, 320, 320), **network_options(settings))
    assert isinstance(network, TimmNetwork)
    count = sum(part.numel() for part in network.parameters())
    assert count - sum(part.numel() for part in network.projector.parameters()) == 54_383_314
    assert (network.feature_dim, network.crop_size, network.trunk.size) == (1536, 299, 299)
    assert torch.allclose(network.trunk.mean.flatten(), torch.tensor([0.485, 0.456, 0.406]))
    out = network.train()(scale(photos(2, 299)))
    out.logits.sum().backward()
    assert (out.logits.shape, out.z.shape) == ((2, 50), (2, 64))
    assert network.eval()(scale(photos(1, 320))).logits.shape == (1, 50)


@pytest.mark.slow
@pytest.mark.usefixtures("real_timm")
def test_our_resnet50_is_timms() -> None:
    """The same features from the same weights."""
    ours, theirs = (build_network(name, 2, input_shape=(3, 64, 64)) for name in ("resnet50", "timm:resnet50"))
    assert isinstance(theirs, TimmNetwork)
    own = [name for name in ours.state_dict() if name.startswith(("stem.", "stages."))]
    state = dict(theirs.trunk.network.state_dict())

    assert len(own) == len(state)
    ours.load_state_dict(dict(zip(own, state.values(), strict=True)), strict=False)
    x = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    network = theirs.eval().trunk.network
    with torch.no_grad():
        expected = network.forward_head(network.forward_features(x), pre_logits=True)
        torch.testing.assert_close(ours.eval().forward_features(x), expected)


@pytest.mark.usefixtures("real_timm")
@pytest.mark.parametrize(
    "name", ["resnet18", "mobilenetv3_small_050", "vit_tiny_patch16_224", "convnext_atto"]
)
def test_real_networks_embed_and_train(name: str) -> None:
    """Without weights, which would have to be fetched."""
    embedder = TimmEmbedder(name, pretrained=False)
    found = embedder(photos(2, embedder.size))
    assert found.dtype == torch.float32
    network = build_network(f"timm:{name}", 3, input_shape=(3, 64, 64))
    assert isinstance(network, TimmNetwork)
    assert found.shape == (2, network.feature_dim)
    out = network.train()(scale(photos(4, 64)))
    out.logits.sum().backward()
    assert out.logits.shape == (4, 3)
    assert all(torch.isfinite(p.grad).all() for p in network.parameters() if p.grad is not None)
    again = rebuild_network({"name": f"timm:{name}", "options": {}}, network.state_dict(), 3, (3, 64, 64))
    with torch.no_grad():
        assert torch.equal(again(scale(photos(2, 64))).z, network.eval()(scale(photos(2, 64))).z)
