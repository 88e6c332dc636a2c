"""Embeddings in a list column of a large parquet file, read by row groups, as wide as they are stored."""

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..errors import InputError
from .memory import memory_size
from .numpy_files import Numbers
from .tables import PARQUET, guard, open_parquet

LARGE_ROWS = 200_000
"""A file of more rows is read by row groups."""
ARRAY_SHARE = 0.5
"""Fraction of the machine's memory above which the array is a temporary file."""


def find_list_column(path: Path) -> str | None:
    """The only column of lists of floats, if this is a large parquet file with one."""
    if path.suffix.lower() not in PARQUET:
        return None
    with open_parquet(path) as file:
        schema, rows = file.schema_arrow, file.metadata.num_rows
    lists = [field.name for field in schema if _is_list(field.type)]
    floats = len(lists) == 1 and pa.types.is_floating(schema.field(lists[0]).type.value_type)
    return lists[0] if floats and rows > LARGE_ROWS and schema.names.count(lists[0]) == 1 else None


def read_list_column(path: Path, name: str) -> Numbers:
    """The lists of a column as rows of an array."""
    array: Numbers | None = None
    at = 0
    with open_parquet(path) as file:
        rows = file.metadata.num_rows
        for number in range(file.num_row_groups):
            group = guard(path, lambda number=number: file.read_row_group(number, columns=[name]))  # type: ignore[misc]
            guard(path, lambda group=group: group.validate(full=True))  # type: ignore[misc]
            for chunk in group.column(0).chunks:
                part = _as_rows(path, chunk, name)
                if array is None:
                    array = _make_room(path, (rows, part.shape[1]), part.dtype)
                if part.shape[1] != array.shape[1]:
                    raise InputError(f"{path}: the lists in column {name!r} are not all of one length")
                array[at : at + len(part)] = part
                at += len(part)
    if array is None or at != rows:
        raise InputError(f"{path}: damaged: rows are missing")
    return array


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _as_rows(path: Path, chunk: Any, name: str) -> Numbers:
    if chunk.null_count:
        raise InputError(f"{path}: column {name!r} has rows without a list")
    values = chunk.flatten().to_numpy(zero_copy_only=False)
    lengths = np.unique(chunk.value_lengths().to_numpy(zero_copy_only=False))
    if len(lengths) != 1 or lengths[0] == 0:
        raise InputError(f"{path}: the lists in column {name!r} are not all of one length")
    return np.asarray(values.reshape(-1, int(lengths[0])))


def _make_room(path: Path, shape: tuple[int, int], dtype: np.dtype[Any]) -> Numbers:
    """An array in memory or, if it would take most of it, in a temporary file."""
    size = shape[0] * shape[1] * dtype.itemsize
    if size <= ARRAY_SHARE * memory_size():
        return np.empty(shape, dtype)
    try:
        with tempfile.TemporaryFile() as file:
            # Reserved first: a disk that fills up under a mapped file would end the process.
            os.posix_fallocate(file.fileno(), 0, size)
            return np.memmap(file, dtype, "r+", shape=shape)
    except OSError as error:
        place = tempfile.gettempdir()
        raise InputError(
            f"{path}: larger than memory, and {place} has no room for it ({error.strerror}); set TMPDIR"
        ) from error
