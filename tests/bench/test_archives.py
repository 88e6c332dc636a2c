"""Class folders, and archives of them that are read in place."""

import io
import os
from pathlib import Path

import numpy as np
import pytest

from graphclean.bench.archives import open_members, read_members, sort_members
from graphclean.bench.registry import SETS
from graphclean.data.resize import to_array
from graphclean.errors import InputError
from tests.data.builders import encode, pixels, tar, tiny_files, write_files, zipped

TINY, PLACES = SETS["tinyimagenet"].folders, SETS["places365"].folders


def forms(tmp_path: Path, files: dict[str, bytes]) -> list[Path]:
    """The same files as a folder, a .zip and a .tar."""
    (tmp_path / "set.zip").write_bytes(zipped(files))
    (tmp_path / "set.tar").write_bytes(tar(files, "w"))
    return [write_files(tmp_path / "set", files), tmp_path / "set.zip", tmp_path / "set.tar"]


def test_tinyimagenet_in_its_own_layout(tmp_path: Path) -> None:
    from PIL import Image

    files = tiny_files()
    for path in forms(tmp_path, files):
        train, val = (read_members(path, split, TINY) for split in ("train", "val"))
        assert train.classes == val.classes == ("n00", "n01")
        assert train.labels.tolist() == [0, 0, 0, 1, 1, 1]
        assert val.labels.tolist() == [1, 0]
        names = sorted(name for name in files if "/train/" in name and name.endswith("JPEG"))
        expected = [to_array(Image.open(io.BytesIO(files[name]))) for name in names]
        assert np.array_equal(train.images, np.stack(expected))


def test_validation_images_in_class_folders(tmp_path: Path) -> None:
    image = encode(pixels(1)[0])
    write_files(tmp_path, {"val/n01/a.png": image, "val/n00/images/b.png": image})
    found = read_members(tmp_path, "val", TINY)
    assert found.classes == ("n00", "n01")
    assert found.labels.tolist() == [0, 1]


def test_places_flat_has_no_labels(tmp_path: Path) -> None:
    images = pixels(2, side=256)
    files = {f"val_256/Places365_val_0000000{i}.jpg": encode(images[i], "JPEG") for i in range(2)}
    for path in forms(tmp_path, files):
        found = read_members(path, "val", PLACES)
        assert found.images.shape == (2, 3, 32, 32)
        assert found.labels.tolist() == [-1, -1]
        assert found.classes == ()


@pytest.mark.parametrize("above", ["", "val/", "val_256/", "val/256/", "places365_standard/val/"])
def test_places_in_class_folders(tmp_path: Path, above: str) -> None:
    image = encode(pixels(1)[0])
    write_files(tmp_path, {f"{above}airfield/a.jpg": image, f"{above}bar/indoor/b.jpg": image})
    found = read_members(tmp_path, "val", PLACES)
    assert found.classes == ("airfield", "bar/indoor")
    assert found.labels.tolist() == [0, 1]


def test_what_is_no_image_or_hidden_is_passed_over(tmp_path: Path) -> None:
    image = encode(pixels(1)[0])
    files = {
        "val/a/x.png": image,
        "val/a/notes.txt": b"",
        "val/.b/x.png": image,
        "__MACOSX/val/a/x.png": image,
    }
    for path in forms(tmp_path, files):
        with open_members(path) as members:
            found = sort_members(members, TINY)
        assert [(member.name, member.label) for member in found["val"]] == [("val/a/x.png", "a")]


def test_links_that_leave_the_folder_are_not_followed(tmp_path: Path) -> None:
    image = encode(pixels(1)[0])
    write_files(tmp_path, {"set/val/a/x.png": image, "outside/y.png": image})
    os.symlink(tmp_path / "outside" / "y.png", tmp_path / "set" / "val" / "a" / "y.png")
    os.symlink(tmp_path / "outside", tmp_path / "set" / "val" / "b")
    os.symlink(tmp_path / "set" / "val" / "a" / "x.png", tmp_path / "set" / "val" / "a" / "z.png")
    assert read_members(tmp_path / "set", "val", TINY).labels.tolist() == [0, 0]


def test_damage_is_named(tmp_path: Path) -> None:
    for path in forms(tmp_path, tiny_files())[1:]:
        with pytest.raises(InputError, match="no images of the test split"):
            read_members(path, "test", TINY)
        path.write_bytes(b"something else")
        with pytest.raises(InputError, match=rf"{path.name}: can't be read: damaged"):
            read_members(path, "train", TINY)
    with pytest.raises(InputError, match=r"gone\.zip: can't be read: No such file"):
        read_members(tmp_path / "gone.zip", "train", TINY)
    write_files(tmp_path / "bad", {"train/a/x.png": b"no image"})
    with pytest.raises(InputError, match=r"bad: train/a/x\.png: not an image"):
        read_members(tmp_path / "bad", "train", TINY)
