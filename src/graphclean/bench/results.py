"""Results on disk: a JSON file per run, `CELL[--dev]/METHOD/SEED.json`, with its arrays next to it."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from .._files import has_file, plain, replaced
from .._shapes import JsonObject, check_shape
from ..data.tables import READING
from ..errors import InputError, parse_json
from .noise import Split
from .schema import EpochRecord, Result

RESULT_FORMAT = 1
"""Version of the result format; incremented if older readers would misread a result."""
Arrays: TypeAlias = dict[str, npt.NDArray[Any]]

DIMENSIONS = {
    "logits": 2, "predicted": 1, "similarity": 1, "truth": 1, "map": 2, "kind": 1, "ilsvrc12_logits": 2,
    "ilsvrc12_truth": 1,
}  # fmt: skip
"""Dimensions of the arrays next to a result, each used by a figure or an ensemble.

`truth` (-1 is OOD) of the evaluation set; with OOD also `predicted` and `similarity` (1 − OOD score); on a
test set `logits` (log-probabilities, of known samples only). `map` and `kind` (of `SAMPLE_KINDS`) of some
training samples. Logits and truth of ILSVRC12, where it was scored too.
"""
INTEGER_TYPES = (np.int8, np.int16, np.int32, np.int64)
NAME = re.compile(r"\d+\.json")
"""File name of a result."""
LARGEST = 1e15
"""Maximum magnitude of a measured number; larger ones indicate damage."""
AGAIN = "remove its JSON and run the cell again"


@dataclass(frozen=True)
class Record:
    """A recorded run and its path."""

    path: Path
    data: Result

    @property
    def cell(self) -> str:
        """The name of the cell."""
        return self.data["cell"]

    @property
    def split(self) -> str:
        """`test` or `dev`."""
        return self.data["split"]

    @property
    def method(self) -> str:
        """The name its results are filed under."""
        return self.data["method"]

    @property
    def seed(self) -> int:
        """Seed of training and of the noise."""
        return self.data["seed"]

    @property
    def epochs(self) -> list[EpochRecord]:
        """One entry per epoch, oldest first."""
        return self.data["epochs"]

    def number(self, *keys: str) -> float | None:
        """The number under nested keys; None if missing."""
        return number(self.data, keys, self.path)

    def arrays(self, *names: str) -> Arrays | None:
        """The named arrays of the `.npz` file next to the result; None if one of them is missing."""
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
            if array.ndim != DIMENSIONS[name] or array.dtype.kind not in "iuf":
                what = f"{array.ndim}-dimensional {array.dtype}"
                raise InputError(f"{path}: damaged: {name} is {what}; {AGAIN}")
            if array.size == 0 or (array.dtype.kind == "f" and np.isnan(array).any()):
                raise InputError(f"{path}: damaged: {name} is empty, or not all numbers; {AGAIN}")
        if len({len(array) for name, array in found.items() if not name.endswith("logits")}) > 1:
            raise InputError(f"{path}: damaged: {' and '.join(names)} differ in length; {AGAIN}")
        return found


def number(entry: Any, keys: tuple[str, ...], path: Path) -> float | None:
    """The number under nested keys; None if any level is null or missing.

    The value `auto`, of a setting estimated in training, also gives None.
    """
    for key in keys:
        entry = entry.get(key) if isinstance(entry, dict) else None
    if entry is None or entry == "auto":
        return None
    if isinstance(entry, bool) or not isinstance(entry, int | float) or not abs(entry) < LARGEST:
        raise InputError(f"{path}: damaged: {'.'.join(keys)} is not a number; {AGAIN}")
    return float(entry)


def other_arrays(cell: str) -> tuple[str, str]:
    """Names of the arrays with truth and logits of a validation set that is scored too, by its cell."""
    name = cell.rpartition("/")[2]
    return f"{name}_truth", f"{name}_logits"


def slug(cell: str, split: str) -> str:
    """Cell and split as used in file names."""
    return cell.replace("/", "--") + ("--dev" if split == "dev" else "")


def result_path(results: Path, cell: str, split: str, method: str, seed: int) -> Path:
    """The path of a result."""
    return results / slug(cell, split) / method / f"{seed}.json"


def find_seeds(results: Path, cell: str, split: str, method: str) -> dict[int, Path]:
    """The results of a method on a cell, by seed."""
    folder = result_path(results, cell, split, method, 0).parent
    return {int(path.stem): path for path in folder.glob("*.json") if NAME.fullmatch(path.name)}


def write_result(path: Path, result: JsonObject, arrays: Arrays) -> Result:
    """Write a result and its arrays; the JSON file comes last, so its presence means that all is complete."""
    made: Result = check_shape({"format": RESULT_FORMAT, **plain(result)}, Result, path)
    small = {name: shrink(array) for name, array in arrays.items()}
    with replaced(path.with_suffix(".npz")) as draft, draft.open("wb") as file:
        np.savez_compressed(file, **dict[str, Any](small))
    with replaced(path) as draft:
        draft.write_text(_lay_out(dict(made)), encoding="utf-8")
    return made


def shrink(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert to half precision if the range allows, or integers to the smallest type that holds them."""
    if array.dtype.kind == "f":
        large = np.isfinite(array) & (np.abs(array) > np.finfo(np.float16).max)
        return array.astype(np.float32 if large.any() else np.float16)
    low, high = int(array.min(initial=0)), int(array.max(initial=0))
    kind = next(kind for kind in INTEGER_TYPES if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max)
    return array.astype(kind)


def _lay_out(result: JsonObject) -> str:
    """JSON with one line per field and per epoch: readable, and suited to line-by-line diffs."""
    lines = []
    for name, value in result.items():
        text = json.dumps(value, allow_nan=False)
        if name == "epochs" and value:
            text = "[\n" + ",\n".join(f"  {json.dumps(epoch, allow_nan=False)}" for epoch in value) + "\n ]"
        lines.append(f" {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def read_result(path: Path) -> Result:
    """Read a result written by `write_result`; anything else is refused."""
    advice = "move it elsewhere, or, if it was a result, remove it and run the cell again"
    if not has_file(path):
        raise InputError(f"no such result: {path}")
    try:
        found = parse_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: can't be read: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path}: damaged, or not a result; {advice}") from error
    if not isinstance(found, dict) or found.get("format") != RESULT_FORMAT:
        raise InputError(f"{path}: not a result of format {RESULT_FORMAT}; {advice}")
    result: Result = check_shape(found, Result, path)
    if not result["epochs"] or result["split"] not in get_args(Split):
        raise InputError(f"{path}: damaged: no epochs, or no split; remove it and run the cell again")
    return result


def list_results(results: Path) -> list[Path]:
    """The paths of all results in a folder: every file with the name of a result in the place of one."""
    return [path for path in sorted(results.glob("*/*/*.json")) if NAME.fullmatch(path.name)]


def read_record(path: Path, results: Path) -> Record:
    """Read one result; damaged, misplaced and other-format files are refused."""
    record = Record(path, read_result(path))
    belongs = result_path(results, record.cell, record.split, record.method, record.seed)
    if path != belongs:
        raise InputError(f"{path}: its run belongs in {belongs}; move it there, or remove one of the two")
    return record


def read_records(results: Path) -> list[Record]:
    """All runs recorded under `results`, ordered by cell, split, method and seed."""
    if not results.is_dir():
        raise InputError(f"{results}: no such folder of results; record one with `graphclean bench run CELL`")
    found = [read_record(path, results) for path in list_results(results)]
    return sorted(found, key=lambda record: (record.cell, record.split, record.method, record.seed))
