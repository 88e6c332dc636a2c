"""Tables that name photos: a path and a label a row."""

import csv
import difflib
import os
import stat
from collections.abc import Callable
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import InputError, MissingLabels
from .image_folder import SUFFIXES, ImageFiles, check_files, check_place
from .images import MISSING
from .tables import PARQUET, listed, separator, usual_column

PATH_COLUMNS = {"path", "file", "filename", "file_name", "filepath", "image", "image_path"}
LABEL_COLUMNS = {"label", "class", "category", "target", "y"}
GLANCE = 20
"""Rows by which a table is taken for one of photos or of embeddings."""
FEW_NUMBERS = 16
"""Number columns from which a table with paths is one of embeddings."""
NOT_FETCHED = "a web address, which is not fetched"

Choose: TypeAlias = Callable[[list[str]], list[int]]
"""From a table's header to the places of the columns that are wanted."""


def read_manifest(
    path: Path,
    *,
    path_column: str | None = None,
    label_column: str | None = None,
    id_column: str | None = None,
    labelled: bool = True,
) -> ImageFiles:
    """The photos that a CSV, TSV or parquet table names, in its order; paths start from its folder.

    Columns are named by the caller or known by their usual names. Ids are the paths as written unless there
    is a column `id`, or an `id_column` is named. Paths that leave the table's folder are never opened.
    """
    if not path.is_file():
        raise InputError(f"{path} is not a file" if path.exists() else f"no such file: {path}")

    def choose(header: list[str]) -> list[int]:
        chosen = [find_column(path, header, path_column, PATH_COLUMNS, "path")]
        if labelled:
            chosen.append(find_column(path, header, label_column, LABEL_COLUMNS, "label"))
        if id_column is not None or usual_column(header, "id") is not None:
            chosen.append(find_column(path, header, id_column, {"id"}, "id"))
        return chosen

    read = _read_parquet if path.suffix.lower() in PARQUET else _read_text
    columns = read(path, choose)
    if not columns[0]:
        raise InputError(f"{path} has no rows")
    root = Path(os.path.realpath(path.parent))
    find = _Finder(root)
    places = [find(cell) for cell in columns[0]]
    images = ImageFiles(
        root=root,
        paths=[place if isinstance(place, Path) else None for place in places],
        ids=columns[-1] if len(columns) == 2 + labelled else columns[0],
        labels=columns[1] if labelled else None,
        problems={row: place for row, place in enumerate(places) if isinstance(place, str)},
    )
    check_files(images, path)
    return images


def looks_like_manifest(path: Path) -> bool:
    """Whether a table names photos: a usual path column with an image's name in it, and few numbers.

    A table of embeddings may hold paths too; what it has and a manifest has not is many numbers, or a list.
    """
    try:
        header, rows = _first_rows(path)
    except (OSError, ValueError, csv.Error, pa.ArrowException):
        return False
    cells = rows[0] if rows else []
    places = [place for place, name in enumerate(header) if name.lower() in PATH_COLUMNS]
    named = [str(row[place]) for row in rows for place in places if place < len(row)]
    numbers = sum(_is_number(cell) for cell in cells)
    lists = any(isinstance(cell, list) or str(cell).lstrip().startswith("[") for cell in cells)
    return (
        any(Path(cell.strip()).suffix.lower() in SUFFIXES for cell in named)
        and numbers < FEW_NUMBERS
        and not lists
    )


def _first_rows(path: Path) -> tuple[list[str], list[list[Any]]]:
    """The header and the first few rows of a table."""
    if path.suffix.lower() in PARQUET:
        with pq.ParquetFile(path) as file:
            header = list(file.schema_arrow.names)
            rows = next(file.iter_batches(batch_size=GLANCE)).to_pylist() if file.metadata.num_rows else []
        return header, [[row[name] for name in header] for row in rows]
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=separator(path, file.readline()))
        file.seek(0)
        return [name.strip() for name in next(reader, [])], list(islice(reader, GLANCE))


def _is_number(cell: Any) -> bool:
    try:
        float(cell.replace(",", ".") if isinstance(cell, str) else cell)
    except (TypeError, ValueError):
        return False
    return True


def find_column(path: Path, header: list[str], asked: str | None, usual: set[str], what: str) -> int:
    """The place of a column: the one that was asked for, or the only one with a usual name."""
    names = [name.lower() for name in header] if asked is None else header
    found = [place for place, name in enumerate(names) if name in (usual if asked is None else {asked})]
    if len(found) == 1:
        return found[0]
    if found:
        which = ", ".join(header[place] for place in found)
        raise InputError(
            f"{path}: more than one column could hold the {what} ({which}); say which with --{what}-column"
        )
    there = listed(header)
    if asked is None:
        missing = f"{path}: no column is known to hold the {what} (there are: {there})"
        advice = f"say which one does, with --{what}-column"
        raise MissingLabels(missing, advice) if what == "label" else InputError(f"{missing}; {advice}")
    near = difflib.get_close_matches(asked, header, n=1, cutoff=0.5)
    hint = f'did you mean "{near[0]}"? ' if near else ""
    raise InputError(f'{path} has no column "{asked}"; {hint}there are: {there}')


def _read_text(path: Path, choose: Choose) -> list[list[str]]:
    """The chosen columns of a CSV or TSV file, every cell as it is written."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            parted = separator(path, file.readline())
            file.seek(0)
            reader = csv.reader(file, delimiter=parted, strict=True)
            header = [name.strip() for name in next(reader, [])]
            chosen = choose(header)
            columns: list[list[str]] = [[] for _ in chosen]
            for cells in filter(None, reader):
                if len(cells) != len(header):
                    counts = f"{len(cells)} cell{'s' if len(cells) > 1 else ''}, the header has {len(header)}"
                    raise InputError(f"{path}, line {reader.line_num}: {counts}")
                for column, place in zip(columns, chosen, strict=True):
                    column.append(cells[place])
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text; save it as a CSV in UTF-8") from error
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: {error}") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    return columns


def _read_parquet(path: Path, choose: Choose) -> list[list[str]]:
    """The chosen columns of a parquet file, as text."""
    try:
        with pq.ParquetFile(path) as file:
            header = list(file.schema_arrow.names)
            names = [header[place] for place in choose(header)]
            table = file.read(columns=names)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"cannot read {path} as parquet: {str(error).splitlines()[0]}") from error
    return [[cell_text(value, name, path) for value in table[name].to_pylist()] for name in names]


def cell_text(value: Any, name: str, path: Path) -> str:
    """A parquet value as a CSV would write it; numbers that became floats beside gaps are whole again."""
    if value is None or value != value:
        return ""
    if isinstance(value, dict | list | bytes):
        raise InputError(f'{path}: column "{name}" holds {type(value).__name__} values, not text or numbers')
    if isinstance(value, datetime):
        return str(value).removesuffix(" 00:00:00")
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


class _Finder:
    """The files that a table's cells name; a folder is resolved once, however many files of it are named."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folders: dict[str, Path | None] = {}
        """As written -> resolved; None where it leaves the root, or is odd."""

    def __call__(self, cell: str) -> Path | str:
        """The file, or why it is refused; tried as written, without spaces at its ends, and as Windows'."""
        if not cell.strip():
            return "no path"
        if cell.strip().lower().startswith(("http://", "https://")):
            return NOT_FETCHED
        spellings = dict.fromkeys([cell, cell.strip(), cell.strip().replace("\\", "/")])
        found = [self._find(spelling) for spelling in spellings]
        return next((place for place in found if isinstance(place, Path)), found[-1])

    def _find(self, cell: str) -> Path | str:
        try:
            return self._quick(cell) or self._resolve(cell)
        except (OSError, ValueError):  # a name too long, or with a NUL byte
            return MISSING

    def _quick(self, cell: str) -> Path | None:
        """A plain file in a folder inside the root, which nearly all are."""
        head, name = os.path.split(cell)
        if head not in self.folders:
            folder = Path(os.path.realpath(self.root / head))
            self.folders[head] = folder if folder.is_relative_to(self.root) else None
        known = self.folders[head]
        if known is None or name in ("", ".", ".."):
            return None
        target = known / name
        try:
            return target if stat.S_ISREG(target.lstat().st_mode) else None
        except FileNotFoundError:
            return None

    def _resolve(self, cell: str) -> Path | str:
        """A link inside the root stays one, so that it keeps its own name."""
        target = Path(os.path.realpath(self.root / cell))
        head, name = os.path.split(cell)
        folder = self.folders[head]
        return check_place(target, self.root) or (target if folder is None else folder / name)
