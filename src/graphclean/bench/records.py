"""Recorded runs, as the tables and figures read them: each result that `bench list` shows, and its `.npz`."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from ..data.tables import READING
from ..errors import InputError
from .noise import Split
from .results import list_results, read_result, result_path

DIMENSIONS = {"logits": 2, "similarity": 1, "truth": 1, "z": 2, "kind": 1}
"""Of the arrays beside a result: of the scored set (truth: -1 is OOD), and z and kind of training samples."""

CONTROL_LIMIT = 0.55
"""AUROC between images as they are and images resampled, above which a detector may see the resampling."""

LARGEST = 1e15
"""Of a number that was measured; what is above it, and NaN, is none."""

AGAIN = "remove its JSON and run the cell again"


@dataclass(frozen=True)
class Record:
    """One recorded run: a cell, a split, a method, a seed, and all that was written down."""

    path: Path
    cell: str
    split: str
    method: str
    seed: int
    data: dict[str, Any]

    @property
    def epochs(self) -> list[dict[str, Any]]:
        """One entry an epoch, oldest first."""
        return list(self.data["epochs"])

    def number(self, *keys: str) -> float | None:
        """The value under these keys; None where there is none."""
        return number(self.data, keys, self.path)

    def arrays(self, *names: str) -> dict[str, npt.NDArray[Any]] | None:
        """These arrays of the `.npz` beside the result; None where the file or one of them is missing."""
        path = self.path.with_suffix(".npz")
        if not path.is_file():
            return None
        try:
            with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                if not set(names) <= set(file.files):
                    return None
                found = {name: file[name] for name in names}
        except READING as error:
            raise InputError(f"{path}: damaged; {AGAIN}") from error
        for name, array in found.items():
            if array.ndim != DIMENSIONS[name] or (array.dtype.kind in "iuf") == (name == "kind"):
                what = f"{array.ndim}-dimensional {array.dtype}"
                raise InputError(f"{path}: damaged: {name} is {what}; {AGAIN}")
            if array.size == 0 or (array.dtype.kind == "f" and np.isnan(array).any()):
                raise InputError(f"{path}: damaged: {name} is empty, or not all numbers; {AGAIN}")
        if len({len(array) for array in found.values()}) > 1:
            raise InputError(f"{path}: damaged: {' and '.join(names)} differ in length; {AGAIN}")
        return found


def number(entry: dict[str, Any], keys: Iterable[str], path: Path) -> float | None:
    """The number under nested keys; None where it, or something on the way to it, is null or missing."""
    value: Any = entry
    where = []
    for key in keys:
        where.append(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise InputError(f"{path}: damaged: no {'.'.join(where)} in it; {AGAIN}")
        value = value.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < LARGEST:
        raise InputError(f"{path}: damaged: {'.'.join(where)} is not a number; {AGAIN}")
    return float(value)


def read_records(results: Path) -> list[Record]:
    """Every run recorded under `results`, in the order of cell, split, method and seed."""
    if not results.is_dir():
        raise InputError(f"{results}: no such folder of results; record one with `graphclean bench run CELL`")
    found: dict[tuple[str, str, str, int], Record] = {}
    for path in list_results(results):
        record = read_record(path, results)
        run = (record.cell, record.split, record.method, record.seed)
        if run in found:
            raise InputError(f"{path}: the same run as {found[run].path}; remove one of the two")
        found[run] = record
    return [found[run] for run in sorted(found)]


def read_record(path: Path, results: Path) -> Record:
    """One result file; refuses one that is damaged, of another format, or in the wrong place."""
    data = read_result(path)
    epochs, split = data["epochs"], data["split"]
    if not epochs or not all(isinstance(entry, dict) for entry in epochs) or split not in get_args(Split):
        raise InputError(f"{path}: damaged: no epochs, or no split; remove it and run the cell again")
    record = Record(path, data["cell"], split, data["method"], data["seed"], data)
    run = (record.cell, split, record.method, record.seed)
    belongs = result_path(results, *run)
    if path not in (belongs, result_path(results, *run, flat=True)):
        there = os.path.exists(belongs)  # False as well for a name that no file can have
        advice = "which is there too; remove one of the two" if there else "move it there"
        raise InputError(f"{path}: its run belongs in {belongs}; {advice}")
    return record


def slug(record: Record) -> str:
    """The cell and split as they stand in file names."""
    return record.cell.replace("/", "--") + ("--dev" if record.split == "dev" else "")
