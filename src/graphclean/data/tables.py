"""Files that hold arrays, tables and labels, opened without trust. Nothing pickled is ever loaded."""

from __future__ import annotations

import csv
import difflib
import tokenize
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import InputError, MissingLabels

if TYPE_CHECKING:
    import pandas as pd

Numbers = npt.NDArray[Any]
T = TypeVar("T")

PARQUET = (".parquet", ".pq")
TABLES = (".csv", ".tsv", *PARQUET)
READING = (
    *(ValueError, TypeError, OSError, EOFError, LookupError, RuntimeError, MemoryError),
    *(zipfile.BadZipFile, zlib.error, tokenize.TokenError, csv.Error, pa.ArrowException),
)
"""What damaged, locked or foreign files make their readers raise."""
LONGEST = 2**31 - 1
"""Characters of a cell: the csv module's own limit is under a list of some thousand numbers."""


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


def check_file(path: Path) -> None:
    """Refuse what is not there, a folder, or an empty file."""
    if not path.exists():
        raise InputError(f"{path}: no such file")
    if path.is_dir():
        raise InputError(f"{path}: a folder, not a file")
    if path.stat().st_size == 0:
        raise InputError(f"{path}: the file is empty")


def refuse_unused(names: Names, name: str, path: Path) -> None:
    """Refuse an option that would have no effect on this kind of file."""
    if getattr(names, name) is not None:
        raise InputError(f"{path}: --{name.replace('_', '-')} does not apply to a {path.suffix} file")


def guard(path: Path, read: Callable[[], T]) -> T:
    """Run a reader; whatever a damaged or foreign file makes it raise becomes one line."""
    try:
        return read()
    except InputError:
        raise
    except MemoryError as error:
        raise InputError(f"{path}: too large for this machine's memory") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not text in UTF-8; save it as such") from error
    except READING as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if "pickle" in reason.lower():
            reason = "it holds pickled objects, which are never loaded; save plain arrays"
        raise InputError(f"{path}: can't be read: {reason}") from error


def load_arrays(path: Path) -> dict[str, Numbers]:
    """The arrays of a .npz by name; the one of a .npy under the file's name."""

    def read() -> dict[str, Numbers]:
        with path.open("rb") as file:
            if not file.read(6).startswith((b"\x93NUMPY", b"PK", b"\x80")):
                raise InputError(f"{path}: not a NumPy file")
            file.seek(0)
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return {path.stem: loaded}
            found = {name: loaded[name] for name in loaded.files}
            return {name: array for name, array in found.items() if isinstance(array, np.ndarray)}

    return guard(path, read)


def array_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of what `load_arrays` would load, from the headers alone; what is no array is left out."""

    def read() -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...] | None] = {}
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                for member in archive.namelist():
                    with archive.open(member) as file:
                        found[member.removesuffix(".npy")] = _read_shape(file)
        else:
            with path.open("rb") as file:
                found[path.stem] = _read_shape(file)
        return {name: shape for name, shape in found.items() if shape is not None}

    return guard(path, read)


def _read_shape(file: IO[bytes]) -> tuple[int, ...] | None:
    """Of the array that starts here."""
    if file.read(6) != b"\x93NUMPY":
        return None
    old = file.read(2) == b"\x01\x00"
    header = np.lib.format.read_array_header_1_0 if old else np.lib.format.read_array_header_2_0
    shape: tuple[int, ...] = header(file)[0]
    return shape


def pick_array(
    path: Path,
    arrays: dict[str, Numbers],
    key: str | None,
    fits: Callable[[Numbers], bool],
    what: str,
    option: str,
) -> Numbers:
    """The array that was named, or the only one that fits."""
    if key is not None:
        if key not in arrays:
            raise InputError(f"{path}: no array {key!r} in it{nearest(key, list(arrays))}")
        return arrays[key]
    fitting = [name for name, array in arrays.items() if fits(array)]
    if len(fitting) != 1:
        held = listed([f"{name} {array.shape}" for name, array in arrays.items()])
        count = "no" if not fitting else "more than one"
        raise InputError(f"{path}: {count} {what} in it (it holds {held}); name one with {option}")
    return arrays[fitting[0]]


def pick_labels(path: Path, arrays: dict[str, Numbers], key: str | None) -> Numbers:
    """The labels among arrays, flat; a single column, as some libraries keep labels, will do."""
    found = pick_array(path, arrays, key, lambda a: one_a_row(a.shape), "1-D array", "--labels-key")
    return found.reshape(-1) if one_a_row(found.shape) else found


def one_a_row(shape: tuple[int, ...]) -> bool:
    """Whether an array of this shape has one value a row, as labels have."""
    return len(shape) == 1 or (len(shape) == 2 and shape[1] == 1)


def separator(path: Path, header: str) -> str:
    """What parts the cells of a table, by its first line: spreadsheets write semicolons in many countries."""
    return "\t" if path.suffix.lower() == ".tsv" else max(",;\t", key=header.count)


def load_table(path: Path) -> pd.DataFrame:
    """A .csv or .tsv with every cell as text, or a .parquet with its types.

    `attrs["decimal"]` is what parts a number in it: a comma, where commas don't part cells, or a point.
    """
    import pandas as pd

    def read() -> pd.DataFrame:
        if path.suffix.lower() in PARQUET:
            frame: pd.DataFrame = pq.read_table(path).to_pandas()
            return frame
        with path.open(encoding="utf-8-sig", newline="") as file:
            parted = separator(path, file.readline())
        _check_header(path, parted)
        # As text first: a label column of 01, 02 or NA must stay what it is.
        frame = pd.read_csv(path, sep=parted, dtype=str, keep_default_na=False, encoding="utf-8-sig")
        frame = frame.rename(columns=str.strip)
        frame.attrs["decimal"] = "." if parted == "," else ","
        return frame

    table = guard(path, read)
    if len(table) == 0:
        raise InputError(f"{path}: the table has no rows")
    return table


def _check_header(path: Path, parted: str) -> None:
    """Refuse rows longer than the header: pandas would take the first column for an index, and shift.

    And a name that two columns have: pandas would call the second `label.1`, which would be a feature.
    """
    limit = csv.field_size_limit(LONGEST)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, delimiter=parted)
            header, first = next(reader, []), next(reader, [])
    finally:
        csv.field_size_limit(limit)
    if len(first) > len(header):
        raise InputError(f"{path}: rows have more cells than the header; is there a separator at their end?")
    names = Counter(name.strip() for name in header)
    twice = next((name for name, count in names.items() if name and count > 1), None)
    if twice is not None:
        raise InputError(f"{path}: two columns are called {twice!r}; rename one, or drop it")


def find_column(path: Path, table: pd.DataFrame, name: str | None, default: str, advice: str) -> str:
    """The column that was named, or the usual one; where it is missing, refused with the nearest name.

    `advice` is for who named none.
    """
    columns = [str(column) for column in table.columns]
    wanted = name if name is not None else usual_column(columns, default) or default
    if wanted not in columns:
        missing = f"{path}: no column {wanted!r} in it{nearest(wanted, columns)}"
        raise InputError(missing) if name is not None else MissingLabels(missing, advice)
    return wanted


def usual_column(columns: Sequence[str], usual: str) -> str | None:
    """The column with a usual name, in capitals or not, if there is one."""
    return usual if usual in columns else next((name for name in columns if name.lower() == usual), None)


def nearest(name: str, there: Sequence[str]) -> str:
    """For a message about a missing name: the nearest one, or what there is."""
    close = difflib.get_close_matches(name, there, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; it holds {listed(there)}"


def listed(names: Sequence[str]) -> str:
    """Names for a message, eight at most: a table of embeddings has a thousand columns."""
    return ", ".join([*names[:8], "…"] if len(names) > 8 else names) or "none"


def read_labels(path: Path, names: Names | None = None) -> Any:
    """Labels by themselves: an array, a table with a label column, or a .txt with one a line."""
    names = names if names is not None else Names()
    check_file(path)
    suffix = path.suffix.lower()
    if suffix == ".txt":
        text = guard(path, lambda: path.read_text(encoding="utf-8-sig"))
        return text.splitlines()
    if suffix in (".npy", ".npz"):
        arrays = load_arrays(path)
        return pick_labels(path, arrays, names.labels_key)
    if suffix in TABLES:
        table = load_table(path)
        if names.label_column is None and len(table.columns) == 1:
            return table[table.columns[0]]
        return table[find_column(path, table, names.label_column, "label", "name it with --label-column")]
    raise InputError(f"{path}: labels come as .npy, .npz, .txt, {', '.join(TABLES)}")


def match_labels(ids: Sequence[str] | None, labels: Path, names: Names) -> Any:
    """Labels from a file of their own: by id where both files have ids, else by position."""
    values = read_labels(labels, names)
    if ids is None or labels.suffix.lower() not in TABLES:
        return values
    table = load_table(labels)
    id_column = names.id_column if names.id_column is not None else usual_column(list(table.columns), "id")
    if id_column not in table.columns:
        return values
    keys = [str(value) for value in table[id_column]]
    by_id = dict(zip(keys, values, strict=True))
    missing = [key for key in ids if key not in by_id]
    if missing or len(by_id) < len(keys):
        problem = f"no label for id {missing[0]}" if missing else "an id stands more than once"
        raise InputError(f"{labels}: labels are matched by {id_column}, but there is {problem}")
    return [by_id[key] for key in ids]
