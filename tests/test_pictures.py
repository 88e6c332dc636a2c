"""The pictures behind a run's samples."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from graphclean.errors import InputError
from graphclean.pictures import Pictures, find_pictures
from graphclean.runfolder import write_env
from graphclean.sources import Names, read_source


def opened(content: bytes | None) -> Image.Image:
    assert content is not None
    return Image.open(io.BytesIO(content))


def test_few_pixels_are_kept_to_the_bit_and_many_made_small() -> None:
    rng = np.random.default_rng(0)
    tiny = Image.fromarray(rng.integers(0, 256, (8, 8), dtype=np.uint8))
    large = Image.new("RGB", (400, 200), "teal")
    pictures = Pictures(lambda row, _: [tiny.copy(), large.copy(), None][row])
    image = opened(pictures.encode(0, 100))
    assert (image.format, image.mode) == ("PNG", "L")
    np.testing.assert_array_equal(np.asarray(image), np.asarray(tiny))
    image = opened(pictures.encode(1, 100))
    assert (image.format, image.size) == ("JPEG", (100, 50))
    assert pictures.encode(2, 100) is None


def test_many_come_in_order() -> None:
    pictures = Pictures(lambda row, _: Image.new("L", (4, 4), row) if row % 3 else None)
    found = dict(pictures.encode_many(range(100), 10))
    assert list(found) == list(range(100))
    assert all((found[row] is None) == (row % 3 == 0) for row in found)
    assert np.asarray(opened(found[70]))[0, 0] == 70


def test_a_large_jpeg_is_small_and_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    (tmp_path / "a").mkdir()
    Image.new("RGB", (800, 400), "teal").save(tmp_path / "a/x.jpg", exif=exif)
    source = {"kind": "photos", "data": str(tmp_path)}
    image = opened(find_pictures(tmp_path, source, ["a/x.jpg"]).encode(0, 100))
    assert image.size == (50, 100)


def test_broken_and_missing_photos_have_no_picture(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    Image.new("RGB", (40, 40)).save(tmp_path / "a/x.png")
    (tmp_path / "a/y.png").write_bytes(b"no picture")
    source = {"kind": "photos", "data": str(tmp_path)}
    pictures = find_pictures(tmp_path, source, ["a/x.png", "a/y.png", "a/z.png"])
    assert [pictures.encode(row, 50) is None for row in range(3)] == [False, True, True]


def test_arrays_are_known_by_their_fingerprint(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (6, 5, 5, 3), dtype=np.uint8), np.arange(6) % 2
    np.savez(tmp_path / "data.npz", images=images, labels=labels)
    write_env(tmp_path, read_source(tmp_path / "data.npz", Names(), images=True).fingerprint())
    source = {"kind": "images", "data": "data.npz"}
    image = opened(find_pictures(tmp_path, source, []).encode(3, 50))
    np.testing.assert_array_equal(np.asarray(image), images[3])
    np.savez(tmp_path / "data.npz", images=images[::-1], labels=labels)
    with pytest.raises(InputError, match="not those that the run was made from"):
        find_pictures(tmp_path, source, [])


def test_embeddings_have_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no pictures"):
        find_pictures(tmp_path, {"kind": "features"}, [])
