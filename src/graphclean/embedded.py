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

from .embed import Batch
from .errors import InputError
from .runfolder import CACHE, read_config, read_tensors, write_tensors

PIECE = 1024
"""Photos after which features are kept while more are made."""

Features: TypeAlias = npt.NDArray[np.float32]
Stamps: TypeAlias = list[list[Any]]
"""For each photo, what changes when it does; nothing where that can't be told."""


def load_features(data: Path, out: Path, described: dict[str, Any], stamps: Stamps) -> dict[int, Features]:
    """By row, the features of unchanged photos of `data` that are at hand for a run in `out`."""
    wanted = {tuple(stamp) for stamp in stamps if stamp}
    known: dict[tuple[Any, ...], Features] = {}
    for path in _find_files(out, data):
        if len(known) == len(wanted):
            break
        known |= {stamp: row for stamp, row in _read(path, described) if stamp in wanted}
    return {row: known[tuple(stamp)] for row, stamp in enumerate(stamps) if tuple(stamp) in known}


def save_features(path: Path, features: npt.NDArray[Any], described: dict[str, Any], stamps: Stamps) -> None:
    """Keep the features of photos with these stamps."""
    write_tensors(path, {"features": torch.as_tensor(features)}, {**described, "stamps": stamps})


def keep_pieces(
    batches: Iterator[Batch], out: Path, described: dict[str, Any], stamps: Stamps
) -> Iterator[Batch]:
    """Pass features on as they are made, and keep them beside `out` until the run is written."""
    waiting: list[Batch] = []
    for batch in batches:
        yield batch
        waiting.append(batch)
        rows = [row for part in waiting for row in part.rows]
        if len(rows) >= PIECE:
            features = np.concatenate([part.inputs for part in waiting if part.rows])
            path = _pieces(out) / f"{uuid.uuid4().hex}.safetensors"
            save_features(path, features, described, [stamps[row] for row in rows])
            waiting = []


def drop_pieces(out: Path) -> None:
    """Remove what was kept on the way: the run in `out` holds it all now."""
    shutil.rmtree(_pieces(out), ignore_errors=True)


def _pieces(out: Path) -> Path:
    return out.parent / f".{out.name}.embedded"


def _find_files(out: Path, data: Path) -> Iterator[Path]:
    """The nearest first."""
    yield out / CACHE
    yield from _pieces(out).glob("*.safetensors")
    for path in sorted(out.parent.glob(f"*/{CACHE}")):
        if path.parent != out and _is_of(path.parent, data):
            yield path


def _is_of(run: Path, data: Path) -> bool:
    """Whether a run is of the same data, as far as its config tells; stamps tell the rest."""
    try:
        recorded = str(read_config(run).get("source", {}).get("data"))
    except InputError:
        return False
    return recorded == str(data) or os.path.realpath(recorded) == os.path.realpath(data)


def _read(path: Path, described: dict[str, Any]) -> Iterator[tuple[tuple[Any, ...], Features]]:
    """Stamps and features; nothing where there are none, or they are of another reading or damaged."""
    if not path.is_file():
        return
    try:
        tensors, metadata = read_tensors(path)
        features = tensors["features"].numpy()
        if {name: metadata.get(name) for name in described} != described:
            return
        pairs = [(tuple(stamp), row) for stamp, row in zip(metadata["stamps"], features, strict=True)]
    except (InputError, KeyError, TypeError, ValueError):
        return
    yield from pairs
