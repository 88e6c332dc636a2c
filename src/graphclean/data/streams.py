"""Arrays and tables of new data that are read in pieces, so that memory use does not grow with their number.

What does not allow that (a .csv, arrays stored by column, tables whose features are text) is left to the
readers of whole files, and so is all that is small or that they would refuse.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..errors import InputError
from .arrays import Pixels, to_bytes
from .embeddings import UNNAMED, feature_columns, pick_features
from .numpy_files import Numbers, StoredArray, list_arrays, load_arrays, one_a_row, pick_array, pick_labels
from .tables import (
    PARQUET,
    Names,
    Table,
    check_names,
    find_column,
    find_id,
    open_parquet,
    read_batches,
    read_table,
    usual_columns,
)

PIECE_BYTES = 2**25
"""Bytes of a piece in memory, as it is read."""
STEP = 4096
"""Pieces have a multiple of so many rows: models take as many at once, and so see the same batches."""
LEAST_ROWS = 1024
"""Rows of a piece if `STEP` of them are too large."""


@dataclass(frozen=True)
class Stream:
    """Rows of a file, read in pieces."""

    count: int
    """The number of rows."""
    blocks: Callable[[], Iterator[Numbers]]
    """Reads all rows in order, from the start each time."""
    labels: Any = None
    """All labels, if requested."""
    ids: Sequence[str] | None = None


def piece_rows(row_bytes: int) -> int:
    """The number of rows of a piece, if each takes so many bytes."""
    rows = PIECE_BYTES // max(row_bytes, 1)
    return rows // STEP * STEP if rows >= STEP else LEAST_ROWS


def stream_features(
    path: Path, names: Names, *, labeled: bool, columns: Sequence[str] | None, least_bytes: int = 0
) -> Stream | None:
    """Embeddings as `read_embeddings` would read them, if there are more than a piece; else None.

    A row counts at least `least_bytes`, for what is computed from it.
    """
    return _unless_refused(lambda: _stream_features(path, names, labeled, columns, least_bytes))


def stream_images(
    path: Path, names: Names, pixels: Pixels, *, labeled: bool, least_bytes: int = 0
) -> Stream | None:
    """Images as `read_images` would read them, if they are bytes and more than a piece; else None."""

    def find() -> Stream | None:
        arrays = list_arrays(path)
        held = {name: array.stand_in() for name, array in arrays.items()}
        images = pick_array(path, held, names.images_key, lambda a: a.ndim in (3, 4), "", "")
        stored = _stored(arrays, held, images)
        found = _stream_array(path, names, stored, held, labeled=labeled, least_bytes=least_bytes)
        if found is None or stored.dtype != np.uint8:  # the range of other types is that of all values
            return None
        blocks = found.blocks
        convert = lambda block: to_bytes(block, pixels, where=str(path))[0]  # noqa: E731
        return Stream(found.count, lambda: map(convert, blocks()), found.labels)

    return _unless_refused(find)


def _unless_refused(find: Callable[[], Stream | None]) -> Stream | None:
    """What the readers of whole files would refuse is left to them: their message says what is wrong."""
    try:
        return find()
    except InputError:
        return None


def _stream_features(
    path: Path, names: Names, labeled: bool, columns: Sequence[str] | None, least_bytes: int
) -> Stream | None:
    if path.suffix.lower() in PARQUET and names.features_key is None and names.labels_key is None:
        return _stream_table(path, names, labeled, columns, least_bytes)
    if path.suffix.lower() not in (".npz", ".npy") or names.label_column or names.id_column:
        return None
    arrays = list_arrays(path)
    held = {name: array.stand_in() for name, array in arrays.items()}
    features = pick_features(path, held, names)
    if features.ndim != 2 or features.dtype.kind not in "fiu":
        return None
    stored = _stored(arrays, held, features)
    return _stream_array(path, names, stored, held, labeled=labeled, least_bytes=least_bytes)


def _stored(arrays: dict[str, StoredArray], held: dict[str, Numbers], chosen: Numbers) -> StoredArray:
    return next(arrays[name] for name, array in held.items() if array is chosen)


def _stream_array(
    path: Path,
    names: Names,
    stored: StoredArray,
    held: dict[str, Numbers],
    *,
    labeled: bool,
    least_bytes: int,
) -> Stream | None:
    count, itemsize = stored.shape[0], stored.dtype.itemsize
    rows = piece_rows(max(itemsize * int(np.prod(stored.shape[1:])), least_bytes))
    if not stored.readable or count <= rows or (labeled and stored.member is None):
        return None
    labels = None
    if labeled:
        chosen = pick_array(path, held, names.labels_key, lambda a: one_a_row(a.shape), "", "")
        name = next(name for name, array in held.items() if array is chosen)
        labels = pick_labels(path, load_arrays(path, name), name)
    return Stream(count, lambda: stored.blocks(rows), labels)


def _stream_table(
    path: Path, names: Names, labeled: bool, columns: Sequence[str] | None, least_bytes: int
) -> Stream | None:
    with open_parquet(path) as file:
        schema, count = file.schema_arrow, file.metadata.num_rows
    header = check_names(path, None, schema.names)
    label = names.label_column
    if labeled or label is not None or usual_columns(header, {"label"}):
        label = find_column(path, header, label, {"label"}, "label")
    id_column = find_id(path, header, names.id_column)
    rest = [name for name in header if name not in (label, id_column) and not UNNAMED.fullmatch(name)]
    rest = list(columns) if columns is not None else rest
    kinds = [schema.field(name).type for name in rest]
    lists = len(kinds) == 1 and _holds_lists(kinds[0])
    width = _list_bytes(path) if lists else 8 * len(rest)
    rows = piece_rows(max(width, least_bytes))
    if not (lists or all(map(_is_number, kinds))) or count <= rows:
        return None

    def blocks() -> Iterator[Numbers]:
        shapes = set()
        for batch in _regroup(read_batches(path, rest, rows), rows):
            block = feature_columns(path, Table(path, batch.select(rest)).frame(), rest)[0]
            shapes.add(block.shape[1])
            if len(shapes) > 1:
                raise InputError(f"{path}: the lists in column {rest[0]!r} are not all of one length")
            yield block

    # A column that numbers the rows is an index, which the reader of whole tables leaves out.
    if columns is None and not lists and _number_rows(blocks()).any():
        return None
    labels = read_table(path, [label]).frame()[label] if labeled and label is not None else None
    ids = TextColumn.hold(read_table(path, [id_column]).texts(id_column)) if id_column is not None else None
    return Stream(count, blocks, labels, ids)


def _is_number(kind: pa.DataType) -> bool:
    return any(check(kind) for check in (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean))


def _holds_lists(kind: pa.DataType) -> bool:
    lists = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(check(kind) for check in lists) and _is_number(kind.value_type)


def _list_bytes(path: Path) -> int:
    """The size of a row of lists at most, as 8 bytes a number; all columns of the file count."""
    with open_parquet(path) as file:
        held = file.metadata
        whole = sum(held.row_group(place).total_byte_size for place in range(held.num_row_groups))
        return int(whole * 8 // max(held.num_rows, 1))


def _regroup(batches: Iterator[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """The same rows, so many at a time: batches end where row groups do."""
    waiting: list[pa.RecordBatch] = []
    for batch in batches:
        waiting.append(batch)
        while sum(map(len, waiting)) >= rows:
            whole = pa.Table.from_batches(waiting)
            yield whole.slice(0, rows)
            waiting = whole.slice(rows).to_batches()
    if sum(map(len, waiting)):
        yield pa.Table.from_batches(waiting)


def _number_rows(blocks: Iterator[Numbers]) -> Numbers:
    """The columns that hold whole numbers which increase row by row."""
    found, last = np.ones(1, dtype=bool), np.full(1, -np.inf)
    for block in blocks:
        rising = (np.diff(block, axis=0) > 0).all(0) & (block[0] > last)
        found, last = found & rising & (block == np.round(block)).all(0), block[-1]
        if not found.any():
            break
    return found


@dataclass(frozen=True)
class TextColumn(Sequence[str]):
    """Many texts in Arrow, which takes a fifth of the memory of a list."""

    texts: pa.Array

    @classmethod
    def hold(cls, texts: list[str]) -> "TextColumn":
        """The same texts."""
        return cls(pa.array(texts, pa.large_string()))

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, place: Any) -> Any:
        found = self.texts[place]
        return found.to_pylist() if isinstance(place, slice) else found.as_py()


@dataclass(frozen=True)
class RowNumbers(Sequence[str]):
    """The names of rows that have none: their numbers, from 0."""

    total: int

    def __len__(self) -> int:
        return self.total

    def __getitem__(self, place: Any) -> Any:
        found = range(self.total)[place]
        return [str(row) for row in found] if isinstance(found, range) else str(found)
