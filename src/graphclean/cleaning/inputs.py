"""Users' embeddings and labels, checked and converted to one form."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from scipy import sparse

from ..errors import InputError
from ..ood.model import class_names
from .scale import is_large, row_blocks

Floats: TypeAlias = npt.NDArray[np.float16] | npt.NDArray[np.float32] | npt.NDArray[np.float64]
"""Half precision only of large sets, where it stays what it is in the file."""
Array: TypeAlias = npt.NDArray[np.float64]
Codes: TypeAlias = npt.NDArray[np.int64]
MISSING_LABEL = ("", "nan")
"""Spellings of a missing number."""
FAR = 1000.0
"""Standard deviations from zero beyond which float32, with its seven digits, would lose information."""


@dataclass(frozen=True)
class Labels:
    """Labels as class numbers, −1 if unlabeled, and the classes they stand for."""

    codes: Codes
    classes: list[int] | list[str]
    decided: Codes | None = None
    """Human decisions: a class number, or OOD (the number of classes); −1 if not reviewed."""
    blank: npt.NDArray[np.bool_] | None = None
    """Samples that show nothing, so that there is no evidence for another class than the given one."""
    hashes: Codes | None = None
    """Perceptual hashes of photos, which confirm near-duplicates."""

    @property
    def reviewed(self) -> Codes:
        """The current labels: the given ones, replaced by human decisions; −1 for OOD."""
        if self.decided is None:
            return self.codes
        known = np.where(self.decided < len(self.classes), self.decided, -1)
        return np.where(self.decided >= 0, known, self.codes)

    def take(self, rows: Codes) -> "Labels":
        """A subset of the samples."""
        others = ((name, getattr(self, name)) for name in ("decided", "blank", "hashes"))
        taken = {name: values[rows] for name, values in others if values is not None}
        return replace(self, codes=self.codes[rows], **taken)

    def names(self, codes: Codes) -> pd.Series:
        """Class names (or whole numbers, if given as such) of `codes`; missing below 0."""
        return class_names(self.classes, codes)


def check_embeddings(
    z: Any, *, what: str = "embeddings", zeros: bool = False, double: bool | None = None
) -> Floats:
    """A finite 2-D float32 array, or an `InputError` that says how many rows are invalid and names three.

    Rows of zeros have no direction to compare and are refused unless `zeros` is set. With `double` the array
    is float64; with None it is so only if float32 would lose the differences between rows.
    """
    if sparse.issparse(z):
        raise InputError(f"{what} are a sparse matrix; make them dense, as with scikit-learn's TruncatedSVD")
    try:
        array = np.asarray(_from_pandas(_from_torch(z)))
    except ValueError as error:
        raise InputError(f"{what} must be a table of numbers, with rows of one length") from error
    if array.dtype == object or not (np.issubdtype(array.dtype, np.number) or array.dtype == bool):
        raise InputError(f"{what} must be numbers, not {array.dtype}")
    if np.iscomplexobj(array):
        raise InputError(f"{what} must be real numbers, not {array.dtype}")
    if array.ndim != 2:
        raise InputError(f"{what} must be a table of rows and columns, not an array of shape {array.shape}")
    if 0 in array.shape:
        raise InputError(f"{what} are empty: {array.shape[0]} rows × {array.shape[1]} columns")
    if array.shape[1] < 2:
        raise InputError(f"{what} have one column; directions are compared, so at least two are needed")
    if is_large(len(array)) and array.dtype in (np.float16, np.float32):
        return _check_blocks(array, what, zeros=zeros, double=bool(double))
    # The range of float32 is what counts from here on: 1e39 is as unusable as inf.
    with np.errstate(over="ignore"):
        floats = array.astype(np.float32)
    unusable = ~np.isfinite(floats).all(axis=1)
    if unusable.any():
        _refuse_rows(~np.isfinite(array).all(axis=1), f"{what} have NaN or infinite values", 0)
        beyond = f"{what} have values beyond the range of float32, which ends at 3.4e38,"
        _refuse_rows(unusable, beyond, 1)
    if not zeros:
        _refuse_rows(~floats.any(1), f"{what} are all zero", 2)
    double = double if double is not None else array.dtype.itemsize > 4 and _is_far(array)
    return array.astype(np.float64) if double else floats


def as_float32(z: npt.NDArray[Any]) -> npt.NDArray[np.float32] | npt.NDArray[np.float64]:
    """Rows in half precision as float32; others unchanged."""
    wide: npt.NDArray[np.float32] | npt.NDArray[np.float64] = (
        z.astype(np.float32) if z.dtype == np.float16 else z
    )
    return wide


def _check_blocks(array: npt.NDArray[Any], what: str, *, zeros: bool, double: bool) -> Floats:
    """The same array, which may be larger than memory, checked block by block."""
    infinite, empty = np.zeros(len(array), dtype=bool), np.zeros(len(array), dtype=bool)
    for block in row_blocks(len(array)):
        infinite[block] = ~np.isfinite(array[block]).all(1)
        empty[block] = ~array[block].any(1)
    _refuse_rows(infinite, f"{what} have NaN or infinite values", 0)
    if not zeros:
        _refuse_rows(empty, f"{what} are all zero", 2)
    return array.astype(np.float64) if double else array


def _is_far(array: npt.NDArray[Any]) -> bool:
    """Whether a feature is so far from zero, against its deviation, that float32 is too coarse."""
    deviation = array.std(0, dtype=np.float64)
    return bool((np.abs(array.mean(0, dtype=np.float64)) > FAR * deviation)[deviation > 0].any())


def _refuse_rows(bad: Any, problem: str, place: int) -> None:
    rows = np.flatnonzero(bad)
    if len(rows):
        raise BadRows(problem, place, rows, len(bad))


class BadRows(InputError):  # noqa: N818 – it names the data's state
    """Rows that can't be used, all of them for the same reason.

    `place` is that of the reason among all: where there are several, the first is reported.
    """

    def __init__(self, problem: str, place: int, rows: Codes, total: int) -> None:
        some = ", ".join(str(row) for row in rows[:3]) + (", …" if len(rows) > 3 else "")
        count = f"{len(rows)} row{'s' if len(rows) > 1 else ''}"
        super().__init__(f"{problem} in {count} of {total} (counted from 0: {some}); drop or mend them")
        self.problem, self.place, self.rows = problem, place, rows


def refuse_all(found: Sequence[tuple[int, BadRows]], total: int) -> None:
    """Refuse the rows found in parts of `total` rows, as if these had been looked at as a whole.

    Each part comes with the number of its first row.
    """
    if found:
        first = min((bad for _, bad in found), key=lambda bad: bad.place)
        rows = [start + bad.rows for start, bad in found if bad.place == first.place]
        raise BadRows(first.problem, first.place, np.concatenate(rows), total)


def encode_labels(labels: Any, n: int | None = None) -> Labels:
    """Encode labels from Python as class numbers; missing values, "" and negative numbers are −1 (unlabeled).

    Whole numbers, also as floats, are numeric classes; everything else is a class name, including text of
    digits. `Labels` are returned unchanged.
    """
    return _encode(labels, n, as_written=False)


def encode_written(labels: Any, n: int | None = None) -> Labels:
    """`encode_labels` for labels from a file, consistent between file formats.

    In some formats everything is text: text of whole numbers is numeric, and booleans are names. "nan" is
    missing among numbers, and a name among names.
    """
    return _encode(labels, n, as_written=True)


def _encode(labels: Any, n: int | None, *, as_written: bool) -> Labels:
    if isinstance(labels, Labels):
        if n is not None and len(labels.codes) != n:
            raise InputError(f"there are {len(labels.codes)} labels for {n} samples; each needs one")
        return labels
    series = labels if isinstance(labels, pd.Series) else pd.Series(_flat(labels), dtype=None)
    if n is not None and len(series) != n:
        raise InputError(f"there are {len(series)} labels for {n} samples; each needs one")
    if getattr(series.dtype, "kind", "O") in "cV":
        raise InputError(f"labels must be names or whole numbers, not of type {series.dtype}")
    if not as_written and series.dtype in (object, "category"):
        series = pd.Series(series.to_list())  # of the type that its values have
    missing = series.isna().to_numpy()
    kind = series.dtype
    if pd.api.types.is_float_dtype(kind):
        values = series.to_numpy(dtype=np.float64, na_value=np.nan)
        odd = ~missing & (values != np.round(values))
        if odd.any() or np.isinf(values).any():
            example = values[odd | np.isinf(values)][0]
            raise InputError(f"labels must be names or whole numbers, not {example:g}")
        return _by_number([-1 if gone else int(v) for v, gone in zip(values, missing, strict=True)])
    if isinstance(kind, np.dtype) and kind.kind == "i":
        return _by_array(series.to_numpy())
    if pd.api.types.is_integer_dtype(kind):
        return _by_number([-1 if gone else int(v) for v, gone in zip(series, missing, strict=True)])
    if pd.api.types.is_datetime64_any_dtype(kind):
        series = series.astype(str)  # as a .csv has them: without the time where all are at midnight
    texts = ["" if gone else _text(value) for value, gone in zip(series, missing, strict=True)]
    numbers = _whole_numbers(texts) if as_written else None
    if numbers is not None:
        return _by_number(numbers)
    names = sorted(set(texts) - {""})
    index = {name: code for code, name in enumerate(names)}
    return Labels(np.array([index.get(text, -1) for text in texts], dtype=np.int64), names)


def encode_classes(labels: Any, n: int) -> Labels:
    """`encode_labels` for `n` samples of at least two classes."""
    encoded = encode_labels(labels, n)
    if len(encoded.classes) < 2:
        named = f"one class ({encoded.classes[0]})" if encoded.classes else "no class"
        raise InputError(f"the labels name {named}; at least two are needed")
    return encoded


def _by_number(values: Sequence[int]) -> Labels:
    """Numeric classes of any size; negative numbers are unlabeled."""
    classes = sorted({value for value in values if value >= 0})
    index = {value: code for code, value in enumerate(classes)}
    codes = np.array([index.get(value, -1) for value in values], dtype=np.int64)
    if classes and classes[-1] > np.iinfo(np.int64).max:
        return Labels(codes, [str(value) for value in classes])
    return Labels(codes, classes)


def _by_array(values: npt.NDArray[Any]) -> Labels:
    """`_by_number` for an array."""
    known = values >= 0
    classes = np.unique(values[known])
    codes = np.full(len(values), -1, dtype=np.int64)
    codes[known] = np.searchsorted(classes, values[known])
    return Labels(codes, [int(value) for value in classes])


def restore_type(table: pd.DataFrame, encoded: Labels, given: Any) -> None:
    """Restore the type of the labels in a table: booleans, bytes, dates or categories."""
    series = given if isinstance(given, pd.Series) else pd.Series(_flat(given))
    kind = pd.api.types.infer_dtype(series, skipna=True)
    if kind not in ("boolean", "bytes", "categorical", "datetime64", "datetime", "date"):
        return
    codes, first = np.unique(encoded.codes, return_index=True)
    places = zip(codes, first, strict=True)
    as_given = {encoded.classes[code]: series.iloc[row] for code, row in places if code >= 0}
    for name in ("given_label", "proposed_label"):
        column = table[name].map(as_given, na_action="ignore")
        if kind == "categorical":
            column = column.astype(series.dtype)
        elif kind == "boolean":
            column = column.astype("boolean" if (encoded.codes < 0).any() else bool)
        table[name] = column


def align_index(table: pd.DataFrame, *given: Any) -> None:
    """Give a table, one row per sample, the first pandas index among the arguments."""
    for part in given:
        if isinstance(part, pd.DataFrame | pd.Series):
            table.index = part.index
            return


def _text(value: Any) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text.strip()


def _from_torch(values: Any) -> Any:
    """A tensor of any device and dtype as an array; anything else unchanged."""
    if not isinstance(values, torch.Tensor):
        return values
    values = values.detach().cpu()
    return values.float().numpy() if values.dtype == torch.bfloat16 else values.numpy()


def _from_pandas(values: Any) -> Any:
    """A table of pandas' nullable numbers with NaN for missing values; anything else unchanged."""
    if not isinstance(values, pd.DataFrame) or all(isinstance(kind, np.dtype) for kind in values.dtypes):
        return values
    if not all(pd.api.types.is_numeric_dtype(kind) for kind in values.dtypes):
        return values
    return values.to_numpy(dtype=np.float64, na_value=np.nan)


def _flat(labels: Any) -> Any:
    labels = _from_torch(labels)
    array = labels if isinstance(labels, list | tuple) else np.asarray(labels)
    if isinstance(array, np.ndarray) and array.ndim != 1:
        raise InputError(f"labels must be one a row, not an array of shape {array.shape}")
    if not isinstance(array, np.ndarray) and any(
        isinstance(label, list | tuple | np.ndarray) for label in array
    ):
        raise InputError("labels must be one a row, not lists of them")
    return array


def _whole_numbers(texts: Sequence[str]) -> list[int] | None:
    """The texts as numbers if each is written as a whole number (7, −1, 7.0), else None.

    Empty texts, and the NaN of a numeric column, become −1.
    """
    values = []
    for text in texts:
        digits = text.removeprefix("-")
        digits = digits.split(".")[0] if digits.rstrip("0").endswith(".") else digits
        if text.lower() in MISSING_LABEL:
            values.append(-1)
        elif digits.isascii() and digits.isdigit() and (digits[0] != "0" or len(digits) == 1):
            values.append(-int(digits) if text.startswith("-") else int(digits))
        else:
            return None
    return values if any(text.lower() not in MISSING_LABEL for text in texts) else None
