"""The summary of a run, as text and as HTML."""

from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from ..data.verdict import Verdict, describe_rates

MOST_WARNINGS = 5
"""Maximum number of warnings shown; the others are in `run.warnings`."""


def as_text(path: Path, kind: str, summary: dict[str, Any], verdicts: pd.DataFrame) -> str:
    """The summary as text, for consoles."""
    rows = [f"  {name:<10} {count:>9,}  {meaning}" for name, count, meaning in _counts(verdicts)]
    notes = [f"  warning: {note}" for note in _notes(summary)]
    return "\n".join([_title(path, kind, summary, verdicts), *rows, *_rates(summary), *notes])


def as_html(path: Path, kind: str, summary: dict[str, Any], verdicts: pd.DataFrame) -> str:
    """The summary as HTML, for notebooks; all text from data is escaped."""
    cells = "".join(
        f"<tr><td>{name}</td><td>{count:,}</td><td style='text-align:left'>{escape(meaning)}</td></tr>"
        for name, count, meaning in _counts(verdicts)
    )
    head = "<tr><th>verdict</th><th>samples</th><th></th></tr>"
    title = f"<p><b>{escape(_title(path, kind, summary, verdicts))}</b></p>"
    lines = "".join(f"<p>{escape(line.strip())}</p>" for line in _rates(summary))
    notes = "".join(f"<li>{escape(note)}</li>" for note in _notes(summary))
    return f"{title}<table>{head}{cells}</table>{lines}" + (f"<ul>{notes}</ul>" if notes else "")


def _title(path: Path, kind: str, summary: dict[str, Any], verdicts: pd.DataFrame) -> str:
    classes = len(summary.get("classes", []))
    return f"Run {path} ({kind}): {len(verdicts):,} samples, {classes} classes"


def _counts(verdicts: pd.DataFrame) -> list[tuple[str, int, str]]:
    """The verdicts that occur, in their usual order, with counts and meanings."""
    counts = verdicts["verdict"].value_counts()
    return [(str(name), int(counts[name]), name.meaning) for name in Verdict if name in counts]


def _rates(summary: dict[str, Any]) -> list[str]:
    rates = describe_rates(
        summary.get("noise_rate"), summary.get("ood_rate"), summary.get("possible_ood_rate")
    )
    issues = ", ".join(f"{count:,} {name}" for name, count in summary.get("photo_issues", {}).items())
    lines = [f"  photos, as pictures: {issues}"] if issues else []
    return [f"  estimated: {rates}", *lines] if rates is not None else lines


def _notes(summary: dict[str, Any]) -> list[str]:
    notes = [str(note) for note in summary.get("warnings", [])]
    more = len(notes) - MOST_WARNINGS
    return [*notes[:MOST_WARNINGS], *([f"and {more} more, in run.warnings"] if more > 0 else [])]
