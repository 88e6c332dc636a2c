"""The one reader of tables (CSV, TSV, parquet), which trusts nothing in them.

What it gives has whole rows, one column a name, and text in UTF-8. Anything else is refused in one line.
"""

from __future__ import annotations

import csv
import difflib
import re
import tokenize
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import InputError, MissingLabels, arg

if TYPE_CHECKING:
    import pandas as pd

T = TypeVar("T")

PARQUET = (".parquet", ".pq")
TABLES = (".csv", ".tsv", *PARQUET)
READING = (
    *(ValueError, TypeError, OSError, EOFError, LookupError, RuntimeError, MemoryError),
    *(ArithmeticError, AttributeError, StopIteration),
    *(zipfile.BadZipFile, zlib.error, tokenize.TokenError, csv.Error, pa.ArrowException),
)
"""What damaged, locked or foreign files make their readers raise."""
LONGEST_CELL = 2**31 - 1
"""Characters of a cell: the csv module's own limit is under a list of some thousand numbers."""
WHOLE_FLOAT = re.compile(r"-?\d+\.0")
"""A whole number in a column of floats, as pandas writes it to a CSV."""
BLOCK = 1024
"""Rows of text that stand in memory as Python has them."""


@dataclass(frozen=True)
class Names:
    """Which arrays or columns hold what, where the user said so."""

    images_key: str | None = None
    features_key: str | None = None
    labels_key: str | None = None
    label_column: str | None = None
    id_column: str | None = None
    path_column: str | None = None
    """Of a table that names photos."""


def refuse_unused(names: Names, name: str, path: Path) -> None:
    """Refuse an argument that would have no effect on this kind of file."""
    if getattr(names, name) is not None:
        raise InputError(f"{path}: {arg(name)} does not apply to a {path.suffix} file")


def check_file(path: Path) -> None:
    """Refuse what is not there, a folder, or an empty file."""
    try:
        if not path.exists():
            raise InputError(f"{path}: no such file")
        if path.is_dir():
            raise InputError(f"{path}: a folder, not a file")
        if path.stat().st_size == 0:
            raise InputError(f"{path}: the file is empty")
    except OSError as error:
        raise InputError(f"{path}: can't be read: {error.strerror}") from error


def guard(path: Path, read: Callable[[], T]) -> T:
    """Run a reader; whatever a damaged or foreign file makes it raise becomes one line."""
    try:
        return read()
    except InputError:
        raise
    except MemoryError as error:
        raise InputError(f"{path}: too large for this machine's memory") from error
    except READING as error:
        lines = str(getattr(error, "strerror", None) or error).strip().splitlines()
        reason = lines[0] if lines else type(error).__name__
        if isinstance(error, UnicodeDecodeError) or "UTF8" in reason:
            raise InputError(f"{path}: not text in UTF-8; save it as such") from error
        if "pickle" in reason.lower():
            reason = "it holds pickled objects, which are never loaded; save plain arrays"
        raise InputError(f"{path}: can't be read: {reason}") from error


@dataclass(frozen=True)
class Table:
    """Columns of a file, in Arrow: as text those of a .csv or .tsv, with their types those of a .parquet."""

    path: Path
    columns: pa.Table
    decimal: str = "."
    """What parts a number in text: a comma, where commas don't part cells, or a point."""

    def frame(self) -> pd.DataFrame:
        """For pandas: what was an index there is a column, as it is in a CSV."""
        import pandas as pd

        whole = {pa.int64(): pd.Int64Dtype()}  # may have gaps
        bare = self.columns.replace_schema_metadata(None)
        frame: pd.DataFrame = guard(self.path, lambda: bare.to_pandas(types_mapper=whole.get))
        frame = frame.set_axis([str(name) for name in frame.columns], axis=1)
        frame.attrs = {"decimal": self.decimal}
        return frame

    def check_flat(self, name: str) -> None:
        """Refuse a column of lists or records where each row has a name or a number."""
        if pa.types.is_nested(self.columns.schema.field(name).type):
            raise InputError(f"{self.path}: column {name!r} holds lists or records, not text or numbers")

    def texts(self, name: str) -> list[str]:
        """A column as a CSV would write it, but for whole numbers that became floats beside gaps."""
        values = guard(self.path, self.columns[name].to_pylist)
        texts = [cell_text(value, name, self.path) for value in values]
        whole = all(WHOLE_FLOAT.fullmatch(text) for text in texts if text)
        return [text.removesuffix(".0") for text in texts] if whole else texts


def cell_text(value: Any, name: str, path: Path) -> str:
    """A value as a CSV would write it; numbers that became floats beside gaps are whole again."""
    if value is None or value != value:
        return ""
    if isinstance(value, dict | list | bytes):
        raise InputError(f'{path}: column "{name}" holds {type(value).__name__} values, not text or numbers')
    if isinstance(value, datetime):
        return str(value).removesuffix(" 00:00:00")
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def read_header(path: Path) -> list[str]:
    """The names of a table's columns."""
    check_file(path)
    if path.suffix.lower() in PARQUET:
        with open_parquet(path) as file:
            return list(file.schema_arrow.names)
    return guard(path, lambda: _read_rows(path, 0)[0])


def read_start(path: Path, rows: int) -> list[list[Any]]:
    """The first few rows of a table."""
    if path.suffix.lower() in PARQUET:
        batch = next(read_batches(path, None, rows), None)
        columns = [guard(path, column.to_pylist) for column in batch.columns] if batch is not None else []
        return [list(cells) for cells in zip(*columns, strict=True)]
    return guard(path, lambda: _read_rows(path, rows)[1])


def read_table(path: Path, names: Sequence[str] | None = None) -> Table:
    """These columns of a table, or all."""
    check_file(path)
    read = _read_parquet if path.suffix.lower() in PARQUET else _read_text
    table = guard(path, lambda: read(path, names))
    if len(table.columns) == 0:
        raise InputError(f"{path}: the table has no rows")
    return table


def open_parquet(path: Path) -> pq.ParquetFile:
    """A file that is mapped into memory: read plainly, a whole row group would stand there."""

    def read() -> pq.ParquetFile:
        file = pq.ParquetFile(path, memory_map=True)
        list(file.schema_arrow.names)  # where these are no text, it shows here
        return file

    return guard(path, read)


def read_batches(path: Path, columns: list[str] | None, size: int) -> Iterator[pa.RecordBatch]:
    """The rows of a parquet file in order, `size` at a time, with these columns (`image.path` is a part)."""
    with open_parquet(path) as file:
        batches = guard(path, lambda: file.iter_batches(size, columns=columns))
        missing = guard(path, lambda: file.metadata.num_rows)
        while (batch := guard(path, lambda: next(batches, None))) is not None:
            _check_text(path, batch)
            missing -= len(batch)
            yield batch
    if missing:
        raise InputError(f"{path}: damaged: rows are missing")


def _check_text(path: Path, table: pa.Table | pa.RecordBatch) -> None:
    """Refuse what is not as its type says: text that is not UTF-8, lists that end outside of the file."""
    guard(path, lambda: table.validate(full=True))


def _read_parquet(path: Path, names: Sequence[str] | None) -> Table:
    with open_parquet(path) as file:
        chosen = check_names(path, names, file.schema_arrow.names)
        table = file.read(columns=chosen).select(chosen)
        if len(table) != file.metadata.num_rows:
            raise InputError(f"{path}: damaged: rows are missing")
    _check_text(path, table)
    return Table(path, table)


def _read_text(path: Path, names: Sequence[str] | None) -> Table:
    """Every cell as it is written: a label column of 01, 02 or NA must stay what it is."""
    kind = pa.large_string()
    with _open_text(path) as (header, rows, decimal):
        chosen = check_names(path, names, header)
        places = [header.index(name) for name in chosen]
        blocks = []
        while block := list(islice(rows, BLOCK)):
            cells = list(zip(*block, strict=True))
            blocks.append([pa.array(cells[place], kind) for place in places])
    columns = [pa.chunked_array([block[i] for block in blocks], kind) for i in range(len(chosen))]
    return Table(path, pa.table(columns, names=chosen), decimal)


def _read_rows(path: Path, rows: int) -> tuple[list[str], list[list[str]]]:
    """The header of a .csv or .tsv, and some rows."""
    with _open_text(path) as (header, cells, _):
        return header, list(islice(cells, rows))


@contextmanager
def _open_text(path: Path) -> Iterator[tuple[list[str], Iterator[list[str]], str]]:
    """The header, the rows, and what parts a number, of a .csv or .tsv."""
    limit = csv.field_size_limit(LONGEST_CELL)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = next((line for line in file if line.strip()), "")
            # By the first line: spreadsheets write semicolons in many countries.
            parted = "\t" if path.suffix.lower() == ".tsv" else max(",;\t", key=first.count)
            file.seek(0)
            reader = csv.reader(file, delimiter=parted, strict=True)
            try:
                header = [name.strip() for name in next(filter(None, reader), [])]
                named = [name or f"Unnamed: {place}" for place, name in enumerate(header)]  # as pandas has it
                yield named, _whole_rows(path, reader, len(header)), "." if parted == "," else ","
            except csv.Error as error:
                raise InputError(f"{path}, line {reader.line_num}: {error}") from error
    finally:
        csv.field_size_limit(limit)


def _whole_rows(path: Path, reader: Any, width: int) -> Iterator[list[str]]:
    """Rows but for blank lines; one that is longer or shorter than the header is refused."""
    for cells in reader:
        if not cells or (len(cells) == 1 and cells[0].isspace()):
            continue
        if len(cells) != width:
            counts = f"{len(cells)} cell{'s' if len(cells) > 1 else ''}, the header has {width}"
            hint = "; is there a separator at its end?" if len(cells) > width and not cells[-1] else ""
            raise InputError(f"{path}, line {reader.line_num}: {counts}{hint}")
        yield cells


def check_names(path: Path, names: Sequence[str] | None, header: Sequence[str]) -> list[str]:
    """The names that were asked for, or all; one that two columns have is refused, as the second labels
    would be a feature.
    """
    names, counts = names if names is not None else header, Counter(header)
    twice = next((name for name in names if counts[name] > 1), None)
    if twice is not None:
        raise InputError(f"{path}: two columns are called {twice!r}; rename one, or drop it")
    return list(names)


def find_column(
    path: Path,
    header: Sequence[str],
    asked: str | None,
    usual: Collection[str],
    what: str,
    advice: str | None = None,
) -> str:
    """The column that was asked for, or the only one with a usual name; `advice` is for neither."""
    if asked is not None:
        if asked not in header:
            raise InputError(f"{path}: no column {asked!r} in it{nearest(asked, header)}")
        return asked
    found = usual_columns(header, usual)
    if len(found) > 1:
        which = f"more than one column could hold the {what} ({', '.join(found)})"
        raise InputError(f"{path}: {which}; name it with {arg(f'{what}_column')}")
    if found:
        return found[0]
    missing = f"{path}: no column is known to hold the {what} (there are: {listed(header)})"
    advice = advice if advice is not None else f"name the one that does with {arg(f'{what}_column')}"
    raise MissingLabels(missing, advice) if what == "label" else InputError(f"{missing}; {advice}")


def find_id(path: Path, header: Sequence[str], asked: str | None) -> str | None:
    """The column of ids, if there is one."""
    if asked is None and not usual_columns(header, {"id"}):
        return None
    return find_column(path, header, asked, {"id"}, "id")


def usual_columns(header: Sequence[str], usual: Collection[str]) -> list[str]:
    """The columns with usual names; one in capitals only where there is none without."""
    return [
        name for name in header if name in usual or (name.lower() in usual and name.lower() not in header)
    ]


def nearest(name: str, there: Sequence[str]) -> str:
    """For a message about a missing name: the nearest one, or what there is."""
    close = difflib.get_close_matches(name, there, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; it holds {listed(there)}"


def listed(names: Sequence[str]) -> str:
    """Names for a message, eight at most: a table of embeddings has a thousand columns."""
    return ", ".join([*names[:8], "…"] if len(names) > 8 else names) or "none"
