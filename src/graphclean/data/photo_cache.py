"""Small squares of photos, packed in one file per set in the user's cache, so that each is decoded once.

A folder holds the pixels of all photos of one set at one size, and a table that says which of them are there,
with their digests and measures. The table is written after the pixels have reached the disk: whenever the
process or the machine stops, what the table lists is complete.
"""

import hashlib
import json
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .._files import locked, read_json, reason_of, user_cache, write_json
from ..errors import InputError
from .decode import may_write, nearest_folder
from .measures import MEASURES

PACK_FOLDER = "photos"
LIMIT_VARIABLE = "GRAPHCLEAN_CACHE_GB"
LEFT_FREE = 0.1
"""Fraction of a disk that is left free, if the user set no limit."""
FLUSH_BYTES = 2**28
"""Pixels that may be lost when the machine stops."""
PACK_FORMAT = 1
"""Incremented when the same photos would get other pixels or measures."""
PACK_RECORD = np.dtype([("there", np.uint8), ("digest", np.uint64), ("measures", MEASURES)])
PACK_PIXELS, PACK_RECORDS, PACK_ABOUT = "pixels.bin", "records.bin", "about.json"


@dataclass(frozen=True)
class PackKey:
    """Everything that the squares of a set depend on."""

    data: str
    """Where the photos are."""
    photos: int
    size: int
    decoder: str
    """Decoder and its version."""
    stamps: str
    """SHA-256 of the signatures of all photos."""

    def describe(self) -> dict[str, Any]:
        """The key as stored."""
        return {"format": PACK_FORMAT, **vars(self)}

    @property
    def folder(self) -> Path:
        """The folder of the set."""
        told = json.dumps(self.describe(), sort_keys=True).encode("utf-8", "surrogateescape")
        return cache_folder() / hashlib.sha256(told).hexdigest()[:32]

    @property
    def pixel_bytes(self) -> int:
        """The size of all pixels."""
        return self.photos * 3 * self.size**2


@dataclass(frozen=True)
class PackedSet:
    """A set in the cache."""

    key: PackKey
    kept: int
    """Number of its photos that are in it."""
    size: int
    """Size in bytes."""
    used: datetime


class NoRoomError(Exception):
    """The cache can't take a set; the message says why."""


class PackedPhotos:
    """The squares of one set, in files that are as large as they will ever be."""

    def __init__(self, key: PackKey) -> None:
        """Open a set, or make room for it; raises `NoRoomError`."""
        self.key = key
        folder, root = key.folder, cache_folder()
        try:
            if not may_write(root):
                raise PermissionError(None, "not writable")
            root.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            root.mkdir(mode=0o700, exist_ok=True)
            root.chmod(0o700)  # it reveals which photos a user has
            with locked(folder, "", wait=lambda _: None):
                if not _is_whole(folder, key):
                    _make_room(key)
                    _create(folder, key)
                for name in (PACK_PIXELS, PACK_RECORDS):
                    os.utime(folder / name)
            found = np.fromfile(folder / PACK_RECORDS, dtype=PACK_RECORD)
        except (InputError, OSError) as error:
            cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
            raise NoRoomError(f"{root}: {reason_of(cause)}") from error
        self.pixels = folder / PACK_PIXELS
        self.records: npt.NDArray[np.void] = found
        """What is known of each photo; `there` once its pixels are on the disk."""
        self._new: list[int] = []

    @property
    def waiting(self) -> bool:
        """Whether `flush` is due."""
        return len(self._new) * 3 * self.key.size**2 >= FLUSH_BYTES

    def keep(self, row: int, digest: int, measures: tuple[Any, ...]) -> None:
        """Note a photo whose pixels were written; `flush` then lists it."""
        self.records[row] = (1, digest, measures)
        self._new.append(row)

    def forget_new(self) -> list[int]:
        """The photos that were not listed yet, and won't be."""
        lost, self._new = self._new, []
        self.records["there"][lost] = 0
        return lost

    def flush(self) -> None:
        """Write pixels and then the table to the disk; raises OSError where there is no room for them."""
        if not self._new:
            return
        with self.pixels.open("r+b") as file:
            os.fsync(file.fileno())
        with (self.pixels.parent / PACK_RECORDS).open("r+b") as file:
            for row in sorted(self._new):
                file.seek(row * PACK_RECORD.itemsize)
                file.write(self.records[row].tobytes())
        self._new = []

    def map(self) -> Tensor:
        """All pixels as a tensor (N, 3, size, size) that is read from the disk when it is used."""
        shape = (self.key.photos, 3, self.key.size, self.key.size)
        # A private map, since torch warns of read-only arrays; nothing is written to it.
        return torch.from_numpy(np.memmap(self.pixels, dtype=np.uint8, mode="c", shape=shape))


def cache_folder() -> Path:
    """The folder of all sets."""
    return user_cache() / PACK_FOLDER


def list_packed() -> list[PackedSet]:
    """All sets, most recently used first."""
    found = []
    for folder in _folders():
        key = _read_key(folder)
        with suppress(OSError):
            if key is None:
                continue
            there = int(np.fromfile(folder / PACK_RECORDS, dtype=PACK_RECORD)["there"].sum())
            used = datetime.fromtimestamp((folder / PACK_RECORDS).stat().st_mtime, UTC)
            found.append(PackedSet(key, there, _size(folder), used))
    return sorted(found, key=lambda one: one.used, reverse=True)


def clear_packed() -> int:
    """Remove all sets; returns their size in bytes."""
    freed = 0
    for folder in _folders():
        size = _size(folder)
        try:
            shutil.rmtree(folder)
        except OSError as error:
            raise InputError(f"{folder}: can't be removed: {reason_of(error)}") from error
        freed += size
    return freed


def room() -> float:
    """Bytes that all sets may take together: as set by the user, or what the disk has, less a reserve."""
    if os.environ.get(LIMIT_VARIABLE):
        with suppress(ValueError):
            return float(os.environ[LIMIT_VARIABLE]) * 1e9
    disk = shutil.disk_usage(nearest_folder(cache_folder()))
    return disk.free - LEFT_FREE * disk.total + sum(map(_size, _folders()))


def _make_room(key: PackKey) -> None:
    """Remove sets until a new one fits: those of the same photos before they changed, then the oldest."""
    need, limit = key.pixel_bytes, room()
    if need > limit:
        raise OSError(None, f"{need / 1e9:,.1f} GB are needed, and {max(limit, 0) / 1e9:,.1f} GB are free")
    sets = list_packed()
    total = sum(one.size for one in sets)
    stale = [one for one in sets if (one.key.data, one.key.size) == (key.data, key.size)]
    for one in [*stale, *(one for one in reversed(sets) if one not in stale)]:
        if total + need <= limit and one not in stale:
            return
        shutil.rmtree(one.key.folder, ignore_errors=True)
        total -= one.size


def _create(folder: Path, key: PackKey) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    try:
        for name, size in ((PACK_PIXELS, key.pixel_bytes), (PACK_RECORDS, key.photos * PACK_RECORD.itemsize)):
            with (folder / name).open("xb") as file:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, size)
                else:
                    file.truncate(size)
        write_json(folder / PACK_ABOUT, key.describe())
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _is_whole(folder: Path, key: PackKey) -> bool:
    try:
        sizes = [(folder / name).stat().st_size for name in (PACK_PIXELS, PACK_RECORDS)]
    except OSError:
        return False
    return sizes == [key.pixel_bytes, key.photos * PACK_RECORD.itemsize] and _read_key(folder) == key


def _read_key(folder: Path) -> PackKey | None:
    """The key of a set; None if it is damaged or of another version."""
    try:
        about = read_json(folder / PACK_ABOUT)
        key = PackKey(**{name: about[name] for name in PackKey.__dataclass_fields__})
    except (InputError, KeyError, TypeError):
        return None
    return key if about.get("format") == PACK_FORMAT and key.folder == folder else None


def _folders() -> list[Path]:
    try:
        return sorted(path for path in cache_folder().iterdir() if path.is_dir() and path.name[0] != ".")
    except OSError:
        return []


def _size(folder: Path) -> int:
    with suppress(OSError):
        return sum(path.stat().st_size for path in folder.iterdir())
    return 0
