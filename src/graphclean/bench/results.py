"""The results on disk: one JSON a run, and its arrays beside it."""

import json
import re
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .._files import has_file, plain, replaced
from ..errors import InputError, parse_json

FORMAT = 1
"""Of a result; rises when older readers would misread it."""
Arrays: TypeAlias = dict[str, npt.NDArray[Any]]

FIELDS: dict[str, type | tuple[type, ...]] = {
    "cell": str,
    "split": str,
    "method": str,
    "seed": int,
    "preset": str,
    "changes": list,
    "config": dict,
    "draw": str,
    "machine": dict,
    "seconds": (int, float),
    "threshold": (dict, type(None)),
    "scores": dict,
    "cleaning": dict,
    "epochs": list,
}
"""What every result has, and of which type."""
NESTED, FLAT = re.compile(r"\d+\.json"), re.compile(r".+--.+--\d+\.json")
"""Names of results, in folders of their own and without."""
NO_RESULT = "move it elsewhere, or, if it was one, remove it and run the cell again"


def result_path(results: Path, cell: str, split: str, method: str, seed: int, *, flat: bool = False) -> Path:
    """Where a result belongs: `CELL[--dev]/METHOD/SEED.json`; flat, all of it is the name of one file."""
    folder = cell.replace("/", "--") + ("--dev" if split == "dev" else "")
    return results / (f"{folder}--{method}--{seed}.json" if flat else f"{folder}/{method}/{seed}.json")


def find_seeds(results: Path, cell: str, split: str, method: str) -> dict[int, Path]:
    """The results of a method on a cell by their seed, in either form."""
    found: dict[int, Path] = {}
    for flat in (True, False):
        like = result_path(results, cell, split, method, 0, flat=flat)
        start = like.name.removesuffix("0.json")
        for path in like.parent.glob(f"{start}*.json"):
            seed = path.stem.removeprefix(start)
            if seed.isdecimal():
                found[int(seed)] = path
    return found


def write_result(path: Path, result: dict[str, Any], arrays: Arrays) -> None:
    """Write a result and its arrays; the JSON comes last, so that where it is all is."""
    with replaced(path.with_suffix(".npz")) as draft, draft.open("wb") as file:
        np.savez_compressed(file, **dict[str, Any](arrays))
    with replaced(path) as draft:
        draft.write_text(_lay_out({"format": FORMAT, **plain(result)}), encoding="utf-8")


def _lay_out(result: dict[str, Any]) -> str:
    """JSON with one line a field and one an epoch: short enough to read, and to compare by lines."""
    lines = []
    for name, value in result.items():
        text = json.dumps(value, allow_nan=False)
        if name == "epochs" and value:
            text = "[\n" + ",\n".join(f"  {json.dumps(epoch, allow_nan=False)}" for epoch in value) + "\n ]"
        lines.append(f" {json.dumps(name)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def read_result(path: Path) -> dict[str, Any]:
    """What `write_result` wrote; anything else is refused."""
    has_file(path)
    try:
        result = parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"no such result: {path}") from error
    except OSError as error:
        raise InputError(f"{path}: can't be read: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path}: damaged, or not a result; {NO_RESULT}") from error
    if not isinstance(result, dict) or result.get("format") != FORMAT:
        raise InputError(f"{path}: not a result of format {FORMAT}; {NO_RESULT}")
    wrong = [name for name, kind in FIELDS.items() if not isinstance(result.get(name, Ellipsis), kind)]
    if not wrong:  # its sections are read by name
        wrong = [f"config.{key}" for key, part in result["config"].items() if not isinstance(part, dict)]
    if wrong:
        raise InputError(f"{path}: damaged: {wrong[0]} is missing or wrong; remove it and run the cell again")
    return result


def list_results(results: Path) -> list[Path]:
    """The paths of all results in a folder, those in folders of their own before flat ones.

    Other people's files may lie among them. What bears the name of a result must be one.
    """
    nested, flat = sorted(results.glob("*/*/*.json")), sorted(results.glob("*.json"))
    found = [path for path in nested if NESTED.fullmatch(path.name) or _claims_to_be_one(path)]
    found += [path for path in flat if FLAT.fullmatch(path.name) or _claims_to_be_one(path)]
    return [path for path in found if not path.name.startswith(".")]


def _claims_to_be_one(path: Path) -> bool:
    """Whether a file that is not named like a result was one: renamed or copied, and not to be overlooked."""
    try:
        found = parse_json(path.read_text(encoding="utf-8")) if path.is_file() else None
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and {"format", *FIELDS} <= set(found)
