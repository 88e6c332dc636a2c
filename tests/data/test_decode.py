"""Decoding in order, and arrays that are kept, re-made, or done without."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from graphclean.data import decode
from graphclean.data.decode import LabeledImages, cached, decode_images, fingerprint, may_write
from graphclean.errors import InputError
from tests.data.builders import encode, pixels


def sample(value: int = 0) -> LabeledImages:
    return LabeledImages(pixels(3, seed=value), np.array([1, 0, -1]), ("a", "b"))


def test_images_come_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "DECODED_AT_ONCE", 2)
    images = pixels(23)
    seen: list[tuple[int, int]] = []
    found = decode_images(
        ((str(i), encode(image)) for i, image in enumerate(images)),
        23,
        lambda _, done, total: seen.append((done, total)),
    )
    assert np.array_equal(found, images)
    assert seen == [(min(done, 23), 23) for done in range(2, 25, 2)]


@pytest.mark.parametrize("content", [b"", b"text", encode(pixels(1)[0])[:60]], ids=["empty", "text", "cut"])
def test_an_image_that_does_not_decode_is_named(content: bytes) -> None:
    good = encode(pixels(1)[0])
    with pytest.raises(InputError, match="b: not an image, or damaged"):
        decode_images([("a", good), ("b", content)], 2)


def test_too_many_pixels_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(InputError, match="a: too many pixels"):
        decode_images([("a", encode(pixels(1)[0]))], 1)


def test_what_was_kept_is_mapped_and_not_made_again(tmp_path: Path) -> None:
    first = cached(tmp_path / "cache", "set-train", "1" * 64, sample)
    again = cached(tmp_path / "cache", "set-train", "1" * 64, lambda: pytest.fail("made again"))
    for found in (first, again):
        assert isinstance(found.images, np.memmap)
        assert not found.images.flags.writeable
        assert np.array_equal(found.images, sample().images)
        assert np.array_equal(found.labels, sample().labels)
        assert found.classes == ("a", "b")


def test_another_key_is_made_again_and_takes_the_place(tmp_path: Path) -> None:
    cached(tmp_path, "set-train", "1" * 64, sample)
    cached(tmp_path, "other-train", "1" * 64, sample)
    found = cached(tmp_path, "set-train", "2" * 64, lambda: sample(5))
    assert np.array_equal(found.images, sample(5).images)
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "other-train-1111111111111111",
        "set-train-2222222222222222",
    ]


@pytest.mark.parametrize("name", ["images.npy", "labels.npy", "about.json"])
def test_a_damaged_cache_is_made_again(tmp_path: Path, name: str) -> None:
    cached(tmp_path, "set-train", "1" * 64, sample)
    kept = tmp_path / "set-train-1111111111111111" / name
    kept.write_bytes(kept.read_bytes()[:-20])
    assert np.array_equal(cached(tmp_path, "set-train", "1" * 64, sample).images, sample().images)
    cached(tmp_path, "set-train", "1" * 64, lambda: pytest.fail("not mended"))


def test_where_nothing_can_be_kept_the_arrays_stay_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder in (None, tmp_path / "file" / "cache"):
        found = cached(folder, "set-train", "1" * 64, sample)
        assert np.array_equal(found.images, sample().images)
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> LabeledImages:
        raise InputError("broken")

    with pytest.raises(InputError, match="broken"):
        cached(tmp_path, "set-train", "1" * 64, fail)
    assert list(tmp_path.iterdir()) == []


def test_a_fingerprint_sees_every_change(tmp_path: Path) -> None:
    files = [("a", 1, 2), ("b", 3, 4)]
    base = fingerprint(tmp_path, "train", files)
    assert fingerprint(tmp_path, "train", reversed(files)) == base
    others = [
        fingerprint(tmp_path / "x", "train", files),
        fingerprint(tmp_path, "test", files),
        fingerprint(tmp_path, "train", [("a", 1, 2), ("b", 3, 5)]),
        fingerprint(tmp_path, "train", [("a", 1, 2), ("b", 4, 4)]),
        fingerprint(tmp_path, "train", [("a", 1, 2), ("c", 3, 4)]),
        fingerprint(tmp_path, "train", files[:1]),
    ]
    assert len({base, *others}) == 7


def test_a_folder_without_the_write_bit_is_left_alone_even_by_root(tmp_path: Path) -> None:
    assert may_write(tmp_path / "not" / "there")
    tmp_path.chmod(0o555)
    assert not may_write(tmp_path)
    assert not may_write(tmp_path / "below")
    tmp_path.chmod(0o755)
