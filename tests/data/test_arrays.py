"""Images as arrays: all usual types and axis orders give the same set, and what can't be told is refused."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from graphclean.data.arrays import Pixels, holds_images, read_images, to_bytes
from graphclean.data.tables import Names
from graphclean.errors import InputError

RNG = np.random.default_rng(0)
GRAY = RNG.integers(0, 256, (7, 9, 8), dtype=np.uint8)
GRAY[0, 0, :2] = 0, 255  # the whole range is used
COLOR = RNG.integers(0, 256, (7, 3, 9, 8), dtype=np.uint8)
COLOR[0, 0, 0, :2] = 0, 255
LAST = np.moveaxis(COLOR, 1, 3)


@pytest.mark.parametrize(
    "array",
    [
        GRAY,
        GRAY[:, None],
        GRAY[..., None],
        GRAY.astype(np.int64),
        GRAY.astype(np.uint16) * 257,
        GRAY.astype(np.uint32) * 2**20,
        GRAY / 255,
        (GRAY / 255).astype(np.float32)[..., None],
        GRAY.astype(np.float64),
        GRAY.astype(np.float16)[:, None],
    ],
)
def test_gray_in_every_form_is_the_same_set(array: np.ndarray) -> None:
    images, _, _ = to_bytes(array)
    assert images.dtype == np.uint8
    np.testing.assert_array_equal(images, GRAY[:, None])


@pytest.mark.parametrize(
    "array",
    [
        COLOR,
        LAST,
        COLOR.astype(np.uint16) * 257,
        LAST / 255,
        np.concatenate([LAST, np.full((7, 9, 8, 1), 255, np.uint8)], 3),
        np.concatenate([COLOR, np.full((7, 1, 9, 8), 255, np.uint8)], 1),
    ],
)
def test_color_in_every_form_is_the_same_set(array: np.ndarray) -> None:
    np.testing.assert_array_equal(to_bytes(array)[0], COLOR)


def test_transparency_becomes_white_as_in_photos() -> None:
    rgba = RNG.integers(0, 256, (5, 6, 8, 4), dtype=np.uint8)
    images, _, notes = to_bytes(rgba)
    for row, image in zip(rgba, images, strict=True):
        white = Image.new("RGBA", (8, 6), "white")
        oracle = np.asarray(Image.alpha_composite(white, Image.fromarray(row)).convert("RGB"))
        assert np.abs(np.moveaxis(image, 0, 2).astype(int) - oracle).max() <= 1  # Pillow rounds its own way
    assert notes == ["transparent pixels were painted white"]


def test_masks_deep_and_signed_values() -> None:
    mask = RNG.random((4, 6, 6)) < 0.5
    np.testing.assert_array_equal(to_bytes(mask)[0][:, 0], mask * 255)
    twelve = RNG.integers(0, 4096, (4, 6, 6), dtype=np.uint16)
    twelve[0, 0, 0] = 4095
    images, pixels, notes = to_bytes(twelve)
    assert pixels == Pixels("integers", 0, 4095)
    np.testing.assert_array_equal(images[:, 0], np.rint(twelve * (255 / 4095)))
    assert notes == ["uint16 values from 0 to 4095 were scaled to 0 to 255"]
    signed, pixels, _ = to_bytes(np.array([[[-1000, 0], [3000, 500]]] * 2, dtype=np.int16))
    assert pixels == Pixels("integers", -1000, 3000)
    np.testing.assert_array_equal(signed[0, 0], [[0, 64], [255, 96]])


def test_many_blocks_are_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = to_bytes(LAST / 255)[0]
    monkeypatch.setattr("graphclean.data.arrays.SCAN_BLOCK", 2)
    np.testing.assert_array_equal(to_bytes(LAST / 255)[0], whole)


def test_new_images_are_scaled_as_the_training_images_were() -> None:
    dark = np.full((2, 6, 6), 100, dtype=np.uint16)
    trained = Pixels("integers", 0, 4095)
    images, pixels, notes = to_bytes(dark, trained)
    assert (images == 6).all()
    assert pixels == trained
    assert notes == ["the brightest pixel is 6 of 255: should the values be scaled?"]
    assert (to_bytes(np.full((1, 6, 6), 9999, dtype=np.uint16), trained)[0] == 255).all()
    assert (to_bytes(np.full((1, 6, 6), 3.0), Pixels("fractions", 0, 255))[0] == 3).all()
    for array, before in [
        (np.full((1, 6, 6), 200.0), Pixels("fractions", 0, 1)),
        (np.full((1, 6, 6), 0.7), Pixels("fractions", 0, 255)),
        (np.full((1, 6, 6), 4095), Pixels("bytes", 0, 255)),
    ]:
        with pytest.raises(InputError, match="but the run was trained on 0 to"):
            to_bytes(array, before)
    # Another type than in training stands for itself.
    assert (to_bytes(np.full((1, 6, 6), 200, dtype=np.uint8), Pixels("fractions", 0, 1))[0] == 200).all()


SPOILED = GRAY / 255
SPOILED[[1, 2, 4, 6], 0, 0] = np.nan


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (SPOILED, r"NaN or infinite values in 4 of 7 images \(counted from 0: 1, 2, 4, …\)"),
        (GRAY / 16.0, "neither 0 to 1 nor 0 to 255"),
        (GRAY / 255 - 0.5, "values from -0.5 to 0.5 are neither"),
        (GRAY * 2.0, "neither 0 to 1 nor 0 to 255"),
        (GRAY.astype(complex), "must be numbers, not complex128"),
        (GRAY.astype(str), "must be numbers"),
        (GRAY.astype(object), "must be numbers, not object"),
        (np.zeros((0, 8, 8), np.uint8), "the images are empty"),
        (np.zeros((4, 8, 0), np.uint8), "the images are empty"),
        (np.zeros((8, 8), np.uint8), r"3 or 4 dimensions, not of shape \(8, 8\)"),
        (np.zeros((2, 2, 8, 8, 3), np.uint8), "3 or 4 dimensions"),
        (np.zeros((32, 32, 3), np.uint8), "looks like one color image"),
        (np.zeros((9, 3, 3, 3), np.uint8), "channels first or last: images this small"),
        (np.zeros((9, 8, 8, 2), np.uint8), "no axis of 1, 3 or 4 channels"),
    ],
)
def test_refused(array: np.ndarray, message: str) -> None:
    with pytest.raises(InputError, match=message):
        to_bytes(array)


def test_arrays_are_found_by_kind_and_by_name(tmp_path: Path) -> None:
    labels = np.arange(7) % 2
    np.savez(tmp_path / "a.npz", x=GRAY, y=labels)
    found = read_images(tmp_path / "a.npz")
    np.testing.assert_array_equal(found.images, GRAY[:, None])
    assert list(found.labels) == list(labels)
    assert found.notes == []
    np.savez(tmp_path / "b.npz", x=GRAY, w=COLOR, y=labels, t=labels + 1)
    with pytest.raises(InputError, match=r"more than one image array in it .* name one with images_key"):
        read_images(tmp_path / "b.npz")
    named = read_images(tmp_path / "b.npz", names=Names(images_key="w", labels_key="t"))
    np.testing.assert_array_equal(named.images, COLOR)
    assert list(named.labels) == list(labels + 1)
    with pytest.raises(InputError, match="no array 'v' in it"):
        read_images(tmp_path / "b.npz", names=Names(images_key="v"))
    np.save(tmp_path / "c.npy", LAST)
    (tmp_path / "labels.txt").write_text("\n".join("abababa"))
    assert list(read_images(tmp_path / "c.npy", labels=tmp_path / "labels.txt").labels) == list("abababa")
    assert read_images(tmp_path / "c.npy", labeled=False).labels is None
    with pytest.raises(InputError, match="no labels in it; give them with labels"):
        read_images(tmp_path / "c.npy")
    np.savez_compressed(tmp_path / "d.npz", x=GRAY)
    with pytest.raises(InputError, match="no labels in it"):
        read_images(tmp_path / "d.npz")


def test_images_are_told_from_features(tmp_path: Path) -> None:
    z = np.ones((7, 5), np.float32)
    np.savez(tmp_path / "images.npz", x=GRAY, y=np.arange(7))
    np.savez(tmp_path / "features.npz", z=z, y=np.arange(7))
    np.savez(tmp_path / "both.npz", x=GRAY, z=z)
    np.save(tmp_path / "images.npy", COLOR)
    np.save(tmp_path / "features.npy", z)
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    (tmp_path / "odd.npy").write_bytes(b"hello, this is no array")
    answers = {
        name: holds_images(tmp_path / name, Names())
        for name in (
            *("images.npz", "features.npz", "images.npy", "features.npy"),
            *("table.csv", "odd.npy", "absent.npz"),
        )
    }
    assert [name for name, yes in answers.items() if yes] == ["images.npz", "images.npy"]
    with pytest.raises(InputError, match=r"images \(x\) and features \(z\); choose with images_key"):
        holds_images(tmp_path / "both.npz", Names())
    assert holds_images(tmp_path / "both.npz", Names(images_key="x"))
    assert not holds_images(tmp_path / "both.npz", Names(features_key="z"))


def test_damaged_files_are_one_line(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=GRAY, y=np.arange(7))
    whole = bytearray((tmp_path / "a.npz").read_bytes())
    whole[200:260] = bytes(60)
    (tmp_path / "a.npz").write_bytes(whole)
    with pytest.raises(InputError, match="can't be read"):
        read_images(tmp_path / "a.npz")
    (tmp_path / "b.npz").write_bytes(whole[:300])
    with pytest.raises(InputError):
        read_images(tmp_path / "b.npz")
    np.savez(tmp_path / "c.npz", x=np.array([np.ones((2, 2)), np.ones((3, 3))], dtype=object), y=[0, 1])
    with pytest.raises(InputError, match="pickled objects, which are never loaded"):
        read_images(tmp_path / "c.npz")


def test_labels_may_be_a_column(tmp_path: Path) -> None:
    path = tmp_path / "keras.npz"
    np.savez(path, x=np.zeros((3, 8, 8, 3), dtype=np.uint8), y=np.array([[1], [2], [1]]))
    assert holds_images(path, Names())
    assert read_images(path).labels.tolist() == [1, 2, 1]
