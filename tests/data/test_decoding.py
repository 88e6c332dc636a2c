"""How much memory it takes to decode images, and that this changes none of their pixels."""

import subprocess
import sys
import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from graphclean.data import images
from graphclean.data.tables import Names
from graphclean.embed import photos
from graphclean.embed.photos import read_batches
from graphclean.report.thumbnails import _encode
from graphclean.runs.photos import Cropping, find_photos, read_photos


@pytest.mark.parametrize("mode", ["P", "LA", "RGBA", "PA"])
def test_what_is_transparent_is_the_same_in_strips(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (37, 23, 4), dtype=np.uint8)
    image = Image.fromarray(noise, "RGBA") if mode == "RGBA" else Image.fromarray(noise[..., 0]).convert(mode)
    if mode == "P":
        image.info["transparency"] = bytes(range(256))
    white = Image.new("RGBA", image.size, "white")
    whole = np.asarray(Image.alpha_composite(white, image.convert("RGBA")).convert("RGB"))
    for strip in (images.STRIP, 50, 1):
        monkeypatch.setattr(images, "STRIP", strip)
        np.testing.assert_array_equal(np.asarray(images._to_rgb(image)), whole)


@pytest.mark.parametrize("kind", [np.uint16, np.int32, np.float32])
def test_deep_gray_is_the_same_in_strips(monkeypatch: pytest.MonkeyPatch, kind: Any) -> None:
    gray = np.random.default_rng(0).integers(0, 3000, (37, 23)).astype(kind)
    if kind == np.float32:
        gray[3, 4], gray[5, 6] = np.nan, np.inf
    whole = images._to_bytes(Image.fromarray(gray))
    assert whole.max() > 150
    monkeypatch.setattr(images, "STRIP", 50)
    np.testing.assert_array_equal(images._to_bytes(Image.fromarray(gray)), whole)


def test_images_are_weighed_before_they_are_decoded(tmp_path: Path) -> None:
    Image.new("RGB", (800, 400)).save(tmp_path / "a.jpg")
    (tmp_path / "bad.jpg").write_bytes(b"no image")
    assert images.decoded_bytes(tmp_path / "a.jpg") == 800 * 400 * images.PIXEL_BYTES
    assert images.decoded_bytes((tmp_path / "a.jpg").read_bytes(), 100) == 200 * 100 * images.PIXEL_BYTES
    for source in (tmp_path / "bad.jpg", tmp_path / "none.jpg", tmp_path, b"", b"no image"):
        assert images.decoded_bytes(source) == 0


def test_threads_wait_for_room() -> None:
    room, held, most = images.Room(100), 0, 0
    lock = threading.Lock()

    def work(size: int) -> None:
        nonlocal held, most
        with room.reserved(size):
            with lock:
                held += min(size, 100)
                most = max(most, held)
            time.sleep(0.005)
            with lock:
                held -= min(size, 100)

    threads = [threading.Thread(target=work, args=(size,)) for size in (40, 50, 30, 500, 0, 70, 100) * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert 40 < most <= 100
    assert room.free == 100
    with pytest.raises(ValueError, match="x"), room.reserved(30):
        raise ValueError("x")
    assert room.free == 100


def test_every_photo_that_is_read_is_given_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []

    class Recorded(images.Room):
        def reserved(self, size: int) -> AbstractContextManager[None]:
            given.append(size)
            return super().reserved(size)

    for module in ("graphclean.embed.photos", "graphclean.report.thumbnails"):
        monkeypatch.setattr(f"{module}.DECODING", Recorded(2**30))
    for label in "ab":
        (tmp_path / label).mkdir()
        Image.new("L", (30, 20)).save(tmp_path / label / "0.png")
    found = find_photos(tmp_path, Names())
    read_photos(found, Cropping(8), tmp_path)
    assert given == [30 * 20 * images.PIXEL_BYTES] * 2
    assert _encode(tmp_path / "a/0.png", 16) is not None
    assert len(given) == 3


@pytest.mark.slow
def test_threads_share_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(photos, "DECODING", images.Room(100))
    monkeypatch.setattr(photos, "decoders", lambda: 4)
    now, most, lock = 0, 0, threading.Lock()

    def load(_: int) -> Image.Image:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.01)
        with lock:
            now -= 1
        return Image.new("RGB", (4, 4))

    for weight, expected in ((60, 1), (40, 2), (0, 4)):
        most = 0
        list(read_batches(enumerate(range(24)), load, np.asarray, refusal=OSError, weigh=lambda _: weight))  # noqa: B023
        assert most == expected


MEASURE = """
import sys, torch
from pathlib import Path
from PIL import Image
from graphclean.runs.photos import Cropping
torch.set_num_threads(4)
read = lambda name, count: list(Cropping(16).batches([(row, Path(name)) for row in range(count)]))
Image.new("P", (50, 50)).save("small.png")
read("small.png", 1)
resident = lambda: int(Path("/proc/self/statm").read_text().split()[1]) * 4  # KiB
before = resident()
Path("/proc/self/clear_refs").write_text("5")  # forget the peak
assert not read("large.png", 4)[0].problems
status = Path("/proc/self/status").read_text()
print(int(status.partition("VmHWM:")[2].split()[0]) - before, resident() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="the peak of memory is only known to Linux"
)
def test_large_palette_images_stay_within_the_budget(tmp_path: Path) -> None:
    Image.new("P", (9400, 9400)).save(tmp_path / "large.png")
    done = subprocess.run(
        [sys.executable, "-c", MEASURE], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    peak, left = (int(word) / 2**20 for word in done.stdout.split())
    assert peak < 1  # GiB; 1.24 before freed memory was given back
    assert left < 0.2


def test_webp_is_weighed_as_what_its_library_takes(tmp_path: Path) -> None:
    Image.new("RGB", (40, 20)).save(tmp_path / "a.webp")
    assert images.decoded_bytes(tmp_path / "a.webp") == 40 * 20 * images.WEBP_PIXEL_BYTES
