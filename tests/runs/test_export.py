"""`graphclean export`: the numbers of `graphclean predict`, without graphclean."""

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from graphclean._files import load_tensors, read_tensors, save_tensors, write_tensors
from graphclean.data.digits import noisy_digits
from graphclean.errors import extra
from graphclean.runs import export as exporting
from graphclean.runs.onnx import to_onnx
from tests.builders import Cli
from tests.conftest import states
from tests.runs.tiny import TINY, save_digits

onnxruntime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")
pytest.importorskip("onnxscript", reason="needs the extra onnx")
pytestmark = pytest.mark.usefixtures("one_thread")

ROOT = Path(__file__).parents[2]
SERVE = ROOT / "examples" / "serve.py"
ALONE = (
    "import runpy, sys; sys.modules.update(graphclean=None, torch=None); "
    "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
)
"""Runs a script where neither graphclean nor torch can be imported."""


@pytest.fixture
def trained(cli: Cli, tmp_path: Path) -> Path:
    save_digits(tmp_path)
    assert cli("train", "digits.npz", *TINY, "--out", "run", "--quiet").code == 0
    return tmp_path / "run"


def open_model(path: Path) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def metadata(path: Path) -> dict[str, str]:
    return dict(open_model(path).get_modelmeta().custom_metadata_map)


def assert_as_predicted(path: Path, inputs: np.ndarray, table: pd.DataFrame) -> None:
    session = open_model(path)
    (given,) = session.get_inputs()
    probabilities, score, rejected = session.run(None, {given.name: inputs})
    classes = json.loads(metadata(path)["classes"])
    assert [classes[best] for best in probabilities.argmax(1)] == table.predicted_label.tolist()
    np.testing.assert_allclose(probabilities.max(1), table.probability, atol=1e-4)
    np.testing.assert_allclose(score, table.ood_score, atol=1e-4)
    assert rejected.tolist() == (table.verdict == "ood").tolist()


@pytest.mark.slow
def test_a_network_for_images(cli: Cli, trained: Path) -> None:
    done = cli("export", "run")
    assert done.code == 0
    path = trained / "model.onnx"
    threshold = json.loads((trained / "summary.json").read_text())["detector"]["threshold"]
    for words in (
        f"Model: run/model.onnx ({path.stat().st_size / 2**20:.1f} MiB)",
        "images         uint8 (N, 1, 8, 8): gray, 0 to 255",
        "probabilities  float32 (N, 8)",
        "ood_score      float32 (N,), 1 − largest cosine with a class prototype: larger is more OOD",
        f"rejected       bool (N,), ood_score > {threshold:.3f}: OOD",
        "agree on 33 inputs",
        "Serve: onnxruntime.InferenceSession('run/model.onnx').run(None, {'images': x})",
    ):
        assert words in done.out
    cli("predict", "run", "new.npz", "--quiet")
    table = pd.read_csv(trained / "predictions" / "new.csv")
    assert_as_predicted(path, np.load(trained.parent / "new.npz")["images"], table)
    about = metadata(path)
    assert json.loads(about["classes"]) == list(range(8))
    assert json.loads(about["ood_threshold"]) == threshold
    assert json.loads(about["pixels"])["kind"] == "bytes"
    assert about["kind"] == "train"
    assert about["graphclean"] == json.loads((trained / "config.json").read_text())["graphclean"]


@pytest.mark.slow
def test_a_run_without_a_detector_is_said_to_have_none(cli: Cli, trained: Path) -> None:
    assert json.loads(cli("export", "run", "--json", "--out", "m.onnx").out)["warnings"] == []
    for name, key in (("prototypes", "prototypes"), ("model", "detector.prototypes")):
        tensors, facts = read_tensors(trained / f"{name}.safetensors")
        none = {key: torch.zeros_like(tensors[key])}
        write_tensors(trained / f"{name}.safetensors", tensors | none, facts)
    done = cli("export", "run")
    assert "warning: not one sample was selected as clean: there is no detector" in done.err
    cli("predict", "run", "new.npz", "--quiet")
    table = pd.read_csv(trained / "predictions" / "new.csv")
    assert set(table.verdict) == {"known"}
    assert_as_predicted(trained / "model.onnx", np.load(trained.parent / "new.npz")["images"], table)


@pytest.mark.slow
def test_json_and_scaled_pixels(cli: Cli, tmp_path: Path) -> None:
    data = np.load(save_digits(tmp_path))
    np.savez(tmp_path / "deep.npz", x=data["images"].astype(np.uint16) * 4, y=data["labels"])
    cli("train", "deep.npz", *TINY, "--out", "run", "--quiet")
    done = cli("export", "run", "--out", "new/deep.onnx", "--json")
    told = json.loads(done.out)
    assert told["out"] == "new/deep.onnx"
    assert told["bytes"] == (tmp_path / "new" / "deep.onnx").stat().st_size
    assert told["input"]["name"] == "images"
    assert told["input"]["expects"].endswith("the training images' 0 to 1020, scaled to that and rounded")
    assert list(told["outputs"]) == ["probabilities", "ood_score", "rejected"]
    assert told["checked"]["inputs"] == 33
    assert 0 <= told["checked"]["largest_difference"] <= 1e-4
    assert metadata(tmp_path / "new" / "deep.onnx")["input"] == told["input"]["expects"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [["clean"], ["train", "--set", "training.epochs=2", "--set", "method.warmup_epochs=1"]]
)
def test_features_are_taken_raw(cli: Cli, tmp_path: Path, command: list[str]) -> None:
    digits = noisy_digits(noise=0.3)
    z = digits.pixels[:400].astype(np.float32) * 1000 + 5
    table = pd.DataFrame(z, columns=[f"pixel {n}" for n in range(64)])
    table[:300].assign(label=[f"digit {n}" for n in digits.labels[:300]]).to_parquet(tmp_path / "z.parquet")
    table[300:].to_parquet(tmp_path / "new.parquet")
    assert cli(command[0], "z.parquet", *command[1:], "--out", "run", "--quiet").code == 0
    done = cli("export", "run")
    assert "features       float32 (N, 64): features as they were given in training, not scaled" in done.out
    assert "InferenceSession('run/model.onnx').run(None, {'features': x})" in done.out
    cli("predict", "run", "new.parquet", "--out", "p.csv", "--quiet")
    assert_as_predicted(tmp_path / "run" / "model.onnx", z[300:], pd.read_csv(tmp_path / "p.csv"))
    about = metadata(tmp_path / "run" / "model.onnx")
    assert json.loads(about["columns"]) == [f"pixel {n}" for n in range(64)]
    detector = json.loads((tmp_path / "run" / "summary.json").read_text())["detector"]
    assert json.loads(about["ood_threshold"]) == detector["threshold"]


@pytest.mark.slow
@pytest.mark.parametrize("out", ["my model.onnx", 'it\'s "ours" [b].onnx'])
def test_the_line_to_serve_can_be_pasted(cli: Cli, trained: Path, out: str) -> None:
    digits = noisy_digits(noise=0.3)
    np.savez(trained.parent / "z.npz", z=digits.pixels[:200], y=digits.labels[:200])
    cli("clean", "z.npz", "--out", "cleaned", "--quiet")
    for run, x in (("run", digits.images[200:210]), ("cleaned", digits.pixels[200:210])):
        done = cli("export", run, "--out", out, "--overwrite")
        line = done.out.splitlines()[-1].removeprefix("Serve: ")
        probabilities, _, _ = eval(line, {"onnxruntime": onnxruntime, "x": x})
        assert probabilities.shape == (10, 8)


SHORT = ("--set", "training.epochs=2", "--set", "method.warmup_epochs=1")
WHOLE = ("--preset", "photos", "--set", "training.network=small-conv", "--set", "training.image_size=32")


@pytest.mark.slow
@pytest.mark.skipif(not SERVE.exists(), reason="needs the source tree")
@pytest.mark.parametrize(
    ("command", "size", "fit"),
    [
        (["clean"], 160, "squashed to 160 × 160"),
        (["train", *SHORT], 160, "squashed to 160 × 160"),
        (["train", *SHORT, *WHOLE], 32, "their center square resized to 32 × 32"),
    ],
)
def test_photos_are_served_without_graphclean(
    cli: Cli, tmp_path: Path, command: list[str], size: int, fit: str
) -> None:
    pytest.importorskip("efficientnet_lite_pytorch", reason="needs the extra photos")
    from tests.runs.test_photos import COLORS, paint

    rng = np.random.default_rng(0)
    for color in COLORS:
        for number in range(16):
            paint(tmp_path / "photos" / color / f"{number:02}.png", color, rng)
        paint(tmp_path / "new" / f"{color}.png", color, rng)
    odd = Image.fromarray(rng.integers(0, 256, (90, 41, 4), dtype=np.uint8))
    odd.save(tmp_path / "new" / "transparent.png")
    upright = Image.Exif()
    upright[0x0112] = 6
    odd.convert("RGB").save(tmp_path / "new" / "turned.jpg", exif=upright)
    cli(command[0], "photos", *command[1:], "--set", "cleaning.k=8", "--out", "run", "--quiet")
    done = cli("export", "run", "--out", "m.onnx")
    assert f"uint8 (N, 3, {size}, {size}): photos upright, RGB" in done.out
    assert fit in done.out
    cli("predict", "run", "new", "--out", "p.csv", "--quiet")
    table = pd.read_csv(tmp_path / "p.csv")
    photos = [f"new/{name}" for name in table.id]
    served = subprocess.run(
        [sys.executable, "-c", ALONE, str(SERVE), "m.onnx", *photos],
        cwd=tmp_path, check=True, capture_output=True, text=True,
    )  # fmt: skip
    lines = served.stdout.splitlines()
    assert len(lines) == len(table) == 5
    for line, photo, row in zip(lines, photos, table.itertuples(), strict=True):
        head, probability, score = line.rsplit(" ", 2)
        assert head == f"{photo} {'none' if row.verdict == 'ood' else row.predicted_label}"
        assert float(probability) == pytest.approx(row.probability, abs=1e-4)
        assert float(score) == pytest.approx(row.ood_score, abs=1e-4)


@pytest.mark.slow
def test_refused(cli: Cli, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = trained.parent
    (folder / "there.onnx").write_bytes(b"mine")
    (folder / "folder.onnx").mkdir()
    (folder / "empty").mkdir()
    before = states(folder)

    def refused(*arguments: str) -> str:
        done = cli("export", *arguments)
        assert (done.code, done.out) == (2, "")
        lines = [line for line in done.err.splitlines() if line != "exporting, and comparing with PyTorch …"]
        assert len(lines) == 1
        assert states(folder) == before
        return str(lines[0])

    assert "absent: no such run folder" in refused("absent")
    assert "empty: not a run folder" in refused("empty")
    assert "there.onnx: the file exists; use --overwrite" in refused("run", "--out", "there.onnx")
    assert "there is a folder of that name" in refused("run", "--out", "folder.onnx", "--overwrite")
    assert "is written as .onnx" in refused("run", "--out", "model.pt")
    assert "can't be written: " in refused("run", "--out", "there.onnx/model.onnx")
    assert "can't be written: File name too long" in refused("run", "--out", f"{'x' * 300}.onnx")
    assert (folder / "there.onnx").read_bytes() == b"mine"

    real = to_onnx

    def spoiled(served: Any, about: Any) -> Any:
        other = copy.deepcopy(served)
        with torch.no_grad():
            other.judge.network.classifier.bias += torch.arange(8)
        return real(other, about)

    monkeypatch.setattr(exporting, "to_onnx", spoiled)
    assert "disagrees with PyTorch" in refused("run", "--out", "elsewhere/model.onnx")
    assert "disagrees with PyTorch" in refused("run", "--out", "there.onnx", "--overwrite")
    assert (folder / "there.onnx").read_bytes() == b"mine"

    for name in ("onnx", "onnxscript", "onnxruntime"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, name, None)
            assert refused("run").endswith(extra("onnx"))


@pytest.mark.slow
def test_damaged_runs_are_one_line(cli: Cli, trained: Path) -> None:
    def refused() -> str:
        done = cli("export", "run")
        assert (done.code, done.out) == (2, "")
        assert done.err.count("\n") == 1
        assert not (trained / "model.onnx").exists()
        return str(done.err)

    config, summary = ((trained / name).read_text() for name in ("config.json", "summary.json"))
    (trained / "summary.json").unlink()
    assert "its training has not finished" in refused()
    (trained / "summary.json").write_text(summary)
    (trained / "config.json").write_text(json.dumps({**json.loads(config), "format": 99}))
    assert "which is newer; upgrade graphclean" in refused()
    changed = json.loads(config)
    del changed["source"]["pixels"]
    (trained / "config.json").write_text(json.dumps(changed))
    assert "run: damaged: config.json does not record how pixels are scaled" in refused()
    (trained / "config.json").write_text(config)
    model = trained / "model.safetensors"
    whole = model.read_bytes()
    model.write_bytes(whole.replace(b"small-conv", b"small-cone"))
    assert "the checksum does not match" in refused()
    model.write_bytes(whole)
    tensors, facts = load_tensors(model)
    facts["network"]["name"] = "small-cone"
    save_tensors(model, tensors, facts)
    assert "small-cone: no such network" in refused()
    model.unlink()
    assert "no model.safetensors in it" in refused()
    model.write_bytes(whole)
    assert cli("export", "run", "--quiet").code == 0
    assert cli("export", "run", "--quiet", "--overwrite").code == 0
