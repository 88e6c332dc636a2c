"""Encoded images to arrays of 32 px, by all cores, and kept on disk for the next time."""

import hashlib
import json
import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image

from .._files import replaced_folder
from ..errors import InputError, parse_json
from .images import DECODING, FORMATS, peak_bytes
from .progress import Progress
from .resize import DECODED_SIDE, to_array

ByteImages: TypeAlias = npt.NDArray[np.uint8]

DECODED_AT_ONCE = 250
"""Images a thread takes at a time."""
VERSION = 1
"""Rises when the same source would be decoded to other pixels."""


@dataclass(frozen=True)
class LabeledImages:
    """Images (N, 3, 32, 32), their labels (-1 where there is none) and the names of the classes."""

    images: ByteImages
    labels: npt.NDArray[np.int64]
    classes: tuple[str, ...]


def decode_images(
    items: Iterable[tuple[str, bytes]], count: int, progress: Progress | None = None
) -> ByteImages:
    """`count` encoded images, each with its name for an error, as one array.

    Threads are enough: Pillow decodes and resizes without the interpreter's lock.
    """
    out = np.empty((count, 3, DECODED_SIDE, DECODED_SIDE), dtype=np.uint8)
    workers = os.cpu_count() or 1
    waiting: deque[Future[list[ByteImages]]] = deque()
    done = 0
    with ThreadPoolExecutor(workers) as pool:

        def take() -> None:
            nonlocal done
            for image in waiting.popleft().result():
                out[done] = image
                done += 1
            if progress is not None:
                progress("decoding images", done, count)

        try:
            for chunk in _chunks(items):
                waiting.append(pool.submit(_decode_chunk, chunk))
                if len(waiting) > 2 * workers:
                    take()
            while waiting:
                take()
        finally:
            pool.shutdown(cancel_futures=True)
    return out


def _chunks(items: Iterable[tuple[str, bytes]]) -> Iterator[list[tuple[str, bytes]]]:
    rest = iter(items)
    while chunk := list(islice(rest, DECODED_AT_ONCE)):
        yield chunk


def _decode_chunk(chunk: list[tuple[str, bytes]]) -> list[ByteImages]:
    return [_decode(name, content) for name, content in chunk]


def _decode(name: str, content: bytes) -> ByteImages:
    try:
        with Image.open(BytesIO(content), formats=FORMATS) as image:
            if image.width * image.height > (Image.MAX_IMAGE_PIXELS or float("inf")):
                raise Image.DecompressionBombError
            with DECODING.reserved(peak_bytes(image)):
                return to_array(image)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise InputError(f"{name}: too many pixels") from error
    except Exception as error:  # Pillow raises nearly anything on broken files
        raise InputError(f"{name}: not an image, or damaged; get the data set again") from error


def fingerprint(path: Path, what: str, files: Iterable[tuple[str, int, int]]) -> str:
    """Changes when a source does: its place, what of it is read, and each file's name, size and time."""
    found = hashlib.sha256(f"{VERSION}\n{os.path.realpath(path)}\n{what}\n".encode(errors="surrogateescape"))
    for name, size, time in sorted(files):
        found.update(f"{name}\n{size} {time}\n".encode(errors="surrogateescape"))
    return found.hexdigest()


def nearest_folder(folder: Path) -> Path:
    """A folder, or the nearest one above it that exists."""
    return next(place for place in (folder, *folder.absolute().parents) if place.exists())


def may_write(folder: Path) -> bool:
    """Whether a folder can be made or written to, and is meant to be: root too keeps to its mode."""
    there = nearest_folder(folder)
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK) and bool(there.stat().st_mode & 0o222)


def cached(folder: Path | None, stem: str, key: str, make: Callable[[], LabeledImages]) -> LabeledImages:
    """What `make` gives, or gave before for the same key; memory-mapped where it could be kept.

    Older results of the same stem are removed. Where nothing can be written, the arrays stay in memory.
    """
    if folder is None:
        return make()
    target = folder / f"{stem}-{key[:16]}"
    kept = _read(target, key)
    if kept is not None:
        return kept
    made = make()
    try:
        with replaced_folder(target) as draft:
            np.save(draft / "images.npy", made.images)
            np.save(draft / "labels.npy", made.labels)
            about = {"key": key, "classes": made.classes}
            (draft / "about.json").write_text(json.dumps(about), encoding="utf-8")
            for old in folder.glob(f"{stem}-*"):
                shutil.rmtree(old, ignore_errors=True)
    except OSError:
        return made
    return _read(target, key) or made


def _read(target: Path, key: str) -> LabeledImages | None:
    """What was kept, unless it is damaged."""
    try:
        about = parse_json((target / "about.json").read_text(encoding="utf-8"))
        images = np.load(target / "images.npy", mmap_mode="r", allow_pickle=False)
        labels = np.load(target / "labels.npy", allow_pickle=False)
        classes = tuple(str(name) for name in about["classes"])
        whole = about["key"] == key and images.dtype == np.uint8 and labels.dtype == np.int64
    except (OSError, ValueError, KeyError, TypeError, EOFError):
        return None
    if not whole or images.shape != (len(labels), 3, DECODED_SIDE, DECODED_SIDE):
        return None
    return LabeledImages(images, labels, classes)
