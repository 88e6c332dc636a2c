"""Cells of the source's own table shown with each sample, such as a text, a caption or the origin."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from .._files import has_file, replaced
from ..data.image_folder import ImageSet
from ..data.numpy_files import load_arrays, one_a_row
from ..data.parquet import MANY, ImageTable
from ..data.tables import TABLES, Names, Table, cell_text, find_id, nearest, read_header, read_table
from ..errors import InputError, arg
from .folder import SHOWN_CELLS
from .photos import find_photos

LONGEST_SHOWN = 2000
"""Maximum number of characters kept of a cell."""

Cells: TypeAlias = dict[str, list[str]]
"""Column -> text, one per sample."""


@dataclass(frozen=True)
class CellTable:
    """A table with columns that can be shown."""

    path: Path
    header: list[str]
    read: Callable[[list[str]], Cells]
    ids: Callable[[], list[str] | None]
    """Ids of its rows; None if rows are matched by their order alone."""


class Shown:
    """The columns to show, located before anything slow is read."""

    def __init__(
        self, columns: Sequence[str], data: Path, names: Names, *, labels: Path | None, photos: bool
    ) -> None:
        self.columns = list(dict.fromkeys(columns))
        self.tables = _find_tables(data, names, labels, photos=photos) if self.columns else []
        there = [name for table in self.tables for name in table.header]
        for name in self.columns:
            if not self.tables:
                raise InputError(
                    f"{data}: {arg('show')} {name!r}: there is no table, and so no column, in it"
                )
            if name not in there:
                place = self.tables[0].path
                raise InputError(f"{place}: {arg('show')}: no column {name!r} in it{nearest(name, there)}")

    def read(self, ids: list[str]) -> Cells:
        """The cells of these samples."""
        found: Cells = {}
        for table in self.tables:
            wanted = [name for name in self.columns if name in table.header and name not in found]
            if wanted:
                found |= _align(table.read(wanted), table, ids)
        return {name: found[name] for name in self.columns}


def hold_cells(given: Mapping[str, Any], samples: int) -> Cells:
    """The cells of samples in memory."""
    found = {}
    for name, values in given.items():
        texts = [_cut(cell_text(value, str(name), Path(arg("show")))) for value in values]
        if len(texts) != samples:
            raise InputError(f"{arg('show')}: {name} holds {len(texts)} values for {samples} samples")
        found[str(name)] = texts
    return found


def write_cells(cells: Cells, folder: Path) -> None:
    """Write cells to a run folder, for its report and review."""
    if cells:
        with replaced(folder / SHOWN_CELLS) as draft:
            pd.DataFrame(cells, dtype=object).to_parquet(draft, index=False)


def read_texts(run: Path, samples: int) -> dict[str, pa.ChunkedArray]:
    """The cells of a run folder, in Arrow; empty if none were requested."""
    if not has_file(run / SHOWN_CELLS):
        return {}
    table = read_table(run / SHOWN_CELLS)
    if len(table.columns) != samples:
        raise InputError(
            f"{run / SHOWN_CELLS}: damaged: not one row a sample; delete it, or give {arg('show')}"
        )
    return {name: _texts(table, name) for name in table.columns.column_names}


def _texts(table: Table, name: str) -> pa.ChunkedArray:
    column = table.columns[name]
    kind = column.type
    if not pa.types.is_string(kind) and not pa.types.is_large_string(kind):
        column = pa.chunked_array([table.texts(name)], pa.large_string())
    return pc.utf8_slice_codeunits(pc.fill_null(column, ""), 0, LONGEST_SHOWN + 1)


def read_cells(run: Path, samples: int) -> Cells:
    """The same as text."""
    return {
        name: [_cut(text) for text in texts.to_pylist()] for name, texts in read_texts(run, samples).items()
    }


def _find_tables(data: Path, names: Names, labels: Path | None, *, photos: bool) -> list[CellTable]:
    """The tables that may contain the columns: the data itself, and its file of labels."""
    if photos:
        images = find_photos(data, names, labeled=False)
        if isinstance(images, ImageTable):
            return [_of_photos(images)]
        return [_of_file(data, lambda: images.ids)] if data.suffix.lower() in TABLES else []
    found = []
    for path in filter(None, (data, labels)):
        if path.suffix.lower() in TABLES:
            found.append(_of_file(path, lambda path=path: _read_ids(path, names)))  # type: ignore[misc]
        elif path.suffix.lower() == ".npz":
            found.append(_of_arrays(path))
    return found


def _of_file(path: Path, ids: Callable[[], list[str] | None]) -> CellTable:
    def read(columns: list[str]) -> Cells:
        table = read_table(path, columns)
        return {name: table.texts(name) for name in columns}

    return CellTable(path, read_header(path), read, ids)


def _read_ids(path: Path, names: Names) -> list[str] | None:
    header = read_header(path)
    name = find_id(path, header, names.id_column if names.id_column in header else None)
    return read_table(path, [name]).texts(name) if name is not None else None


def _of_arrays(path: Path) -> CellTable:
    arrays = {name: array for name, array in load_arrays(path).items() if one_a_row(array.shape)}

    def read(columns: list[str]) -> Cells:
        cells = {name: arrays[name].reshape(-1).tolist() for name in columns}
        return {name: [cell_text(value, name, path) for value in values] for name, values in cells.items()}

    return CellTable(path, list(arrays), read, lambda: None)


def _of_photos(images: ImageTable) -> CellTable:
    path = Path(images.table.name)

    def read(columns: list[str]) -> Cells:
        cells: Cells = {name: [] for name in columns}
        for batch in images.table.batches(columns, MANY):
            for name in columns:
                cells[name] += [cell_text(value, name, path) for value in batch[name].to_pylist()]
        return cells

    header = [name for name in images.table.schema.names if name != images.image_column]
    return CellTable(path, header, read, lambda: _ids_of(images))


def _ids_of(images: ImageSet) -> list[str]:
    return images.ids


def _align(cells: Cells, table: CellTable, ids: list[str]) -> Cells:
    """Match cells to samples, by id if both have ids, else by order; empty for samples without a row."""
    there, rows = table.ids(), len(next(iter(cells.values())))
    if there is not None and there != ids and set(there) & set(ids):
        place = {name: row for row, name in reversed(list(enumerate(there)))}
        return {
            name: [_cut(texts[place[one]]) if one in place else "" for one in ids]
            for name, texts in cells.items()
        }
    if rows != len(ids):
        raise InputError(f"{table.path}: {rows} rows for {len(ids)} samples, so its cells can't be shown")
    return {name: [_cut(text) for text in texts] for name, texts in cells.items()}


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"
