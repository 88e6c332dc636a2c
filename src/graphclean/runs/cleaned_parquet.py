"""A cleaned copy of a table that contains photos: the remaining rows, with corrected labels."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from .._files import replaced, sweep
from ..cleaning.inputs import encode_written
from ..data.parquet import PHOTOS_AT_ONCE, ImageTable
from ..data.progress import Progress
from ..data.tables import PARQUET
from ..errors import InputError, arg, occupied

OURS = b"graphclean"
"""Metadata key that identifies what a cleaned table was made from."""


def write_cleaned(
    images: ImageTable,
    table: pd.DataFrame,
    target: Path,
    *,
    dry_run: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> int:
    """Write the rows of `images` that `table` does not remove to `target`; returns 1 if it changed, else 0.

    All columns, their types and the metadata are kept; only labels differ. The table is read and written in
    batches.
    """
    if target.suffix.lower() not in PARQUET or target.is_dir():
        raise InputError(
            f"{target}: a cleaned table with photos in it is a .parquet; name one with {arg('out')}"
        )
    written = _labels_as_written(images, table)
    labels = [written.get(label) for label in _texts(table["label"])]
    mark = _mark(images, labels)
    if not dry_run:
        sweep(target.parent)  # leftovers of killed processes, even if nothing changes
    if target.exists():
        if read_mark(target) == mark:
            return 0
        if not overwrite:
            raise occupied(target, "the file differs")
    if dry_run:
        return 1
    schema = images.table.schema
    values = _as_values(labels, images, schema)
    with replaced(target) as draft:
        metadata = {**(schema.metadata or {}), OURS: mark}
        with pq.ParquetWriter(draft, schema.with_metadata(metadata)) as writer:
            done = 0
            for batch in images.table.batches(None, PHOTOS_AT_ONCE):
                writer.write_table(_clean(batch, values[done : done + len(batch)], images, schema, metadata))
                done += len(batch)
                if progress is not None:
                    progress("copying", done, len(labels))
    return 1


def _clean(
    batch: Any, values: list[Any], images: ImageTable, schema: pa.Schema, metadata: dict[bytes, bytes]
) -> pa.Table:
    whole = pa.table({name: batch[name] for name in schema.names}, schema=schema)
    place = schema.names.index(images.label_column)
    field = schema.field(place)
    whole = whole.set_column(place, field, pa.array(values, type=field.type))
    return whole.filter(pa.array([value is not None for value in values])).replace_schema_metadata(metadata)


def _labels_as_written(images: ImageTable, table: pd.DataFrame) -> dict[str | None, str]:
    """Label of a run -> label as written in the table; refuses a table that has changed since the run."""
    assert images.labels is not None
    given = encode_written(images.labels)
    names = _texts(given.names(given.codes))
    if images.ids != table["id"].tolist() or names != _texts(table["given_label"]):
        raise InputError(f"{images.table.name}: has changed since the run; make the run again")
    return {name: text for name, text in zip(names, images.labels, strict=True) if name is not None}


def _texts(labels: pd.Series) -> list[str | None]:
    return [None if pd.isna(label) else str(label) for label in labels]


def _as_values(labels: list[str | None], images: ImageTable, schema: pa.Schema) -> list[Any]:
    """Labels as values of the column: class numbers, or its own type; None for rows to remove."""
    kind = schema.field(images.label_column).type
    if images.classes and pa.types.is_integer(kind):
        numbers = {name: number for number, name in enumerate(images.classes)}
        return [None if label is None else numbers[label] for label in labels]
    values: list[Any] = pa.array(labels, pa.string()).cast(kind).to_pylist()
    return values


def _mark(images: ImageTable, labels: list[str | None]) -> bytes:
    """A hash of everything that determines the cleaned table."""
    described = json.dumps([images.stamps(), labels, images.label_column]).encode()
    return hashlib.sha256(described).hexdigest().encode()


def read_mark(target: Path) -> bytes | None:
    """The hash that identifies what a cleaned table was made from; None for other files."""
    try:
        with pq.ParquetFile(target) as file:
            mark: bytes | None = (file.schema_arrow.metadata or {}).get(OURS)
            return mark
    except (pa.ArrowException, OSError):
        return None
