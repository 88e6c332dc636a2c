"""Photos that are streamed: the same pixels wherever they are kept, and nothing lost whatever happens."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from graphclean.data.image_folder import ImageFiles, read_image_folder
from graphclean.data.images import open_image
from graphclean.data.photo_cache import list_packed
from graphclean.data.photo_stream import Keeping, PhotoStream
from graphclean.data.photo_workers import PhotoWorkers, digest_of
from graphclean.data.resize import to_array
from graphclean.training.batches import ResidentInputs, StreamedInputs, place_inputs

SIZE = 24


def write_photos(root: Path, count: int = 40) -> ImageFiles:
    """Photos of several shapes and types in two classes, and one that is no photo."""
    rng = np.random.default_rng(0)
    for number in range(count):
        width, height = int(rng.integers(20, 120)), int(rng.integers(20, 120))
        pixels = rng.integers(0, 256, (height // 4 + 1, width // 4 + 1, 3)).astype(np.uint8)
        image = Image.fromarray(pixels).resize((width, height))
        path = root / "ab"[number % 2] / f"{number:03}.{'png' if number % 5 == 0 else 'jpg'}"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.convert("L" if number % 7 == 0 else "RGB").save(path)
    (root / "a" / "broken.jpg").write_bytes(b"no photo")
    return read_image_folder(root)


def stream(images: ImageFiles, keep: Keeping | None = None, workers: int = 1, **more: Any) -> PhotoStream:
    made = PhotoStream(images, SIZE, place=str(images.root), keep=keep, workers=workers, **more)
    made.scan()
    return made


def expected(images: ImageFiles) -> torch.Tensor:
    """As the reader of photos in memory makes them, where JPEGs are shrunk while they are decoded."""
    readable = [path for path in images.paths if path is not None and path.name != "broken.jpg"]
    return torch.from_numpy(np.stack([to_array(open_image(path, SIZE), SIZE) for path in readable]))


def everything(photos: PhotoStream) -> torch.Tensor:
    return photos.read(torch.arange(len(photos)))


@pytest.mark.slow
@pytest.mark.parametrize("keep", ["disk", "encoded", "decode"])
def test_pixels_are_the_same_wherever_photos_are_kept(tmp_path: Path, keep: Keeping) -> None:
    images = write_photos(tmp_path)
    for workers in (1, 3):
        with stream(images, keep, workers) as photos:
            assert photos.keeping == keep
            assert photos.shape == (40, 3, SIZE, SIZE)
            assert photos.nbytes == 40 * 3 * SIZE**2
            assert photos.problems == {images.ids.index("a/broken.jpg"): "not an image"}
            order = torch.randperm(40, generator=torch.Generator().manual_seed(0)).repeat(2)
            assert torch.equal(photos.read(order), expected(images)[order])
            assert photos.read(order[:0]).shape == (0, 3, SIZE, SIZE)
            assert photos.digests.tolist() == [digest_of(square.numpy()) for square in expected(images)]
            with Image.open(images.root / images.ids[0]) as first:
                assert (photos.measures["width"][0], photos.measures["height"][0]) == first.size


@pytest.mark.slow
def test_photos_on_the_disk_are_not_decoded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = write_photos(tmp_path)
    (images.root / "a" / "broken.jpg").unlink()
    images = read_image_folder(tmp_path)
    with stream(images) as photos:
        before = everything(photos)
    monkeypatch.setattr(PhotoWorkers, "decode", None)
    with stream(images) as photos:
        assert photos.packed
        assert photos.kept == 40
        assert torch.equal(everything(photos), before)
    for path in images.paths:  # and they are not needed any more
        assert path is not None
        path.unlink()
    assert torch.equal(everything(photos), before)


@pytest.mark.slow
def test_a_photo_that_changes_is_read_again(tmp_path: Path) -> None:
    images = write_photos(tmp_path)
    with stream(images) as photos:
        before = everything(photos)
    Image.new("RGB", (30, 30), "red").save(tmp_path / images.ids[3])
    changed = read_image_folder(tmp_path)
    with stream(changed) as photos:
        after = everything(photos)
    assert torch.equal(after, expected(changed))
    same = torch.arange(40) != 3
    assert not torch.equal(after[3], before[3])
    assert torch.equal(after[same], before[same])
    assert len(list_packed()) == 1  # what nothing uses any more is gone


@pytest.mark.slow
def test_training_takes_a_stream_as_any_other_inputs(tmp_path: Path) -> None:
    images = write_photos(tmp_path)
    with stream(images, "decode") as photos:
        inputs = place_inputs(photos, torch.device("cpu"))
        assert isinstance(inputs, StreamedInputs)
        batches = torch.randperm(40, generator=torch.Generator().manual_seed(1)).view(8, 5)
        resident = ResidentInputs(expected(images))
        for one, other in zip(inputs.stream(batches), resident.stream(batches), strict=True):
            assert torch.equal(one, other)
