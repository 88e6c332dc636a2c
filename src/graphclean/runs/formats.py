"""Verdicts in the formats of other tools: Label Studio, fiftyone, cleanlab, Hugging Face."""

import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

import numpy as np
import numpy.typing as npt
import pandas as pd

from .._files import has_file, replaced, sweep
from .._version import __version__
from ..data.tables import PARQUET
from ..data.verdict import Verdict
from ..errors import ELSEWHERE, InputError, arg, occupied
from .decisions import Decision
from .folder import safe_csv

Format = Literal["label-studio", "fiftyone", "cleanlab", "hf"]
USUAL_OUT: dict[Format, str] = {
    "label-studio": "label-studio.json",
    "fiftyone": "fiftyone",
    "cleanlab": "cleanlab.csv",
    "hf": "hf.parquet",
}
"""The default output, in the run folder."""
OOD_CHOICE = "no class"
"""The choice for OOD in Label Studio, in addition to the classes."""
UNLABELED = "(no label)"
"""The label of unlabeled samples in fiftyone, which stores attributes only with a label."""
FACTS = ("verdict", "proposed_label", "confidence", "label_quality", "ood_score", "photo_issues")
"""Columns of the verdicts that are exported with each sample, if present."""
Files: TypeAlias = dict[Path, bytes]


@dataclass(frozen=True)
class Outcome:
    """The outcome for every sample, by verdicts and review decisions."""

    table: pd.DataFrame
    """The table of `apply`."""
    verdicts: pd.DataFrame
    ood: npt.NDArray[np.bool_]
    """OOD samples, which have no label."""
    confidence: npt.NDArray[np.float64]
    """1 for reviewed samples."""
    classes: list[str]

    @classmethod
    def of(
        cls,
        table: pd.DataFrame,
        verdicts: pd.DataFrame,
        decided: Mapping[int, Decision],
        classes: Sequence[Any],
    ) -> "Outcome":
        """Combine the table of `apply` with the verdicts that it is based on."""
        removed = (table["action"] == "removed").to_numpy()
        ood = removed & (verdicts["verdict"] == Verdict.OOD).to_numpy()
        confidence = verdicts["confidence"].to_numpy(dtype=np.float64, na_value=np.nan).copy()
        for row, decision in decided.items():
            ood[row], confidence[row] = decision.label is None, 1.0
        # Decisions and runs from elsewhere may have labels that the summary does not list.
        labels = sorted({str(label) for label in table["label"].dropna()})
        names = list(dict.fromkeys((*(str(name) for name in classes), *labels)))
        return cls(table, verdicts, ood, confidence, names)

    def facts(self, row: int) -> dict[str, Any]:
        """What is known about a sample, as JSON values."""
        there = [name for name in FACTS if name in self.verdicts]
        values = {name: plain_cell(self.verdicts[name].iloc[row]) for name in there}
        taken = {name: plain_cell(self.table[name].iloc[row]) for name in ("given_label", "action", "reason")}
        return {**values, **taken}


def as_label_studio(outcome: Outcome, photos: Sequence[Path | None] | None, root: Path, out: Path) -> Files:
    """Tasks with predictions, and the labeling configuration for them.

    Label Studio itself serves the photos, as local files under the folder `root`; for other data, tasks
    contain only the ids of the samples.
    """
    if out.suffix.lower() != ".json":
        raise InputError(f"{out}: tasks of Label Studio are a .json; choose such a name with {arg('out')}")
    shown = "image" if photos is not None else "text"
    tasks: list[dict[str, Any]] = []
    for row, name in enumerate(outcome.table["id"].map(str)):
        content = name
        if photos is not None:
            photo = photos[row]
            if photo is None or outcome.verdicts["verdict"].iloc[row] == Verdict.UNREADABLE:
                continue
            content = f"/data/local-files/?d={quote(Path(os.path.relpath(photo, root)).as_posix())}"
        label = OOD_CHOICE if outcome.ood[row] else plain_cell(outcome.table["label"].iloc[row])
        choice: dict[str, Any] = {"from_name": "label", "to_name": shown, "type": "choices"}
        prediction: dict[str, Any] = {
            "model_version": f"graphclean {__version__}",
            "score": plain_cell(outcome.confidence[row]),
            "result": [{"id": str(row), **choice, "value": {"choices": [str(label)]}}],
        }
        tasks.append(
            {
                "data": {shown: content, "id": name, **outcome.facts(row)},
                "predictions": [prediction] if label is not None else [],
            }
        )
    choices = "".join(f"\n    <Choice value={quoteattr(name)}/>" for name in [*outcome.classes, OOD_CHOICE])
    view = (
        f'<View>\n  <{shown.capitalize()} name="{shown}" value="${shown}"/>\n'
        f'  <Choices name="label" toName="{shown}" choice="single" showInLine="true">{choices}\n'
        "  </Choices>\n</View>\n"
    )
    return {out: _json(tasks), out.with_suffix(".xml"): view.encode()}


def as_fiftyone(outcome: Outcome, photos: Sequence[Path | None], out: Path) -> Files:
    """A folder of fiftyone's type FiftyOneImageClassificationDataset, which refers to the photos in place.

    The label of a sample is the given one; the results of the run are attributes of the label.
    """
    if out.is_file():
        raise InputError(f"{out}: there is a file of that name; {ELSEWHERE}")
    labels: dict[str, Any] = {}
    places: dict[str, str] = {}
    for row, photo in enumerate(photos):
        if photo is None or outcome.verdicts["verdict"].iloc[row] == Verdict.UNREADABLE:
            continue
        facts = outcome.facts(row)
        given = facts.pop("given_label")
        after = plain_cell(outcome.table["label"].iloc[row])
        places[str(row)] = str(photo)
        attributes = {**facts, "sample": str(outcome.table["id"].iloc[row]), "label_after": after}
        attributes["certainty"] = attributes.pop("confidence", None)  # fiftyone's is for predictions
        told = {name: value for name, value in attributes.items() if value is not None}
        labels[str(row)] = {"label": UNLABELED if given is None else str(given), "attributes": told}
    named = {str(label["label"]) for label in labels.values()} - set(outcome.classes)
    found = {"classes": [*outcome.classes, *sorted(named)], "labels": labels}
    return {out / "labels.json": _json(found), out / "data.json": _json(places)}


def as_cleanlab(outcome: Outcome, out: Path) -> Files:
    """A table as from cleanlab's CleanLearning and Datalab, one row per sample; low scores are bad."""
    table, verdicts = outcome.table, outcome.verdicts
    moved = table["action"] == "relabeled"
    shown = pd.DataFrame(
        {
            "id": table["id"],
            "is_label_issue": (moved & table["given_label"].notna()).to_numpy(),
            "label_quality": verdicts["label_quality"],
            "given_label": table["given_label"],
            "predicted_label": table["label"].where(moved, verdicts["proposed_label"]),
            "is_outlier_issue": outcome.ood,
            "outlier_score": 1 - verdicts["ood_score"],
        }
    )
    if "duplicate_group" in verdicts:
        shown["is_near_duplicate_issue"] = verdicts["duplicate_group"].notna()
        shown["near_duplicate_set"] = verdicts["duplicate_group"]
    buffer = io.BytesIO()
    if out.suffix.lower() == ".csv":
        safe_csv(shown).to_csv(buffer, index=False)
    elif out.suffix.lower() in PARQUET:
        shown.to_parquet(buffer, index=False)
    else:
        raise InputError(f"{out}: columns such as cleanlab's are written as .csv or .parquet")
    return {out: buffer.getvalue()}


def write_files(files: Files, *, dry_run: bool, overwrite: bool) -> int:
    """Write the files that differ, and return their number; `overwrite` allows replacing existing ones."""
    changed = {path: content for path, content in files.items() if _read(path) != content}
    for path in changed:
        if path.is_dir():
            raise InputError(f"{path}: there is a folder of that name; {ELSEWHERE}")
        if path.exists() and not overwrite:
            raise occupied(path, "the file differs")
    if not dry_run:
        for folder in {path.parent for path in files}:
            sweep(folder)  # leftovers of killed processes, even if nothing changes
        for path, content in changed.items():
            with replaced(path) as draft:
                draft.write_bytes(content)
    return len(changed)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes() if has_file(path) else None
    except OSError as error:
        raise InputError(f"{path}: can't be read: {error.strerror}") from error


def _json(value: Any) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=1, allow_nan=False) + "\n").encode(
        "utf-8", "backslashreplace"
    )


def plain_cell(value: Any) -> Any:
    """A cell as a JSON value; None if it is empty."""
    if isinstance(value, list | np.ndarray):
        return ", ".join(map(str, value)) or None
    if value is None or pd.isna(value):
        return None
    return value.item() if isinstance(value, np.generic) else value


def kept_rows(outcome: Outcome) -> Iterator[int]:
    """The rows that remain in a cleaned data set."""
    return (row for row, label in enumerate(outcome.table["label"]) if not pd.isna(label))
