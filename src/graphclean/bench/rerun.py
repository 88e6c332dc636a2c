"""Rerun a recorded run with the current code, and compare its scores with the recorded ones."""

import re
from pathlib import Path

from .._files import has_file
from .._shapes import JsonObject
from ..config.overrides import recorded_settings
from ..errors import InputError, parse_json
from ..methods import complete_settings
from .cells import Recipe, get_cell
from .noise import Split
from .runner import Job
from .schema import Result

COMPARED = ("accuracy", "top5", "auroc", "f_auto", "f_best")
RENAMED = {"training.augmix": "training.strong_augmentation"}
RENAMED_VALUES = {"full": "augmix", "last-chain": "augmix-last-chain"}
"""Renamed settings of older results, and their renamed values."""
ONLY_WAY = {
    "training.final_norm": True,
    "training.gate_once": True,
    "training.restart_from": 1.0,
    "training.running_stats": "all",
}
"""Removed settings, with the value that corresponds to the current behavior."""

SCRIPT_COMMAND = re.compile(r"python benchmarks/\w+\.py[\w .,=/&-]*")
"""What a record of a script in `benchmarks/` names as the command that made it."""


def check_made_by_run(path: Path) -> None:
    """Refuse the record of a script in `benchmarks/`, naming the command that measures it again."""
    try:
        found = parse_json(path.read_text(encoding="utf-8")) if has_file(path) else None
    except (OSError, ValueError):
        return  # `read_result` says what is wrong
    command = found.get("command") if isinstance(found, dict) else None
    if isinstance(command, str) and SCRIPT_COMMAND.fullmatch(command):
        raise InputError(f"{path}: made by a script; to measure it again, run in a checkout: {command}")


def job_of(result: Result, path: Path) -> Job:
    """The job that reproduces a result; settings unknown to this version are refused.

    A setting missing from the result is newer than the result and had its default value then.
    """
    settings: dict[str, JsonObject] = {}
    for section, values in result["config"].items():
        for key, value in values.items():
            name = f"{section}.{key}"
            if name in ONLY_WAY and ONLY_WAY[name] == value:
                continue
            if name in RENAMED:
                name, value = RENAMED[name], RENAMED_VALUES.get(str(value), value)
            settings.setdefault(section, {})[name.partition(".")[2]] = value
    config = complete_settings(recorded_settings(settings, str(path)))
    recipe = Recipe(result["method"], result["preset"], tuple(result["changes"]), config)
    split: Split = "dev" if result["split"] == "dev" else "test"
    return Job(get_cell(result["cell"]), recipe, result["seed"], split)


def compare(old: Result, new: Result) -> list[tuple[str, float, float]]:
    """Name, recorded value and new value of every score that both have."""
    pairs = [(name, old["scores"].get(name), new["scores"].get(name)) for name in COMPARED]
    for name, scores in old.get("also", {}).items():
        now_scores = new.get("also", {}).get(name, {})
        pairs += [(f"{name} {key}", scores.get(key), now_scores.get(key)) for key in COMPARED[:2]]
    pairs.append(("label accuracy", old["cleaning"]["label_accuracy"], new["cleaning"]["label_accuracy"]))
    pairs.append(("seconds", old["seconds"], new["seconds"]))
    return [(name, then, now) for name, then, now in pairs if then is not None and now is not None]


def differences(old: Result, new: Result) -> list[str]:
    """Other differences between the two, which may explain different scores."""
    found = []
    if old["draw"] != new["draw"]:
        found.append("the noisy labels differ: the data, or how noise is made, has changed")
    for name, key in (("GPU", "gpu"), ("commit", "commit"), ("Python", "python")):
        then, now = old["machine"].get(key), new["machine"].get(key)
        if then != now:
            found.append(f"{name}: {then or 'none'} then, {now or 'none'} now")
    then, now = (str((one["machine"].get("packages") or {}).get("torch")) for one in (old, new))
    if then != now:
        found.append(f"torch: {then} then, {now} now")
    return found
