"""Features of photos that were made before, so that they are not made again.

By the run that is replaced, by one that was stopped on the way, or by another on the same data beside it.
"""

import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from .._files import read_tensors, write_tensors
from ..embed import Batch
from ..errors import InputError
from .folder import CACHE, read_config

PIECE = 1024
"""Photos of which the inputs are in memory at a time, where not all have to be, or the features are kept."""

Stamp: TypeAlias = tuple[Any, ...]
Stamps: TypeAlias = list[list[Any]]
"""For each photo, what changes when it does; nothing where that can't be told."""


def load_features(
    data: Path, out: Path, described: dict[str, Any], stamps: Stamps
) -> dict[int, npt.NDArray[np.float32]]:
    """By row, the features of unchanged photos of `data` that are at hand for a run in `out`."""
    missing = {tuple(stamp) for stamp in stamps if stamp}
    known: dict[Stamp, npt.NDArray[np.float32]] = {}
    width = None
    for path in _find_files(out, data):
        if not missing:
            break
        found = _read(path, described, missing)
        width = next((len(row) for row in found.values()), None) if width is None else width
        known |= {stamp: row for stamp, row in found.items() if len(row) == width}
        missing -= known.keys()
    return {row: known[tuple(stamp)] for row, stamp in enumerate(stamps) if tuple(stamp) in known}


def save_features(path: Path, features: npt.NDArray[Any], described: dict[str, Any], stamps: Stamps) -> None:
    """Keep the features of photos with these stamps."""
    write_tensors(path, {"features": torch.as_tensor(features)}, {**described, "stamps": stamps})


def keep_pieces(
    batches: Iterator[Batch], out: Path, described: dict[str, Any], stamps: Stamps
) -> Iterator[Batch]:
    """Pass features on as they are made, and keep them beside `out` until the run is written.

    Of fewer than a piece nothing is kept: they are soon made again.
    """
    waiting: list[Batch] = []

    def keep() -> None:
        rows = [row for part in waiting for row in part.rows]
        features = np.concatenate([part.inputs for part in waiting if part.rows])
        path = _pieces(out) / f"{uuid.uuid4().hex}.safetensors"
        save_features(path, features, described, [stamps[row] for row in rows])
        waiting.clear()

    for batch in batches:
        yield batch
        if batch.rows:
            waiting.append(batch)
        if sum(len(part.rows) for part in waiting) >= PIECE:
            keep()
    if waiting and _pieces(out).exists():
        keep()


def count_kept(out: Path) -> int:
    """How many photos have features that were kept on the way."""
    return sum(len(_read_stamps(path)) for path in _pieces(out).glob("*.safetensors"))


def drop_pieces(out: Path) -> None:
    """Remove what was kept on the way: the run in `out` holds it all now."""
    shutil.rmtree(_pieces(out), ignore_errors=True)


def _pieces(out: Path) -> Path:
    place = Path(os.path.realpath(out))
    return place.parent / f".{place.name}.embeddings"


def _find_files(out: Path, data: Path) -> Iterator[Path]:
    """The nearest first."""
    place = Path(os.path.realpath(out))
    yield place / CACHE
    yield from _pieces(out).glob("*.safetensors")
    for path in sorted(place.parent.glob(f"*/{CACHE}")):
        if path.parent != place and _is_of(path.parent, data):
            yield path


def _is_of(run: Path, data: Path) -> bool:
    """Whether a run is of the same data, as far as its config tells; stamps tell the rest."""
    try:
        recorded = str(read_config(run).get("source", {}).get("data"))
    except InputError:
        return False
    return recorded == str(data) or os.path.realpath(recorded) == os.path.realpath(data)


def _read_stamps(path: Path) -> list[Any]:
    try:
        return list(read_tensors(path, values=False)[1]["stamps"])
    except (InputError, KeyError, TypeError):
        return []


def _read(path: Path, described: dict[str, Any], wanted: set[Stamp]) -> dict[Stamp, npt.NDArray[np.float32]]:
    """Features of those that are wanted; none where a file is missing, of another reading, or damaged."""
    try:
        _, metadata = read_tensors(path, values=False)
        if {name: metadata.get(name) for name in described} != described:
            return {}
        rows = {stamp: row for row, stamp in enumerate(map(tuple, metadata["stamps"])) if stamp in wanted}
        if not rows:
            return {}
        features = read_tensors(path)[0]["features"].numpy()
        if features.ndim != 2 or features.dtype != np.float32 or len(features) != len(metadata["stamps"]):
            return {}
        return {stamp: features[row].copy() for stamp, row in rows.items()}
    except (InputError, KeyError, TypeError, ValueError):
        return {}
