"""Embeddings of photos in one cache folder per user, so that no photo is embedded twice.

There is one folder for each combination of embedder and photo source, with a file for each chunk. Files are
only written atomically and removed: any number of processes may use the cache at once.
"""

import hashlib
import json
import math
import os
import uuid
from collections.abc import Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from .._files import read_tensors, user_cache, write_tensors
from ..data.decode import may_write
from ..data.measures import MEASURES, Measures
from ..data.photo_cache import LIMIT_VARIABLE
from ..errors import InputError
from .photos import PhotoBatch

FOLDER = "embeddings"
CACHE_LIMIT = 4.0
"""Maximum size of the cache, enough for 800,000 photos with 1,280 features."""
PIECE = 1024
"""Photos per file, and photos held in memory at a time in prediction."""
FIRST_PIECE = 32
"""The first chunk has this size, and each following one the size of all before it: little is lost at any
time.
"""
FORMAT = 4
"""Incremented when photos would get different embeddings or measures."""

Features: TypeAlias = npt.NDArray[np.float32]
KeptPhoto: TypeAlias = tuple[Features, Any]
"""Features of a photo, and its record of `MEASURES`."""
Stamps: TypeAlias = list[list[Any]]
"""A signature of each photo that changes with it; photos with an empty one are not cached."""


@dataclass(frozen=True)
class Key:
    """Everything that embeddings depend on besides the photos themselves."""

    embedder: str
    version: str
    """Version of the weights, or of the package that provides them."""
    data: str
    """Location of the photos: signatures distinguish photos of one source, not those of two."""

    def describe(self) -> dict[str, Any]:
        """The key as stored in files of the cache."""
        return {"format": FORMAT, **vars(self)}

    @property
    def folder(self) -> Path:
        """The folder of its chunks."""
        told = json.dumps(self.describe(), sort_keys=True).encode("utf-8", "surrogateescape")
        return cache_folder() / hashlib.sha256(told).hexdigest()[:32]


@dataclass(frozen=True)
class Entry:
    """All files under one key."""

    key: Key
    photos: int
    size: int
    """Size in bytes."""
    used: datetime


class EmbeddingCache:
    """The cache as used by one job."""

    def __init__(self) -> None:
        self.limit = size_limit()
        self.problem: str | None = None
        """Why caching was given up, if so; the job continues without it."""
        self._kept: dict[Path, int] = {}

    @property
    def kept(self) -> int:
        """The number of the job's photos whose embeddings are now cached."""
        return sum(count for path, count in self._kept.items() if path.exists())

    def load(self, key: Key, stamps: Stamps) -> dict[int, KeptPhoto]:
        """Cached features of unchanged photos, by row."""
        missing = {tuple(stamp) for stamp in stamps if stamp}
        known: dict[tuple[Any, ...], KeptPhoto] = {}
        width = None
        for path in _pieces(key.folder):
            if not missing:
                break
            found = _read(path, key, missing)
            width = next((len(row) for row, _ in found.values()), None) if width is None else width
            if not found or any(len(row) != width for row, _ in found.values()):
                continue
            known |= found
            missing -= found.keys()
            self._kept[path] = len(found)
            with suppress(OSError):
                os.utime(path)  # files used last are evicted last
        return {row: known[tuple(stamp)] for row, stamp in enumerate(stamps) if tuple(stamp) in known}

    def keep(
        self, batches: Iterable[PhotoBatch], key: Key, stamps: Stamps
    ) -> Generator[PhotoBatch, None, None]:
        """Pass features through while caching them chunk by chunk, also if the job is interrupted."""
        rows: list[int] = []
        parts: list[PhotoBatch] = []
        size = FIRST_PIECE
        try:
            for batch in batches:
                told = [place for place, row in enumerate(batch.rows) if stamps[row]]
                if told:
                    rows += [batch.rows[place] for place in told]
                    parts.append(PhotoBatch([], batch.inputs[told], {}, batch.measures[told]))
                if len(rows) >= min(size, PIECE):
                    self._save(parts, key, [stamps[row] for row in rows])
                    size += len(rows)
                    rows, parts = [], []
                yield batch
        finally:
            if rows:
                self._save(parts, key, [stamps[row] for row in rows])

    def _save(self, parts: list[PhotoBatch], key: Key, stamps: Stamps) -> None:
        if self.problem is not None or self.limit <= 0:
            return
        folder, path = cache_folder(), key.folder / f"{uuid.uuid4().hex}.safetensors"
        try:
            if not may_write(folder):
                raise PermissionError(None, "not writable")
            folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            folder.chmod(0o700)  # it reveals which photos a user has
            write_tensors(path, _as_tensors(parts), {**key.describe(), "stamps": stamps})
        except (InputError, OSError) as error:
            reason = getattr(error.__cause__ or error, "strerror", None) or error
            self.problem = f"embeddings are not kept for the next time: {folder}: {reason}"
            return
        self._kept[path] = len(stamps)
        _make_room(self.limit)


def cache_folder() -> Path:
    """The cache folder of embeddings."""
    return user_cache() / FOLDER


def size_limit() -> float:
    """The maximum size in bytes."""
    told = os.environ.get(LIMIT_VARIABLE) or CACHE_LIMIT
    try:
        limit = float(told)
    except ValueError:
        limit = math.nan
    if not 0 <= limit < math.inf:
        raise InputError(f"{LIMIT_VARIABLE}: {told!r} is not a size in gigabytes, 0 or more")
    return limit * 1e9


def list_entries() -> list[Entry]:
    """All entries, most recently used first."""
    entries = []
    for folder in _list(cache_folder(), "*"):
        told = [(_describe(path), _status(path)) for path in _pieces(folder)]
        found = [(about, status) for about, status in told if status and _key(about).folder == folder]
        if found:
            size = sum(status.st_size for _, status in found)
            used = datetime.fromtimestamp(max(status.st_mtime for _, status in found), UTC)
            photos = sum(len(about["stamps"]) for about, _ in found)
            entries.append(Entry(_key(found[0][0]), photos, size, used))
    return sorted(entries, key=lambda entry: entry.used, reverse=True)


def clear() -> int:
    """Remove all entries; returns their size in bytes."""
    freed = 0
    for folder in _list(cache_folder(), "*"):
        for path in _pieces(folder):
            status = _status(path)
            try:
                path.unlink()
            except OSError as error:
                raise InputError(f"{path}: can't be removed: {error.strerror}") from error
            freed += status.st_size if status is not None else 0
        with suppress(OSError):  # another process has just started to use it
            folder.rmdir()
    return freed


def _make_room(limit: float) -> None:
    """Remove the least recently used files until the cache is within its limit."""
    paths = _list(cache_folder(), "*/*.safetensors")
    found = [(status.st_mtime_ns, status.st_size, path) for path in paths if (status := _status(path))]
    total = sum(size for _, size, _ in found)
    for _, size, path in sorted(found):
        if total <= limit:
            return
        with suppress(OSError):
            path.unlink()
        total -= size


def _pieces(folder: Path) -> list[Path]:
    return _list(folder, "*.safetensors")


def _list(folder: Path, pattern: str) -> list[Path]:
    """Visible entries of a folder; none if unreadable."""
    try:
        return [path for path in sorted(folder.glob(pattern)) if not path.name.startswith(".")]
    except OSError:
        return []


def _status(path: Path) -> os.stat_result | None:
    """None if another process has just removed the file."""
    try:
        return path.stat()
    except OSError:
        return None


def _describe(path: Path) -> dict[str, Any]:
    """The metadata of a file; empty if damaged."""
    try:
        about = read_tensors(path, values=False)[1]
    except InputError:
        about = {}
    return {**about, "stamps": about["stamps"] if isinstance(about.get("stamps"), list) else []}


def _key(about: dict[str, Any]) -> Key:
    return Key(*(str(about.get(name)) for name in ("embedder", "version", "data")))


def _as_tensors(parts: list[PhotoBatch]) -> dict[str, torch.Tensor]:
    """Features, and every column of the measures, by name."""
    measures: Measures = np.concatenate([part.measures for part in parts])
    columns = {name: torch.as_tensor(measures[name].copy()) for name in MEASURES.names or ()}
    return {**columns, "features": torch.as_tensor(np.concatenate([part.inputs for part in parts]))}


def _read(path: Path, key: Key, wanted: set[tuple[Any, ...]]) -> dict[tuple[Any, ...], KeptPhoto]:
    """The requested rows of a file; a damaged file is removed, one of something else left alone."""
    try:
        about = read_tensors(path, values=False)[1]
        if {name: about.get(name) for name in key.describe()} != key.describe():
            return {}
        rows = {stamp: row for row, stamp in enumerate(map(tuple, about["stamps"])) if stamp in wanted}
        if not rows:
            return {}
        tensors = read_tensors(path)[0]
        features = tensors["features"].numpy()
        measures = np.empty(len(about["stamps"]), dtype=MEASURES)
        for name in MEASURES.names or ():
            measures[name] = tensors[name].numpy()
        if features.ndim != 2 or features.dtype != np.float32 or len(features) != len(about["stamps"]):
            raise ValueError("other features than stamps")
        return {stamp: (features[row].copy(), measures[row].copy()) for stamp, row in rows.items()}
    except (InputError, KeyError, TypeError, ValueError):
        with suppress(OSError):
            path.unlink()
        return {}
