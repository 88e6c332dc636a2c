"""Arrays and tables in memory as a source."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..cleaning.inputs import check_embeddings
from ..data.arrays import to_bytes
from ..errors import InputError, arg
from .cells import hold_cells
from .inputs import NAMED, Source, find_kind, recorded_pixels
from .schema import SourceRecord


def hold_arrays(
    inputs: Any,
    labels: Any = None,
    ids: Sequence[Any] | None = None,
    show: Mapping[str, Any] | None = None,
) -> Source:
    """A source of features (N, d), or images (N, H, W), (N, H, W, C) or (N, C, H, W), and their labels.

    Without `ids`, samples are named by the pandas index, unless it merely counts the rows. The report shows
    the values in `show` with each sample, by name.
    """
    if labels is None:
        raise InputError(f"arrays contain no labels; give {arg('labels')}, one a sample")
    if isinstance(labels, str | Path):
        raise InputError(f"{arg('labels')} of arrays are a list or an array, not a path as {labels}")
    names = list(map(str, ids)) if ids is not None else _index_of(inputs, labels)
    cells = hold_cells(show if show is not None else {}, len(inputs))
    if getattr(inputs, "ndim", 2) > 2:
        images, pixels, notes = to_bytes(np.asarray(inputs))
        return Source(images, labels, names, notes, pixels=pixels, cells=cells)
    return Source(_as_features(inputs), labels, names, columns=_columns_of(inputs), cells=cells)


def hold_like(described: SourceRecord, inputs: Any, labels: Any, *, run: Path) -> Source:
    """New arrays of the kind that a run was made from; other kinds are refused."""
    kind = find_kind(described, run)
    images = getattr(inputs, "ndim", 2) > 2
    if kind == "photos" or images != (kind == "images"):
        these = "images" if images else "embeddings"
        raise InputError(f"the arrays are {these}, but {run} was made from {NAMED[kind]}")
    if images:
        pixels = recorded_pixels(described, run)
        return Source(to_bytes(np.asarray(inputs), pixels)[0], labels, pixels=pixels)
    columns = described.get("columns")
    if isinstance(inputs, pd.DataFrame) and columns is not None:
        missing = [name for name in columns if name not in inputs.columns.map(str)]
        if missing:
            raise InputError(f"the table has no column {missing[0]}, which {run} was made from")
        inputs = inputs.rename(columns=str)[columns]
    return Source(_as_features(inputs), labels, _index_of(inputs))


def _as_features(inputs: Any) -> npt.NDArray[np.float32]:
    """Features in the memory order of files, on which the last bits of sums depend."""
    return np.ascontiguousarray(check_embeddings(inputs, zeros=True))


def _index_of(*given: Any) -> list[str] | None:
    """The first pandas index that is more than row numbers."""
    tables = (part for part in given if isinstance(part, pd.DataFrame | pd.Series))
    index = next((part.index for part in tables if not isinstance(part.index, pd.RangeIndex)), None)
    return None if index is None else [str(name) for name in index]


def _columns_of(inputs: Any) -> list[str] | None:
    return [str(name) for name in inputs.columns] if isinstance(inputs, pd.DataFrame) else None
