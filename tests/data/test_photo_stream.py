"""Photos that are streamed: the same pixels wherever they are kept, and nothing lost whatever happens."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from graphclean.data.image_folder import ImageFiles, read_image_folder
from graphclean.data.images import PIXEL_BYTES, FilePart, Room, open_image
from graphclean.data.measures import MEASURES
from graphclean.data.parquet import read_parquet_photos
from graphclean.data.photo_cache import (
    NoRoomError,
    PackedPhotos,
    PackKey,
    cache_folder,
    clear_packed,
    list_packed,
)
from graphclean.data.photo_stream import Keeping, PhotoStream
from graphclean.data.photo_workers import PhotoJob, PhotoWorkers, digest_of
from graphclean.data.resize import to_array
from graphclean.data.tables import Names
from graphclean.errors import InputError, RunStopped
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


class Crashing(FilePart):
    """A photo on which the decoder crashes."""

    def read(self) -> bytes:
        os.kill(os.getpid(), signal.SIGSEGV)
        return b""


class Killed(FilePart):
    """A photo for which memory runs out."""

    def read(self) -> bytes:
        os.kill(os.getpid(), signal.SIGKILL)
        return b""


@pytest.mark.slow
def test_a_photo_that_crashes_the_decoder_is_unreadable(tmp_path: Path) -> None:
    images = write_photos(tmp_path, 4)
    photos: list[Any] = [images.paths[0], Crashing(tmp_path, 0, 1), images.paths[1]]
    with PhotoWorkers(1) as workers:
        for _ in range(2):
            decoded = workers.threads.submit(workers.decode, photos, [0, 1, 2], PhotoJob(SIZE, "pillow"))
            outcomes, pixels, _ = decoded.result()
            assert [outcome.problem for outcome in outcomes] == [None, "it crashes the decoder", None]
            assert pixels is not None
            assert torch.equal(torch.from_numpy(pixels), expected(images)[[0, 1]])


@pytest.mark.slow
def test_a_killed_worker_ends_the_run_in_one_line(tmp_path: Path) -> None:
    with PhotoWorkers(1) as workers:
        job = PhotoJob(SIZE, "pillow")
        with pytest.raises(RunStopped, match="was killed, probably because memory ran out") as stopped:
            workers.threads.submit(workers.decode, [Killed(tmp_path, 0, 1)], [0], job).result()
        assert "\n" not in str(stopped.value)


@pytest.mark.slow
def test_large_photos_are_decoded_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = write_photos(tmp_path, 6)
    paths = [path for path in images.paths if path is not None]
    monkeypatch.setattr("graphclean.data.photo_workers.DECODING", Room(2 * 50 * 50 * PIXEL_BYTES))
    with PhotoWorkers(2) as workers:
        found = workers.threads.submit(workers.decode, paths, range(7), PhotoJob(SIZE, "pillow")).result()
    assert [outcome.problem for outcome in found.outcomes].count(None) == 6
    assert found.pixels is not None
    assert torch.equal(torch.from_numpy(found.pixels), expected(images))


@pytest.mark.slow
@pytest.mark.parametrize("how", ["at the start", "while photos are read", "when they are secured"])
def test_a_disk_that_fills_up_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The run goes on without the disk, and says so."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    images = write_photos(tmp_path)
    if how == "at the start":
        monkeypatch.setattr(os, "posix_fallocate", full)
    elif how == "when they are secured":
        monkeypatch.setattr("graphclean.data.photo_cache.os.fsync", full)
    with PhotoStream(images, SIZE, place=str(tmp_path), workers=2) as photos:
        if how == "while photos are read":
            assert photos._packed is not None
            photos._packed.pixels.unlink()
            photos._packed.pixels.symlink_to("/dev/full")
            monkeypatch.setattr(PackedPhotos, "map", lambda _: None)
        photos.scan()
        assert photos.keeping == ("encoded" if how == "at the start" else "decode")
        assert "No space left on device" in photos.note
        assert "\n" not in photos.note
        assert photos.kept == 0
        assert torch.equal(everything(photos), expected(images))
    if how == "at the start":
        assert [path for path in cache_folder().iterdir() if path.name[0] != "."] == []


def test_a_set_limit_is_kept_by_removing_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [PackKey(f"/data/{number}", 10, 10, "pillow", "") for number in range(4)]
    monkeypatch.setenv("GRAPHCLEAN_CACHE_GB", "0.00001")  # room for two
    for number, key in enumerate(keys):
        PackedPhotos(key)
        for path in key.folder.iterdir():
            os.utime(path, (number, number))
    assert [one.key.data for one in list_packed()] == ["/data/3", "/data/2"]
    PackedPhotos(keys[2])  # used again, so the other one goes next
    PackedPhotos(keys[0])
    assert {one.key.data for one in list_packed()} == {"/data/2", "/data/0"}
    assert cache_folder().stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("GRAPHCLEAN_CACHE_GB", "0")
    with pytest.raises(NoRoomError, match=r"0\.0 GB are free"):
        PackedPhotos(keys[1])
    assert clear_packed() > 0
    assert list_packed() == []


@pytest.mark.parametrize("name", ["pixels.bin", "records.bin", "about.json"])
def test_a_damaged_set_is_made_again(name: str) -> None:
    key = PackKey("/data", 10, 10, "pillow", "")
    packed = PackedPhotos(key)
    packed.keep(3, 5, tuple(np.zeros(1, dtype=MEASURES)[0]))
    assert PackedPhotos(key).records["there"].sum() == 0
    packed.flush()
    assert PackedPhotos(key).records["there"].tolist() == [0, 0, 0, 1, 0, 0, 0, 0, 0, 0]
    (key.folder / name).write_bytes(b"{}")
    packed = PackedPhotos(key)
    assert packed.records["there"].sum() == 0
    assert len(packed.map()) == 10


@pytest.mark.slow
def test_a_killed_scan_lists_only_what_is_there(tmp_path: Path) -> None:
    images = write_photos(tmp_path, 200)
    code = f"""
from pathlib import Path
from graphclean.data import photo_cache
from graphclean.data.image_folder import read_image_folder
from graphclean.data.photo_stream import PhotoStream
photo_cache.FLUSH_BYTES = 1
root = Path({str(tmp_path)!r})
PhotoStream(read_image_folder(root), {SIZE}, place=str(root), workers=1).scan(
    lambda *told: print(*told, flush=True)
)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as scan:
        assert scan.stdout is not None
        for _ in range(3):
            assert "reading photos" in scan.stdout.readline()
        scan.kill()
    known = list_packed()[0].kept
    assert 0 < known < 200
    totals: list[int] = []
    readable = torch.tensor([row for row in range(201) if images.ids[row] != "a/broken.jpg"])
    with PhotoStream(images, SIZE, place=str(tmp_path), workers=1) as photos:
        assert photos.kept == known
        assert photos._packed is not None
        there = torch.from_numpy(photos._there)[readable]
        assert torch.equal(photos._packed.map()[readable[there]], expected(images)[there])
        photos.scan(lambda *told: totals.append(told[2]))
        assert torch.equal(everything(photos), expected(images))
    assert set(totals) == {201 - known}


@pytest.mark.slow
def test_an_interrupt_keeps_what_is_done_and_ends_the_workers(tmp_path: Path) -> None:
    images = write_photos(tmp_path)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    photos = PhotoStream(images, SIZE, place=str(tmp_path), workers=2)
    with pytest.raises(KeyboardInterrupt):
        photos.scan(interrupt)
    assert photos._workers._all
    assert all(process.poll() is not None for process in photos._workers._all)
    assert 0 < photos.kept < 40
    with stream(images) as again:
        assert torch.equal(everything(again), expected(images))


@pytest.mark.slow
def test_photos_that_vanish_or_change_are_named(tmp_path: Path) -> None:
    images = write_photos(tmp_path)
    with stream(images, "decode") as photos:
        path = tmp_path / images.ids[5]
        before = path.read_bytes()
        path.unlink()
        with pytest.raises(InputError, match=f"{images.ids[5]}: no such file, but the run began"):
            everything(photos)
        Image.new("RGB", (30, 30)).save(path)
        with pytest.raises(InputError, match=f"{images.ids[5]}: another picture"):
            everything(photos)
        path.write_bytes(before)
        assert torch.equal(everything(photos), expected(images))


def test_asking_for_what_has_no_room_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = write_photos(tmp_path, 4)
    monkeypatch.setattr("graphclean.data.photo_stream.photo_memory", lambda: 10)
    monkeypatch.setenv("GRAPHCLEAN_CACHE_GB", "0")
    with pytest.raises(InputError, match=r"need more than 0\.0 GB of memory"):
        PhotoStream(images, SIZE, place="here", keep="encoded")
    with pytest.raises(InputError, match="no room for the pixels of here"):
        PhotoStream(images, SIZE, place="here", keep="disk")
    with PhotoStream(images, SIZE, place="here") as photos:
        assert photos.keeping == "decode"


@pytest.mark.slow
def test_photos_in_tables_need_room_somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = write_photos(tmp_path / "photos", 10)
    cells = [{"bytes": path.read_bytes(), "path": None} for path in images.paths if path is not None]
    pd.DataFrame({"image": cells, "label": [*"ababababab", "a"]}).to_parquet(tmp_path / "t.parquet")
    table = read_parquet_photos(tmp_path / "t.parquet", None, Names())
    for keep in ("disk", "encoded"):
        with PhotoStream(table, SIZE, place="t", keep=keep, workers=1) as photos:  # type: ignore[arg-type]
            photos.scan()
            assert torch.equal(everything(photos), expected(images))
    clear_packed()
    monkeypatch.setattr("graphclean.data.photo_stream.photo_memory", lambda: 10)
    monkeypatch.setenv("GRAPHCLEAN_CACHE_GB", "0")
    with (
        PhotoStream(table, SIZE, place="t", workers=1) as photos,
        pytest.raises(InputError, match="GRAPHCLEAN_CACHE names another folder"),
    ):
        photos.scan()
