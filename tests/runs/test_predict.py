"""`graphclean predict` from trained runs."""

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from sklearn.metrics import roc_auc_score

import graphclean.runs.photos
from graphclean._files import read_tensors, write_tensors
from graphclean.data.digits import noisy_digits
from graphclean.runs.predict import load_model, predict
from graphclean.training.model import NetworkModel
from tests.builders import Cli, Refuse
from tests.runs.tiny import TINY, save_digits

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def trained(cli: Cli, tmp_path: Path) -> Path:
    """A finished run on images with class names."""
    data = np.load(save_digits(tmp_path))
    names = np.array([f"digit {n}" for n in range(8)])[data["labels"]]
    np.savez(tmp_path / "named.npz", x=data["images"], y=names)
    assert cli("train", "named.npz", *TINY, "--out", "run", "--quiet").code == 0
    return tmp_path / "run"


@pytest.mark.usefixtures("trained")
def test_the_columns_are_those_of_clean_runs(cli: Cli, tmp_path: Path) -> None:
    z = noisy_digits().pixels[:160]
    np.savez(tmp_path / "z.npz", z=z, y=noisy_digits().labels[:160])
    cli("clean", "z.npz", "--out", "cleaned", "--quiet")
    cli("predict", "cleaned", "z.npz", "--out", "a.parquet", "--quiet")
    done = cli("predict", "run", "new.npz", "--out", "b.parquet")
    assert done.code == 0
    theirs, ours = (pd.read_parquet(tmp_path / name) for name in ("a.parquet", "b.parquet"))
    assert list(theirs.columns) == list(ours.columns)
    assert set(ours.predicted_label) <= {f"digit {n}" for n in range(8)}
    assert ours.id.tolist() == [str(row) for row in range(160)]
    assert f"{(ours.verdict == 'ood').sum()} of them rejected as OOD" in done.out


@pytest.mark.usefixtures("trained")
def test_predictions_on_standard_output_are_those_of_the_file(
    cli: Cli, refuse: Refuse, tmp_path: Path
) -> None:
    whole = cli("predict", "run", "new.npz", "--out", "new.csv")
    done = cli("predict", "run", "new.npz", "--out", "-")
    assert (whole.code, done.code) == (0, 0)
    assert done.out == (tmp_path / "new.csv").read_text()
    assert "of them rejected as OOD" in done.err
    assert "of them rejected as OOD" in whole.out
    quiet = cli("predict", "run", "new.npz", "--out", "-", "--quiet")
    assert (quiet.code, quiet.out, quiet.err) == (0, done.out, "")
    assert not (tmp_path / "-").exists()
    assert not (tmp_path / "run" / "predictions").exists()
    refuse("predict run new.npz --out - --json", "--out - prints the predictions, --json what came of them")


def test_predictions_are_scored_by_the_labels_of_the_data(cli: Cli, refuse: Refuse, trained: Path) -> None:
    folder, digits = trained.parent, noisy_digits()
    images, truth = digits.images[160:400], digits.truth[160:400]
    names = np.array([f"digit {n}" for n in range(10)], dtype="U8")[truth]
    names[:5] = ""
    np.savez(folder / "labeled.npz", images=images, labels=names)
    done = cli("predict", "run", "labeled.npz", "--evaluate")
    assert done.code == 0
    table = pd.read_csv(trained / "predictions/labeled.csv", keep_default_na=False)
    assert table.columns[:3].tolist() == ["id", "given_label", "predicted_label"]
    assert table.given_label.tolist() == names.tolist()
    labeled, known = np.arange(len(truth)) >= 5, truth < 8
    right, rejected = table.predicted_label == table.given_label, table.verdict == "ood"
    expected = {
        "known": int((labeled & known).sum()),
        "accuracy": right[labeled & known].mean(),
        "known_rejected": rejected[labeled & known].mean(),
        "ood": int((labeled & ~known).sum()),
        "ood_rejected": rejected[labeled & ~known].mean(),
        "auroc": roc_auc_score(~known[labeled], table.ood_score[labeled]),
    }
    found = json.loads(cli("predict", "run", "labeled.npz", "--evaluate", "--json", "--overwrite").out)
    assert found["scores"].pop("other_labels") == ["digit 8", "digit 9"]
    assert found["scores"] == pytest.approx(expected)
    for name in ("accuracy", "known_rejected", "ood_rejected"):
        assert f"{100 * expected[name]:.1f} %" in done.out
    assert f"Of {expected['ood']} under another label (digit 8, digit 9)" in done.out
    assert "warning" not in done.err
    assert f"(AUROC {expected['auroc']:.3f})" in done.out
    np.savez(folder / "eights.npz", images=images[~known], labels=names[~known])
    strange = cli("predict", "run", "eights.npz", "--evaluate")
    assert "under a known label" not in strange.out
    assert (
        "not one label is a class of the run, so all samples are taken for OOD; its classes: digit 0, "
        in (" ".join(strange.err.split()))
    )
    np.savez(folder / "two.npz", images=images, first=names, second=names[::-1])
    refuse("predict run two.npz --evaluate", "--labels-key")
    assert cli("predict", "run", "two.npz", "--evaluate", "--labels-key", "first").code == 0
    np.savez(folder / "none.npz", images=images, labels=np.full(len(names), ""))
    refuse("predict run none.npz --evaluate", "none.npz: not one label in it; --evaluate needs them")
    np.save(folder / "bare.npy", images)
    refuse(
        "predict run bare.npy --evaluate",
        "there are no labels in it; --evaluate needs labels in the data itself",
    )
    assert "scores" not in json.loads(cli("predict", "run", "new.npz", "--json").out)


def test_batches_and_types_change_nothing(cli: Cli, trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = noisy_digits().images[160:320]
    np.save(trained.parent / "last.npy", np.moveaxis(images, 1, 3))
    cli("predict", "run", "new.npz", "--quiet")
    cli("predict", "run", "last.npy", "--quiet")
    first, last = (pd.read_csv(trained / f"predictions/{name}.csv") for name in ("new", "last"))
    pd.testing.assert_frame_equal(first, last)
    monkeypatch.setattr("graphclean.training.inference.INFERENCE_BATCH", 7)
    cli("predict", "run", "new.npz", "--quiet", "--overwrite")
    pd.testing.assert_frame_equal(first, pd.read_csv(trained / "predictions/new.csv"), rtol=1e-4)


def test_refused(refuse: Refuse, trained: Path) -> None:
    folder = trained.parent
    digits = noisy_digits()
    np.savez(folder / "features.npz", z=digits.pixels[:20])
    np.savez(folder / "wide.npz", x=np.zeros((5, 8, 16), np.uint8))
    np.savez(folder / "color.npz", x=np.zeros((5, 8, 8, 3), np.uint8))
    np.savez(folder / "deep.npz", x=digits.images[:5].astype(np.uint16) * 257)
    (folder / "table.csv").write_text("a,b\n1,2\n")
    cases = {
        "features.npz": "run was made from images, so an array of images (.npz, .npy) is needed",
        "table.csv": "run was made from images",
        "wide.npz": "these images are 1 × 8 × 16 (channels first), the run was trained on 1 × 8 × 8",
        "color.npz": "these images are 3 × 8 × 8",
        "deep.npz": "but the run was trained on 0 to 255",
        "absent.npz": "absent.npz: no such file",
        "new.npz --out p.txt": "predictions are written as .csv or .parquet",
    }
    for arguments, message in cases.items():
        refuse(f"predict run {arguments}", message)


@pytest.mark.slow
def test_damaged_and_mixed_runs_are_one_line(cli: Cli, trained: Path) -> None:
    folder = trained.parent
    cli("train", "digits.npz", *TINY, "--out", "other", "--quiet")
    mixed = (folder / "other" / "prototypes.safetensors").read_bytes()
    model = folder / "other" / "model.safetensors"
    whole = model.read_bytes()
    tensors, facts = read_tensors(model)
    write_tensors(model, tensors, facts | {"network": {**facts["network"], "name": "small-cone"}})
    assert "not those of a training run" in cli("predict", "other", "new.npz").err
    first = "network.trunk.0.weight"
    write_tensors(model, {first + "s": tensors.pop(first)} | tensors, facts)
    assert "not those of a training run" in cli("predict", "other", "new.npz").err
    model.write_bytes(whole.replace(b"small-conv", b"small-cone"))
    assert "the checksum does not match" in cli("predict", "other", "new.npz").err
    model.write_bytes(whole)
    for name, field, value, said in (
        ("model", "network", {"name": 7}, "network.name is not text"),
        ("model", "classes", [[]], "classes.0 is not a whole number or text"),
        ("model", "classes", [1] * 8, "the classes are not names or numbers, each of them once"),
        ("prototypes", "threshold", "x", "threshold is not a number"),
    ):
        path = folder / "other" / f"{name}.safetensors"
        before = path.read_bytes()
        tensors, facts = read_tensors(path)
        write_tensors(path, tensors, facts | {field: value})
        done = cli("predict", "other", "new.npz")
        assert done.code == 2
        assert done.err.endswith(f": {said}\n")
        path.write_bytes(before)
    model.write_bytes(whole[: len(whole) // 2])
    assert "damaged" in cli("predict", "other", "new.npz").err
    model.unlink()
    assert "no model.safetensors in it: files are missing" in cli("predict", "other", "new.npz").err
    (trained / "model.safetensors").write_bytes(mixed)
    assert "not those of a training run: 'classes'" in cli("predict", "run", "new.npz").err
    config = json.loads((folder / "other" / "config.json").read_text())
    del config["source"]["pixels"]
    model.write_bytes(whole)
    (folder / "other" / "config.json").write_text(json.dumps(config))
    assert "does not record how pixels are scaled" in cli("predict", "other", "new.npz").err
    config["source"]["kind"] = "sounds"
    (folder / "other" / "config.json").write_text(json.dumps(config))
    assert "does not record the kind of its data" in cli("predict", "other", "new.npz").err


@pytest.mark.parametrize(
    "changed",
    [
        {"posterior": lambda t: t * float("nan")},
        {"posterior": lambda t: t[:, 1:]},
        {"nodes": lambda t: t[:-1]},
        {"mean": lambda t: t[:-1]},
        {"scale": lambda t: t[:1]},
        {"scale": lambda t: t.long()},
        {"classes": lambda names: names[1:]},
        {"classes": lambda names: [*names[1:], None]},
        {"classes": lambda names: [*names[1:], names[1]]},
        {"temperature": str},
        {"detector.root": lambda t: t[:, 1:]},
        {"found": lambda found: {**found, "threshold": None}},
    ],
)
def test_a_model_of_clean_that_does_not_fit_together_is_refused(
    cli: Cli, tmp_path: Path, changed: Any
) -> None:
    digits = noisy_digits()
    np.savez(tmp_path / "z.npz", z=digits.pixels[:160], y=digits.labels[:160])
    cli("clean", "z.npz", "--out", "run", "--quiet")
    path = tmp_path / "run" / "model.safetensors"
    tensors, facts = read_tensors(path)
    for name, change in changed.items():
        of = tensors if name in tensors else facts
        of[name] = change(of[name])
    write_tensors(path, tensors, facts)
    done = cli("predict", "run", "z.npz")
    assert done.code == 2
    assert "the model files are not those of a clean run: " in done.err


def test_the_model_can_be_loaded_from_python(trained: Path) -> None:
    model = load_model(trained)
    assert isinstance(model, NetworkModel)
    table = model.predict(noisy_digits().images[:3], ids=["a", "b", "c"])
    assert table.id.tolist() == ["a", "b", "c"]
    assert not model.network.training


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_photos(
    cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Inputs are 12 kB a photo here; what is kept of one is its path and a row of the table."""
    rng = np.random.default_rng(0)
    for number in range(40):
        place = tmp_path / "photos" / ("dark" if number % 2 else "light") / f"{number}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 60, (8, 8, 3)) + (0 if number % 2 else 150)
        Image.fromarray(pixels.astype(np.uint8)).save(place)
    settings = [
        "training.network=small-conv",
        "training.image_size=64",
        "training.epochs=1",
        "method.warmup_epochs=1",
        "cleaning.k=5",
    ]
    words = [word for setting in settings for word in ("--set", setting)]
    assert cli("train", "photos", "--preset", "photos", *words, "--out", "run", "--quiet").code == 0
    monkeypatch.setattr(graphclean.runs.photos, "PIECE", 64)
    peaks = {}
    for count in (150, 750):
        (tmp_path / f"new{count}").mkdir()
        for number in range(count):
            (tmp_path / f"new{count}" / f"{number}.png").hardlink_to(tmp_path / "photos/dark/1.png")
        tracemalloc.start()
        found = predict(tmp_path / "run", tmp_path / f"new{count}", device="cpu")
        peaks[count] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert found.out is not None
        table = pd.read_csv(found.out)
        assert table.id.nunique() == len(table) == found.samples == count
        assert table.ood_score.nunique() <= 3  # all are one photo; the size of a piece may move the last bits
    assert peaks[750] - peaks[150] < 600 * 4_000
