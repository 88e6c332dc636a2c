"""Embeddings and labels as people have them, checked and brought into one form."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from ..errors import InputError

Floats: TypeAlias = npt.NDArray[np.float32]
Codes: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Labels:
    """Labels as class numbers, −1 where there is none, and the classes they stand for."""

    codes: Codes
    classes: list[int] | list[str]

    def names(self, codes: Codes) -> pd.Series:
        """Class names (or whole numbers, where those were given) for `codes`; missing below 0."""
        kind = "Int64" if self.classes and isinstance(self.classes[0], int) else "object"
        lookup = pd.Series([*self.classes, None], dtype=kind)
        return lookup.iloc[codes].reset_index(drop=True)


def check_embeddings(z: Any, *, what: str = "embeddings") -> Floats:
    """A finite 2-D float32 array, or an `InputError` that says how many rows are bad and names three."""
    try:
        array = np.asarray(_from_torch(z))
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
    # The range of float32 is what counts from here on: 1e39 is as unusable as inf.
    with np.errstate(over="ignore"):
        array = array.astype(np.float32)
    _refuse_rows(~np.isfinite(array).all(axis=1), f"{what} have NaN or infinite values")
    _refuse_rows(~array.any(1), f"{what} are all zero")
    return array


def _refuse_rows(bad: Any, problem: str) -> None:
    rows = np.flatnonzero(bad)
    if len(rows):
        some = ", ".join(str(row) for row in rows[:3]) + (", …" if len(rows) > 3 else "")
        count = f"{len(rows)} row{'s' if len(rows) > 1 else ''}"
        raise InputError(f"{problem} in {count} of {len(bad)} (counted from 0: {some}); drop or mend them")


def encode_labels(labels: Any, n: int | None = None) -> Labels:
    """Number the classes; negative, empty and missing labels become −1 (unlabelled).

    Whole numbers, also written as text or as floats, are classes by number and stay numbers; everything
    else is a class by name.
    """
    series = labels if isinstance(labels, pd.Series) else pd.Series(_flat(labels), dtype=None)
    if n is not None and len(series) != n:
        raise InputError(f"there are {len(series)} labels for {n} embeddings; each row needs one")
    missing = series.isna().to_numpy()
    if pd.api.types.is_bool_dtype(series.dtype) or not pd.api.types.is_numeric_dtype(series.dtype):
        texts = [("" if gone else str(value).strip()) for value, gone in zip(series, missing, strict=True)]
        texts = ["" if text.lower() == "nan" else text for text in texts]
        numbers = _whole_numbers(texts)
        if numbers is None:
            names = sorted({text for text in texts if text})
            index: dict[Any, int] = {name: code for code, name in enumerate(names)}
            return Labels(np.array([index.get(text, -1) for text in texts], dtype=np.int64), names)
        values = numbers
    else:
        values = np.where(missing, -1, series.to_numpy(dtype=np.float64, na_value=np.nan))
    fractional = values != np.round(values)
    if fractional.any():
        example = values[fractional][0]
        raise InputError(
            f"labels must be names or whole numbers; {int(fractional.sum())} are not ({example:g})"
        )
    whole = values.astype(np.int64)
    classes, codes = np.unique(whole[whole >= 0], return_inverse=True)
    result = np.full(len(whole), -1, dtype=np.int64)
    result[whole >= 0] = codes
    return Labels(result, [int(c) for c in classes])


def _from_torch(values: Any) -> Any:
    """A tensor of any device and type as an array; anything else as it is."""
    if not isinstance(values, torch.Tensor):
        return values
    values = values.detach().cpu()
    return values.float().numpy() if values.dtype == torch.bfloat16 else values.numpy()


def _flat(labels: Any) -> Any:
    labels = _from_torch(labels)
    array = labels if isinstance(labels, list | tuple) else np.asarray(labels)
    if isinstance(array, np.ndarray) and array.ndim != 1:
        raise InputError(f"labels must be one a row, not an array of shape {array.shape}")
    return array


def _whole_numbers(texts: Sequence[str]) -> npt.NDArray[np.float64] | None:
    """The texts as numbers (−1 for empty) if each is written just as a whole number is, else None."""
    values = np.full(len(texts), -1.0)
    any_number = False
    for row, text in enumerate(texts):
        if not text:
            continue
        digits = text[1:] if text.startswith("-") else text
        if not (digits.isascii() and digits.isdigit()) or (digits[0] == "0" and len(digits) > 1):
            return None
        values[row] = int(text)
        any_number = True
    return values if any_number else None
