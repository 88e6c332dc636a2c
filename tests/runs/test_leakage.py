"""Samples of other data that are in the training set, too."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from scipy import ndimage

from graphclean._files import read_tensors, write_tensors
from graphclean.cleaning import infer_verdicts
from graphclean.runs.inputs import Source
from graphclean.runs.leakage import find_equal
from graphclean.runs.validation import ValidationSet
from tests.builders import Cli, Refuse
from tests.cleaning.test_duplicates import clouds, near_copies
from tests.runs.test_photos import COLORS


@pytest.fixture
def run(cli: Cli, tmp_path: Path) -> Path:
    """A run of `clean`, next to new data of which two samples of six are old: row 5 to the bit, 9 nearly."""
    z, truth = clouds(200)
    np.savez(tmp_path / "train.npz", z=z, y=truth)
    fresh, _ = clouds(4, seed=9)
    np.savez(tmp_path / "test.npz", z=np.vstack([fresh, z[5], near_copies(z, [9])]))
    assert cli("clean", "train.npz", "--out", "run", "--quiet").code == 0
    return tmp_path / "run"


def test_predictions_name_the_training_sample(cli: Cli, run: Path) -> None:
    done = cli("predict", "run", "test.npz", "--out", "new.parquet")
    found = pd.read_parquet(run.parent / "new.parquet").duplicate_of
    assert found[:4].isna().all()
    assert found[4:].tolist() == ["5", "9"]
    said = "2 of 6 samples also lie in the training set (column duplicate_of): 4 (5), 5 (9)"
    assert said in " ".join((done.out + done.err).split())


@pytest.mark.usefixtures("run")
def test_nothing_is_said_where_all_is_new(cli: Cli, tmp_path: Path) -> None:
    np.savez(tmp_path / "fresh.npz", z=clouds(40, seed=5)[0])
    done = cli("predict", "run", "fresh.npz", "--out", "new.csv")
    assert "training set" not in done.out + done.err
    assert pd.read_csv(tmp_path / "new.csv").duplicate_of.isna().all()
    cli("clean", "train.npz", "--against", "fresh.npz", "--out", "other")
    assert pd.read_csv(tmp_path / "other" / "leakage.csv").empty


def test_test_data_is_compared_as_training_data_is_cleaned(cli: Cli, refuse: Refuse, run: Path) -> None:
    done = cli("clean", "train.npz", "--against", "test.npz", "--out", "checked")
    table = pd.read_csv(run.parent / "checked" / "leakage.csv", dtype=str)
    assert table.to_numpy().tolist() == [["4", "5"], ["5", "9"]]
    said = "2 of 6 samples of test.npz also lie in the training set (leakage.csv): 4 (5), 5 (9)"
    assert said in " ".join((done.out + done.err).split())
    refuse("clean train.npz --against gone.npz --out other", "gone.npz: no such file or folder")
    np.savez(run.parent / "narrow.npz", z=np.ones((3, 2)))
    refuse(
        "clean train.npz --against narrow.npz --out other",
        "these embeddings have 2 columns, the training set has 64",
    )


def test_a_few_training_samples_compare_with_nothing(cli: Cli, tmp_path: Path) -> None:
    z, truth = clouds(8)
    np.savez(tmp_path / "few.npz", z=z, y=truth)
    done = cli("clean", "few.npz", "--against", "few.npz")
    said = "samples of few.npz can't be compared with the training set: it has under 11 distinct ones"
    assert said in " ".join((done.out + done.err).split())


@pytest.mark.parametrize("damage", ["rows", "beyond", "hashes", "ratio"])
def test_damaged_training_samples_are_refused(refuse: Refuse, run: Path, damage: str) -> None:
    tensors, facts = read_tensors(run / "training.safetensors")
    bad = {
        "rows": torch.full_like(tensors["rows"], 10**6),
        "beyond": tensors["beyond"][:-1],
        "hashes": torch.zeros(3, dtype=torch.int64),
    }
    if damage == "ratio":
        write_tensors(run / "training.safetensors", tensors, {"ratio": None})
    else:
        write_tensors(run / "training.safetensors", {**tensors, damage: bad[damage]}, facts)
    refuse("predict run test.npz", "training.safetensors: damaged: it does not fit the run")


def test_a_run_made_before_this_was_kept_still_predicts(cli: Cli, run: Path) -> None:
    (run / "training.safetensors").unlink()
    assert cli("predict", "run", "test.npz", "--out", "new.csv").code == 0
    assert pd.read_csv(run.parent / "new.csv").duplicate_of.isna().all()


def test_validation_samples_that_are_trained_on_are_named() -> None:
    z, truth = clouds(200)
    source = Source(z, truth, ids=[f"t{row}" for row in range(200)])
    inputs = np.vstack([clouds(3, seed=9)[0], z[7:8]]).astype(np.float32)
    validation = ValidationSet(inputs, np.zeros(4, dtype=np.int64), [], list("abcd"), None)
    expected = ["1 of 4 validation samples also lies in the training set: d (t7)"]
    assert validation.leaks(infer_verdicts(z, truth), source) == expected


def test_images_are_compared_to_the_byte() -> None:
    images = np.random.default_rng(0).integers(0, 255, (5, 3, 4, 4)).astype(np.uint8)
    changed = images[[3, 1, 3]]
    changed[1, 0, 0, 0] ^= 1
    assert find_equal(images, changed, list("abcde")) == ["d", None, "d"]


def save_scene(path: Path, color: str, seed: int) -> None:
    """Smooth shapes in a color, as different as photos are."""
    rough = ndimage.gaussian_filter(np.random.default_rng(seed).normal(size=(96, 96, 3)), (9, 9, 0))
    pixels = 0.6 * np.array(COLORS[color]) + 50 + 45 * rough / rough.std()
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path)


@pytest.mark.slow
def test_photos_that_were_saved_again_are_known(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite_pytorch")
    for kind, color in enumerate(COLORS):
        for number in range(16):
            save_scene(tmp_path / "photos" / color / f"{number:02}.png", color, 100 * kind + number)
        save_scene(tmp_path / "test" / f"{color}.png", color, 100 * kind + 50)
    with Image.open(tmp_path / "photos" / "red" / "03.png") as photo:
        photo.save(tmp_path / "test" / "again.jpg", quality=90)
    (tmp_path / "photos" / "blue" / "broken.png").write_bytes(b"")  # rows and samples differ
    assert cli("clean", "photos", "--against", "test", "--out", "run", "--set", "cleaning.k=8").code == 0
    table = pd.read_csv(tmp_path / "run" / "leakage.csv")
    assert table.to_numpy().tolist() == [["again.jpg", "red/03.png"]]
    assert cli("predict", "run", "test", "--out", "new.csv").code == 0
    found = pd.read_csv(tmp_path / "new.csv").set_index("id").duplicate_of
    assert found["again.jpg"] == "red/03.png"
    assert found.drop("again.jpg").isna().all()
