"""Embeddings and labels from files: .npz, .npy, .csv and .parquet. Nothing pickled is ever loaded."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from ..errors import InputError, MissingLabels, arg, parse_json
from .labels import match_labels
from .numpy_files import Numbers, load_arrays, one_a_row, pick_array, pick_labels
from .row_groups import find_list_column, read_list_column
from .tables import (
    TABLES,
    Names,
    check_file,
    find_column,
    find_id,
    guard,
    listed,
    open_parquet,
    read_table,
    refuse_unused,
    usual_columns,
)

EMBEDDING_SUFFIXES = (".npz", ".npy", *TABLES)
UNNAMED = re.compile(r"Unnamed: \d+|__index_level_\d+__")
"""What pandas calls an index without a name in a .csv and in a .parquet file."""
BOOLEANS = {"true": 1.0, "false": 0.0}


@dataclass(frozen=True)
class EmbeddingSet:
    """Features, one row per sample, with labels and ids if the file has them."""

    features: Numbers
    labels: Any = None
    ids: list[str] | None = None
    notes: list[str] = field(default_factory=list)
    columns: list[str] | None = None
    """Names of the features, if they are columns of a table."""


def read_embeddings(
    path: Path,
    *,
    labels: Path | None = None,
    names: Names | None = None,
    labeled: bool = True,
    columns: Sequence[str] | None = None,
) -> EmbeddingSet:
    """Read embeddings, and their labels from the same file or from the file `labels`.

    With `labeled=False` (prediction) labels are neither required nor read. `columns` are the feature columns
    of the table that an earlier run used: they are matched by name, in any order.
    """
    names = names if names is not None else Names()
    check_file(path)
    own = labels is None
    refuse_unused(names, "images_key", path)
    if path.suffix.lower() in (".npz", ".npy"):
        for name in ("label_column", "id_column") if own else ():
            refuse_unused(names, name, path)
        found = _read_numpy(path, names, labeled=labeled and labels is None)
    elif path.suffix.lower() in TABLES:
        for name in ("features_key", "labels_key") if own else ("features_key",):
            refuse_unused(names, name, path)
        found = _read_table(path, names, labeled=labeled and labels is None, columns=columns)
    else:
        kinds = ", ".join(EMBEDDING_SUFFIXES)
        given = path.suffix or "a file without suffix"
        raise InputError(f"{path}: data comes as {kinds}, or as a folder of photos, not {given}")
    if not labeled:
        return found
    if labels is not None:
        return replace(found, labels=match_labels(found.ids, labels, names))
    if found.labels is None:
        raise MissingLabels(f"{path}: there are no labels in it", f"give them with {arg('labels')}")
    return found


def _is_table(array: Numbers) -> bool:
    return array.ndim == 2 and bool(np.issubdtype(array.dtype, np.floating))


def _is_features(array: Numbers) -> bool:
    return _is_table(array) and not one_a_row(array.shape)


def _read_numpy(path: Path, names: Names, *, labeled: bool) -> EmbeddingSet:
    arrays = load_arrays(path)
    features = pick_features(path, arrays, names)
    if not labeled or path.suffix.lower() == ".npy":
        return EmbeddingSet(features)
    if names.labels_key is None and not any(one_a_row(array.shape) for array in arrays.values()):
        return EmbeddingSet(features)
    return EmbeddingSet(features, pick_labels(path, arrays, names.labels_key))


def pick_features(path: Path, arrays: dict[str, Numbers], names: Names) -> Numbers:
    """The array of embeddings among those of a file: the one that was named, or the only suitable one."""
    shapes = [array.shape for array in arrays.values()]
    if names.features_key is None and max(map(len, shapes), default=0) > 2 and 2 not in map(len, shapes):
        raise InputError(f"{path}: it holds images, from which `graphclean train` learns, and no embeddings")
    if any(shape == () for shape in shapes) and (len(shapes) == 1 or names.features_key is not None):
        raise InputError(f"{path}: it holds a single value, and no embeddings")
    if path.suffix.lower() == ".npy":
        return next(iter(arrays.values()))
    fits = _is_features if any(map(_is_features, arrays.values())) else _is_table
    features = pick_array(path, arrays, names.features_key, fits, "2-D float array", arg("features_key"))
    if features.ndim == 2 and one_a_row(features.shape):
        raise InputError(
            f"{path}: the embeddings have one column; directions are compared, so at least two are needed"
        )
    return features


def _read_table(
    path: Path, names: Names, *, labeled: bool, columns: Sequence[str] | None = None
) -> EmbeddingSet:
    wide = find_list_column(path)
    if wide is not None:
        return _read_wide(path, names, wide, labeled=labeled, columns=columns)
    whole = read_table(path)
    table = whole.frame()
    header, label = list(table.columns), names.label_column
    if labeled or label is not None or usual_columns(header, {"label"}):
        advice = f"name it with {arg('label_column')}, or give labels with {arg('labels')}"
        label = find_column(path, header, label, {"label"}, "label", advice)
    id_column = find_id(path, header, names.id_column)
    for name in (label if labeled else None, id_column):
        if name is not None:
            whole.check_flat(name)
    ids = whole.texts(id_column) if id_column is not None else None
    rest = [name for name in header if name not in (label, id_column)]
    if columns is not None:
        missing = [name for name in columns if name not in rest]
        if missing:
            raise InputError(f"{path}: no column {missing[0]!r} in it, which the run was made with")
        rest = list(columns)
    else:
        rest = [name for name in rest if not UNNAMED.fullmatch(name)]
    features, used, ignored = feature_columns(path, table, rest)
    notes = [f"columns that hold no numbers were ignored: {', '.join(ignored[:5])}"] if ignored else []
    numbering = [name for name, values in zip(used, features.T, strict=False) if _numbers_rows(values)]
    if columns is None and 0 < len(numbering) < len(used):
        notes.append(f"columns that number the rows were ignored: {', '.join(numbering[:5])}")
        features = features[:, [name not in numbering for name in used]]
        used = [name for name in used if name not in numbering]
    given = table[label] if labeled and label is not None else None
    return EmbeddingSet(features, given, ids, notes, used)


def _read_wide(
    path: Path, names: Names, wide: str, *, labeled: bool, columns: Sequence[str] | None
) -> EmbeddingSet:
    """The same for a large file with its embeddings in one column of lists, of which few rows are in memory
    twice.
    """
    if columns is not None and list(columns) != [wide]:
        raise InputError(f"{path}: no column {columns[0]!r} in it, which the run was made with")
    kinds = open_parquet(path).schema_arrow
    header = [name for name in kinds.names if name != wide]
    label, id_column = names.label_column, find_id(path, header, names.id_column)
    if labeled or label is not None or usual_columns(header, {"label"}):
        advice = f"name it with {arg('label_column')}, or give labels with {arg('labels')}"
        label = find_column(path, header, label, {"label"}, "label", advice)
    rest = [name for name in header if name not in (label, id_column) and not UNNAMED.fullmatch(name)]
    numbers = [name for name in rest if pa.types.is_integer(kinds.field(name).type)
               or pa.types.is_floating(kinds.field(name).type)]  # fmt: skip
    if numbers:
        raise InputError(
            f"{path}: features are either number columns or one list column, and here are "
            f"{listed([wide, *numbers])}; drop those that are no features"
        )
    used = [name for name in (label if labeled else None, id_column) if name is not None]
    whole = read_table(path, used) if used else None
    for name in used:
        assert whole is not None
        whole.check_flat(name)
    ids = whole.texts(id_column) if whole is not None and id_column is not None else None
    given = whole.frame()[label] if whole is not None and labeled and label is not None else None
    notes = [f"columns that hold no numbers were ignored: {', '.join(rest[:5])}"] if rest else []
    return EmbeddingSet(read_list_column(path, wide), given, ids, notes, [wide])


def feature_columns(
    path: Path, table: pd.DataFrame, columns: list[str]
) -> tuple[Numbers, list[str], list[str]]:
    """The numeric columns, or the one column of lists; their names; and all remaining columns."""
    numeric: dict[str, Numbers] = {}
    lists: list[str] = []
    ignored: list[str] = []
    for name in columns:
        values = table[name]
        if pd.api.types.is_numeric_dtype(values.dtype):
            numeric[name] = values.to_numpy(dtype=np.float64, na_value=np.nan)
        elif _looks_like_list(values.iloc[0]):
            lists.append(name)
        elif (parsed := _as_numbers(path, values, table.attrs["decimal"])) is not None:
            numeric[name] = parsed
        else:
            ignored.append(name)
    if (lists and numeric) or len(lists) > 1:
        raise InputError(
            f"{path}: features are either number columns or one list column, and here are "
            f"{listed([*lists, *numeric])}; drop those that are no features"
        )
    if lists:
        return _stack_lists(path, table[lists[0]], lists[0]), lists, ignored
    if not numeric:
        first = f" ({columns[0]} starts with {str(table[columns[0]].iloc[0])[:20]!r})" if columns else ""
        raise InputError(
            f"{path}: no feature columns: none of {', '.join(columns[:8]) or 'its columns'} holds "
            f"numbers{first}; a column that names photos is given with {arg('path_column')}"
        )
    return np.column_stack(list(numeric.values())), list(numeric), ignored


def _numbers_rows(values: Numbers) -> bool:
    """Whether a column holds whole numbers that increase row by row: a named index rather than a feature."""
    return len(values) > 2 and bool((values[1:] > values[:-1]).all() and (values == np.round(values)).all())


def _looks_like_list(value: Any) -> bool:
    return isinstance(value, list | np.ndarray) or (isinstance(value, str) and value.lstrip().startswith("["))


def _as_numbers(path: Path, values: pd.Series, decimal: str) -> Numbers | None:
    """A text column as numbers, NaN for empty cells; None if it is not numeric.

    A column that is mostly but not entirely numeric is refused: ignoring it would lose a feature.
    """
    if isinstance(next(iter(values.dropna()), None), bytes | dict):  # photos, which may stand beside them
        return None
    text = values.astype(object).fillna("").astype(str).str.strip()
    booleans = text.str.lower().map(BOOLEANS)
    if not booleans.isna().all() and (booleans.notna() | (text == "")).all():
        return booleans.to_numpy(dtype=np.float64)
    plain = text.str.replace(decimal, ".", regex=False)
    numbers = pd.to_numeric(plain.mask(text == ""), errors="coerce")
    if bool(numbers.isna().all()):
        return None
    stray = (numbers.isna() & (text != "") & (text.str.lower() != "nan")).to_numpy()
    if stray.sum() > numbers.notna().sum():
        return None
    if stray.any():
        row = int(stray.argmax())
        raise InputError(
            f"{path}: column {values.name!r} holds numbers, but {text.iloc[row]!r} in row {row} "
            "(counted from 0); mend it, or drop the column"
        )
    return numbers.to_numpy(dtype=np.float64)


def _stack_lists(path: Path, values: pd.Series, name: str) -> Numbers:
    def read() -> list[Numbers]:
        try:
            return [np.asarray(parse_json(v) if isinstance(v, str) else v, dtype=np.float64) for v in values]
        except (TypeError, ValueError) as error:
            raise InputError(f"{path}: column {name!r} holds other than lists such as [0.5, 1.25]") from error

    rows = guard(path, read)
    lengths = {row.shape for row in rows}
    if len(lengths) != 1 or rows[0].ndim != 1:
        raise InputError(f"{path}: the lists in column {name!r} are not all of one length")
    return np.stack(rows)
