"""Embeddings and labels from files: .npz, .npy, .csv and .parquet. Nothing pickled is ever loaded."""

import csv
import difflib
import json
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import InputError

Numbers = npt.NDArray[Any]
T = TypeVar("T")

SUFFIXES = (".npz", ".npy", ".csv", ".tsv", ".parquet")


@dataclass(frozen=True)
class Names:
    """Which arrays or columns hold what, where the user said so."""

    features_key: str | None = None
    labels_key: str | None = None
    label_column: str | None = None
    id_column: str | None = None
    path_column: str | None = None
    """Of a table that names photos."""


@dataclass(frozen=True)
class EmbeddingSet:
    """Features, one row a sample, with labels and ids where the file has them."""

    features: Numbers
    labels: Any = None
    ids: list[str] | None = None
    notes: list[str] = field(default_factory=list)
    columns: list[str] | None = None
    """Names of the features, where they are columns of a table."""


def read_embeddings(
    path: Path,
    *,
    labels: Path | None = None,
    names: Names | None = None,
    labelled: bool = True,
    columns: Sequence[str] | None = None,
) -> EmbeddingSet:
    """Read embeddings, and their labels from the same file or from the file `labels`.

    With `labelled=False` labels are neither needed nor read (for prediction). `columns` are the features of
    the table an earlier run was made from: they are taken by name, whatever order they have here.
    """
    names = names if names is not None else Names()
    _check_file(path)
    own = labels is None
    if path.suffix.lower() in (".npz", ".npy"):
        for name in ("label_column", "id_column") if own else ():
            _refuse_unused(names, name, path)
        found = _read_numpy(path, names, labelled=labelled and labels is None)
    elif path.suffix.lower() in (".csv", ".tsv", ".parquet"):
        for name in ("features_key", "labels_key") if own else ("features_key",):
            _refuse_unused(names, name, path)
        found = _read_table(path, names, labelled=labelled and labels is None, columns=columns)
    else:
        kinds = ", ".join(SUFFIXES)
        raise InputError(f"{path}: embeddings come as {kinds}, not {path.suffix or 'a file without suffix'}")
    if not labelled:
        return found
    if labels is not None:
        return replace(found, labels=_match(found, labels, names))
    if found.labels is None:
        raise InputError(f"{path}: there are no labels in it; give them with --labels FILE")
    return found


def read_labels(path: Path, names: Names | None = None) -> Any:
    """Labels by themselves: an array, a table with a label column, or a .txt with one a line."""
    names = names if names is not None else Names()
    _check_file(path)
    suffix = path.suffix.lower()
    if suffix == ".txt":
        text = _guard(path, lambda: path.read_text(encoding="utf-8-sig"))
        return text.splitlines()
    if suffix in (".npy", ".npz"):
        arrays = _load_arrays(path)
        return _pick(path, arrays, names.labels_key, lambda a: a.ndim == 1, "1-D array", "--labels-key")
    if suffix in (".csv", ".tsv", ".parquet"):
        table = _load_table(path)
        if names.label_column is None and len(table.columns) == 1:
            return table[table.columns[0]]
        return table[_column(path, table, names.label_column, "label", "--label-column")]
    raise InputError(f"{path}: labels come as .npy, .npz, .txt, .csv, .tsv or .parquet")


def _check_file(path: Path) -> None:
    if not path.exists():
        raise InputError(f"{path}: no such file")
    if path.is_dir():
        raise InputError(f"{path}: a folder, not a file of embeddings")
    if path.stat().st_size == 0:
        raise InputError(f"{path}: the file is empty")


def _refuse_unused(names: Names, name: str, path: Path) -> None:
    if getattr(names, name) is not None:
        raise InputError(f"{path}: --{name.replace('_', '-')} does not apply to a {path.suffix} file")


def _guard(path: Path, read: Callable[[], T]) -> T:
    """Run a reader; whatever a damaged or foreign file makes it raise becomes one line."""
    try:
        return read()
    except InputError:
        raise
    except MemoryError as error:
        raise InputError(f"{path}: too large for this machine's memory") from error
    except (ValueError, OSError, EOFError, KeyError, zipfile.BadZipFile, pa.ArrowException) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if "pickle" in reason.lower():
            reason = "it holds pickled objects, which are never loaded; save plain arrays"
        raise InputError(f"{path}: can't be read: {reason}") from error


def _load_arrays(path: Path) -> dict[str, Numbers]:
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

    return _guard(path, read)


def _pick(
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
            raise InputError(f"{path}: no array {key!r} in it{_nearest(key, list(arrays))}")
        return arrays[key]
    fitting = [name for name, array in arrays.items() if fits(array)]
    if len(fitting) != 1:
        held = ", ".join(f"{name} {array.shape}" for name, array in arrays.items()) or "nothing"
        count = "no" if not fitting else "more than one"
        raise InputError(f"{path}: {count} {what} in it (it holds {held}); name one with {option}")
    return arrays[fitting[0]]


def _is_features(array: Numbers) -> bool:
    return array.ndim == 2 and bool(np.issubdtype(array.dtype, np.floating))


def _read_numpy(path: Path, names: Names, *, labelled: bool) -> EmbeddingSet:
    arrays = _load_arrays(path)
    if path.suffix.lower() == ".npy":
        return EmbeddingSet(next(iter(arrays.values())))
    features = _pick(path, arrays, names.features_key, _is_features, "2-D float array", "--features-key")
    if not labelled:
        return EmbeddingSet(features)
    flat = any(array.ndim == 1 for array in arrays.values())
    if names.labels_key is None and not flat:
        return EmbeddingSet(features)
    labels = _pick(path, arrays, names.labels_key, lambda a: a.ndim == 1, "1-D array", "--labels-key")
    return EmbeddingSet(features, labels)


def _load_table(path: Path) -> pd.DataFrame:
    def read() -> pd.DataFrame:
        if path.suffix.lower() == ".parquet":
            frame: pd.DataFrame = pq.read_table(path).to_pandas()
            return frame
        separator = "\t" if path.suffix.lower() == ".tsv" else ","
        # As text first: a label column of 01, 02 or NA must stay what it is.
        _check_width(path, separator)
        return pd.read_csv(path, sep=separator, dtype=str, keep_default_na=False, encoding="utf-8-sig")

    table = _guard(path, read)
    if len(table) == 0:
        raise InputError(f"{path}: the table has no rows")
    return table


def _match(found: EmbeddingSet, labels: Path, names: Names) -> Any:
    """Labels from a file of their own: by id where both files have ids, else by position."""
    values = read_labels(labels, names)
    if found.ids is None or labels.suffix.lower() not in (".csv", ".tsv", ".parquet"):
        return values
    table = _load_table(labels)
    id_column = names.id_column if names.id_column is not None else "id"
    if id_column not in table.columns:
        return values
    keys = [str(value) for value in table[id_column]]
    by_id = dict(zip(keys, values, strict=True))
    missing = [key for key in found.ids if key not in by_id]
    if missing or len(by_id) < len(keys):
        problem = f"no label for id {missing[0]}" if missing else "an id stands more than once"
        raise InputError(f"{labels}: labels are matched by {id_column}, but there is {problem}")
    return [by_id[key] for key in found.ids]


def _check_width(path: Path, separator: str) -> None:
    """Refuse rows longer than the header: pandas would take the first column for an index, and shift."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=separator)
        header, first = next(reader, []), next(reader, [])
    if len(first) > len(header):
        raise InputError(f"{path}: rows have more cells than the header; is there a comma at their end?")


def _read_table(
    path: Path, names: Names, *, labelled: bool, columns: Sequence[str] | None = None
) -> EmbeddingSet:
    table = _load_table(path)
    label = names.label_column
    if labelled or label is not None or "label" in table.columns:
        label = _column(path, table, label, "label", "--label-column")
    ids: list[str] | None = None
    id_column = names.id_column
    if id_column is not None or "id" in table.columns:
        id_column = _column(path, table, id_column, "id", "--id-column")
        ids = [str(value) for value in table[id_column]]
    rest = [str(name) for name in table.columns if name not in (label, id_column)]
    if columns is not None:
        missing = [name for name in columns if name not in rest]
        if missing:
            raise InputError(f"{path}: no column {missing[0]!r} in it, which the run was made with")
        rest = list(columns)
    features, used, ignored = _feature_columns(path, table, rest)
    notes = [f"columns that hold no numbers were ignored: {', '.join(ignored[:5])}"] if ignored else []
    given = table[label] if labelled and label is not None else None
    return EmbeddingSet(features, given, ids, notes, used)


def _column(path: Path, table: pd.DataFrame, name: str | None, default: str, option: str) -> str:
    wanted = name if name is not None else default
    columns = [str(column) for column in table.columns]
    if wanted not in columns:
        hint = _nearest(wanted, columns)
        say = "" if name is not None else f"; name it with {option}"
        raise InputError(f"{path}: no column {wanted!r} in it{hint}{say}")
    return wanted


def _nearest(name: str, there: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, there, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; it holds {', '.join(there[:8])}{', …' if len(there) > 8 else ''}"


def _feature_columns(
    path: Path, table: pd.DataFrame, columns: list[str]
) -> tuple[Numbers, list[str], list[str]]:
    """All numeric columns, or the one column of lists; their names; and the columns that are neither."""
    numeric: dict[str, Numbers] = {}
    lists: list[str] = []
    ignored: list[str] = []
    for name in columns:
        values = table[name]
        if pd.api.types.is_numeric_dtype(values.dtype):
            numeric[name] = values.to_numpy(dtype=np.float64, na_value=np.nan)
        elif _looks_like_list(values.iloc[0]):
            lists.append(name)
        elif (parsed := _as_numbers(values)) is not None:
            numeric[name] = parsed
        else:
            ignored.append(name)
    if (lists and numeric) or len(lists) > 1:
        raise InputError(
            f"{path}: features are either number columns or one list column, not {', '.join(lists)} too"
        )
    if lists:
        return _stack_lists(path, table[lists[0]], lists[0]), lists, ignored
    if not numeric:
        raise InputError(
            f"{path}: no feature columns: none of {', '.join(columns[:8]) or 'its columns'} holds numbers"
        )
    return np.column_stack(list(numeric.values())), list(numeric), ignored


def _looks_like_list(value: Any) -> bool:
    return isinstance(value, list | np.ndarray) or (isinstance(value, str) and value.lstrip().startswith("["))


def _as_numbers(values: pd.Series) -> Numbers | None:
    """A text column as numbers, NaN for empty cells; None if any other cell is not a number."""
    text = values.astype(str).str.strip()
    numbers = pd.to_numeric(text.mask(text == ""), errors="coerce")
    stray = numbers.isna() & (text != "") & (text.str.lower() != "nan")
    return None if bool(stray.any()) or bool(numbers.isna().all()) else numbers.to_numpy(dtype=np.float64)


def _stack_lists(path: Path, values: pd.Series, name: str) -> Numbers:
    def read() -> list[Numbers]:
        return [np.asarray(json.loads(v) if isinstance(v, str) else v, dtype=np.float64) for v in values]

    try:
        rows = _guard(path, read)
    except TypeError as error:
        raise InputError(f"{path}: column {name!r} holds something other than lists of numbers") from error
    lengths = {row.shape for row in rows}
    if len(lengths) != 1 or rows[0].ndim != 1:
        raise InputError(f"{path}: the lists in column {name!r} are not all of one length")
    return np.stack(rows)
