"""Labels from a separate file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from .numpy_files import load_arrays, pick_labels
from .tables import TABLES, Names, Table, check_file, find_column, find_id, guard, read_table

if TYPE_CHECKING:
    import pandas as pd


def read_labels(path: Path, names: Names | None = None) -> Any:
    """Labels alone: an array, a table with a label column, or a .txt file with one label per line."""
    names = names if names is not None else Names()
    check_file(path)
    suffix = path.suffix.lower()
    if suffix == ".txt":
        return guard(path, lambda: path.read_text(encoding="utf-8-sig")).splitlines()
    if suffix in (".npy", ".npz"):
        return pick_labels(path, load_arrays(path), names.labels_key)
    if suffix in TABLES:
        table = read_table(path)
        return _pick_column(table, table.frame(), names)
    raise InputError(f"{path}: labels come as .npy, .npz, .txt, {', '.join(TABLES)}")


def match_labels(ids: Sequence[str] | None, labels: Path, names: Names) -> Any:
    """Labels from a separate file, matched by id if both files have ids, else by position."""
    if ids is None or labels.suffix.lower() not in TABLES:
        return read_labels(labels, names)
    whole = read_table(labels)
    table = whole.frame()
    values, header = _pick_column(whole, table, names), list(table.columns)
    # The one that was named may be that of the other file.
    id_column = names.id_column if names.id_column is not None else find_id(labels, header, None)
    if id_column not in header:
        return values
    keys = whole.texts(id_column)
    by_id = dict(zip(keys, values, strict=True))
    missing = [key for key in ids if key not in by_id]
    if missing or len(by_id) < len(keys):
        problem = f"no label for id {missing[0]}" if missing else "an id stands more than once"
        raise InputError(f"{labels}: labels are matched by {id_column}, but there is {problem}")
    return [by_id[key] for key in ids]


def _pick_column(whole: Table, table: pd.DataFrame, names: Names) -> pd.Series[Any]:
    """The label column, or the only one."""
    header = list(table.columns)
    alone = header[0] if names.label_column is None and len(header) == 1 else None
    label = alone or find_column(whole.path, header, names.label_column, {"label"}, "label")
    whole.check_flat(label)
    return table[label]
