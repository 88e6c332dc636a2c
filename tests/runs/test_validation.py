"""Samples whose labels are known to be right."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from graphclean.data.tables import Names
from graphclean.errors import InputError
from graphclean.runs.inputs import Source
from graphclean.runs.validation import ValidationSet, read_validation

CPU = torch.device("cpu")
LABELS = ["ant", "None", "ant", "None"]
FEATURES = Source(np.eye(4), LABELS)
IMAGES = Source(np.zeros((4, 3, 8, 8), np.uint8), LABELS)
DESCRIBED: dict[str, dict[str, Any]] = {
    "features": {"kind": "features"},
    "images": {"kind": "images", "pixels": {"kind": "bytes", "low": 0, "high": 255}},
    "photos": {"kind": "photos", "size": 8},
}


def read(path: Path, kind: str, **names: str) -> ValidationSet:
    source = FEATURES if kind == "features" else IMAGES
    return read_validation(path, source, DESCRIBED[kind], Names(**names), labels_of=Path("data"), device=CPU)


def test_validation_samples_without_a_label_are_of_no_class(tmp_path: Path) -> None:
    """Also where a class is called None."""
    np.savez(tmp_path / "t.npz", z=np.eye(4), y=np.array(["None", "", "ant", "bee"]))
    found = read(tmp_path / "t.npz", "features")
    assert found.codes.tolist() == [0, 1]
    np.testing.assert_array_equal(found.inputs, np.eye(4)[[0, 2]])
    assert found.notes == ["2 validation samples have a class that the data lacks, and are left out"]


def save_unlabeled(folder: Path) -> None:
    """Samples of every form, without labels or with labels under an unusual name."""
    np.save(folder / "z.npy", np.eye(4))
    np.savez(folder / "z.npz", z=np.eye(4))
    np.save(folder / "x.npy", IMAGES.inputs)
    np.savez(folder / "x.npz", x=IMAGES.inputs)
    pd.DataFrame(np.eye(4), columns=list("abcd")).assign(kind=LABELS).to_csv(folder / "z.csv", index=False)
    (folder / "flat").mkdir()
    for number in range(4):
        Image.new("RGB", (8, 8)).save(folder / "flat" / f"{number}.png")
    paths = [f"flat/{number}.png" for number in range(4)]
    pd.DataFrame({"path": paths, "kind": LABELS}).to_csv(folder / "photos.csv", index=False)
    photos = [(folder / path).read_bytes() for path in paths]
    pd.DataFrame({"image": photos, "kind": LABELS}).to_parquet(folder / "photos.parquet")


@pytest.mark.parametrize(
    ("name", "kind", "names", "message"),
    [
        (
            "z.npy",
            "features",
            {},
            "there are no labels in it; validation samples need theirs in the same file",
        ),
        ("z.npz", "features", {}, "validation samples need theirs in the same file, a .npz"),
        ("x.npy", "images", {"images_key": "x"}, "validation samples need theirs in the same file, a .npz"),
        ("x.npz", "images", {}, "validation samples need theirs in the same file, a .npz"),
        (
            "z.csv",
            "features",
            {},
            "(there are: a, b, c, d, kind); validation samples need theirs in a column called",
        ),
        (
            "photos.csv",
            "photos",
            {},
            "(there are: path, kind); validation samples need theirs in a column called",
        ),
        (
            "photos.parquet",
            "photos",
            {},
            "(there are: image, kind); validation samples need theirs in a column",
        ),
        ("flat", "photos", {}, "at least one is needed, as a folder of photos"),
        (
            "flat/1.png",
            "photos",
            {},
            "a single photo has no label; give the folder of the class folders",
        ),
    ],
)
def test_validation_samples_bring_their_labels(
    tmp_path: Path, name: str, kind: str, names: dict[str, str], message: str
) -> None:
    """`--labels` and `--label-column` are told of the data, and may not fit these."""
    save_unlabeled(tmp_path)
    with pytest.raises(InputError) as caught:
        read(tmp_path / name, kind, **names)
    assert message in str(caught.value)
    assert "--label" not in str(caught.value)


def test_names_of_another_form_of_data_are_no_hindrance(tmp_path: Path) -> None:
    np.savez(tmp_path / "z.npz", z=np.eye(4), y=np.array(LABELS))
    pd.DataFrame(np.eye(4), columns=list("abcd")).assign(label=LABELS).to_csv(tmp_path / "z.csv", index=False)
    for name, names in (
        ("z.npz", {"label_column": "kind", "id_column": "key"}),
        ("z.csv", {"labels_key": "y"}),
    ):
        assert read(tmp_path / name, "features", **names).codes.tolist() == [1, 0, 1, 0]
