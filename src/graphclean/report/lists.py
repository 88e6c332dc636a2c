"""A list per sample in two arrays: a million Python lists would take seconds and half a gigabyte."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Lists:
    """Lists of whole numbers, one per sample."""

    starts: Ints
    """Where each list starts in `values`; the last entry is where the last one ends."""
    values: Ints

    @classmethod
    def empty(cls, count: int) -> Self:
        """As many empty lists."""
        return cls(np.zeros(count + 1, dtype=np.int64), np.zeros(0, dtype=np.int64))

    @classmethod
    def find(cls, named: "pd.Series[Any]", known: list[str]) -> Self:
        """The place of each name in `known`, the first if it is there twice; unknown names are left out."""
        lists = _as_arrow(named)
        lengths = pc.fill_null(pc.list_value_length(lists), 0)
        kind = pa.large_string()
        places = pc.index_in(pc.list_flatten(lists).cast(kind), value_set=pa.array(known, kind))
        owners = np.repeat(np.arange(len(named)), lengths.to_numpy())
        there = places.is_valid().to_numpy()
        counts = np.bincount(owners[there], minlength=len(named))
        values = pc.fill_null(places, -1).to_numpy()[there].astype(np.int64)
        return cls(np.concatenate([[0], np.cumsum(counts)]), values)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, row: int) -> list[int]:
        return list(map(int, self.values[self.starts[row] : self.starts[row + 1]]))

    def __iter__(self) -> Iterator[list[int]]:
        return (self[row] for row in range(len(self)))

    @property
    def lengths(self) -> Ints:
        """The number of values of each sample."""
        return np.diff(self.starts)


def _as_arrow(lists: "pd.Series[Any]") -> pa.ChunkedArray:
    """A column of lists of names in Arrow, without a copy if it is so already."""
    if isinstance(lists.dtype, pd.ArrowDtype):
        return lists.array.__arrow_array__()
    return pa.chunked_array([pa.array(lists.tolist(), pa.list_(pa.string()))])
