"""Tables that contain the photos themselves: parquet files with encoded images, and anything with that
interface.
"""

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import pyarrow as pa

from ..errors import InputError, arg
from .image_folder import ImageSet
from .image_tables import SPLIT_NAMES, check_parts, find_tables, schema_class_names
from .images import Encoded
from .manifests import LABEL_COLUMNS
from .tables import (
    PARQUET,
    Names,
    cell_text,
    check_names,
    find_column,
    find_id,
    listed,
    open_parquet,
    read_batches,
)

PHOTOS_AT_ONCE = 64
"""Rows with images read at a time."""
MANY = 10_000
"""Rows without images read at a time."""

Rows: TypeAlias = pa.RecordBatch | pa.Table


class PhotoTable(Protocol):
    """Rows of a table that is read in batches."""

    @property
    def name(self) -> str:
        """For messages."""

    @property
    def schema(self) -> pa.Schema: ...

    def batches(self, columns: list[str] | None, size: int) -> Iterator[Rows]:
        """All rows in order, with these columns (`image.path` selects a nested field), or all columns."""

    def stamps(self) -> Iterator[list[Any]]:
        """A signature for each row that changes when the table does."""

    def find_file(self, path: str) -> Path | None:
        """The file named by a cell without bytes, if files outside of the table are allowed."""


@dataclass(frozen=True)
class ParquetTable:
    """A parquet file, or several parts."""

    name: str
    parts: Sequence[Path]

    @property
    def schema(self) -> pa.Schema:
        """The schema of the first part; `batches` refuses parts that differ."""
        with open_parquet(self.parts[0]) as file:
            return file.schema_arrow

    def batches(self, columns: list[str] | None, size: int) -> Iterator[Rows]:
        """The requested rows, part by part."""
        expected = self.schema.remove_metadata()
        for path in self.parts:
            with open_parquet(path) as file:
                if file.schema_arrow.remove_metadata() != expected:
                    raise InputError(f"{path}: its columns are not those of {self.parts[0].name}")
            yield from read_batches(path, columns, size)

    def stamps(self) -> Iterator[list[Any]]:
        """Position in the part, and the part's name, size and modification time."""
        for path in self.parts:
            status = path.stat()
            with open_parquet(path) as file:
                for row in range(file.metadata.num_rows):
                    yield [path.name, row, status.st_size, status.st_mtime_ns]

    def find_file(self, path: str) -> Path | None:
        """None: files outside of a parquet file are never opened."""
        del path
        return None


@dataclass(frozen=True)
class ImageTable(ImageSet):
    """Photos in a column of a table, as bytes or as {bytes, path}."""

    table: PhotoTable
    image_column: str
    label_column: str | None
    classes: tuple[str, ...]
    """Class names, if labels are numbers that stand for them."""

    def items(self, skip: Container[int] = ()) -> Iterator[tuple[int, Encoded]]:
        """Row and bytes; None for empty cells, which `open_image` refuses."""
        row = 0
        for batch in self.table.batches([self.image_column], PHOTOS_AT_ONCE):
            for cell in batch[self.image_column]:
                if row not in skip and row not in self.problems:
                    yield row, self._content(cell)
                row += 1

    def stamps(self) -> list[list[Any]]:
        """The table's signatures, with the column."""
        return [[*stamp, self.image_column] for stamp in self.table.stamps()]

    def _content(self, cell: pa.Scalar) -> Encoded:
        value = cell.as_py()
        if not isinstance(value, dict):
            return value or b""
        if not value.get("bytes") and value.get("path"):
            return self.table.find_file(value["path"]) or b""
        return value.get("bytes") or b""


def image_columns(schema: pa.Schema) -> list[str]:
    """Columns of bytes, or of bytes with a path, as the Hugging Face hub stores images."""
    found = []
    for field in schema:
        kind = field.type
        if pa.types.is_struct(kind):
            kind = next((inner.type for inner in kind if inner.name == "bytes"), kind)
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            found.append(field.name)
    return found


def find_parts(data: Path, path_column: str | None = None) -> list[Path]:
    """The parquet files of `data`, a file or a folder, if they contain images; otherwise none.

    An explicit `path_column` decides if a table has both paths and images.
    """
    if data.is_dir():
        parts = [path for split in find_tables(data).values() for path in split]
    else:
        parts = [data] if data.suffix.lower() in PARQUET and data.is_file() else []
    if not parts:
        return []
    try:
        with open_parquet(parts[0]) as file:
            columns = image_columns(file.schema_arrow)
    except InputError:
        return []
    return parts if (path_column in columns if path_column is not None else columns) else []


def read_parquet_photos(data: Path, split: str | None, names: Names, *, labeled: bool = True) -> ImageTable:
    """The photos of a parquet file, or of a folder of parts; see `read_photo_table`."""
    parts = [data]
    if data.is_dir():
        splits = find_tables(data)
        parts = splits[choose_split(data, SPLIT_NAMES.get(split or "", split), list(splits))]
    check_parts(parts)
    return read_photo_table(ParquetTable(str(data), parts), names, labeled=labeled)


def choose_split(data: Path | str, asked: str | None, there: Sequence[str]) -> str:
    """The requested split, or the only one."""
    if asked is None and len(there) == 1:
        return there[0]
    which = f"there are {', '.join(sorted(there))}"
    if asked is None:
        raise InputError(f"{data}: name a split, as in {data}:{sorted(there)[-1]}; {which}")
    if asked not in there:
        raise InputError(f"{data}: no split {asked} in it; {which}")
    return asked


def read_photo_table(table: PhotoTable, names: Names, *, labeled: bool = True) -> ImageTable:
    """Ids and labels of a table of photos, in its order; the photos are read later, batch by batch.

    The images are the only column of bytes, or the one named as `path_column`. Labels are the one column of
    classes in the hub's metadata, a column with a usual name, or the one that is named; class numbers become
    their names, and negative numbers mean unlabeled. Ids are a column `id` or the one named, the paths stored
    with the bytes if all differ, or row numbers from 0.
    """
    where, schema = Path(table.name), table.schema
    check_names(where, None, schema.names)
    image = _choose_image(table, names.path_column)
    label = _choose_label(where, schema, names.label_column) if labeled else None
    identity = find_id(where, schema.names, names.id_column)
    kind = schema.field(image).type
    beside = pa.types.is_struct(kind) and kind.get_field_index("path") >= 0
    path = [f"{image}.path"] if beside and identity is None else []
    wanted = [name for name in (label, identity) if name is not None] + path
    labels: list[str] = []
    ids: list[str] = []
    classes = schema_class_names(schema, label) if label is not None else ()
    rows = 0
    for batch in table.batches(wanted or [image], MANY if wanted else PHOTOS_AT_ONCE):
        rows += len(batch)
        if label is not None:
            labels += [_label(value, classes, label, where) for value in batch[label].to_pylist()]
        if identity is not None:
            ids += [cell_text(value, identity, where) for value in batch[identity].to_pylist()]
        elif path:
            ids += [(value or {}).get("path") or "" for value in batch[image].to_pylist()]
    if rows == 0:
        raise InputError(f"{table.name}: the table has no rows")
    if identity is None and (len(set(ids)) < rows or "" in ids):
        ids = [str(row) for row in range(rows)]
    return ImageTable(ids, labels if labeled else None, {}, table, image, label, classes)


def _choose_image(table: PhotoTable, asked: str | None) -> str:
    there = image_columns(table.schema)
    if asked is not None and asked not in there:
        raise InputError(f"{table.name}: no column {asked!r} with images; there are: {listed(there)}")
    if asked is None and len(there) != 1:
        have = "more than one column holds" if there else "no column holds"
        columns = there or table.schema.names
        raise InputError(
            f"{table.name}: {have} images ({listed(columns)}); name one with {arg('path_column')}"
        )
    return asked if asked is not None else there[0]


def _choose_label(where: Path, schema: pa.Schema, asked: str | None) -> str:
    header: list[str] = schema.names
    named = [name for name in header if schema_class_names(schema, name)]
    if asked is None and len(named) == 1:
        return named[0]
    usual = LABEL_COLUMNS | {"fine_label"}
    return find_column(where, header, asked, usual, "label")


def _label(value: Any, classes: tuple[str, ...], name: str, where: Path) -> str:
    if not classes or not isinstance(value, int):
        return cell_text(value, name, where)
    if value >= len(classes):
        raise InputError(f"{where}: label {value} in column {name!r}, which names {len(classes)} classes")
    return classes[value] if value >= 0 else ""
