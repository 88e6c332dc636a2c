"""Rerunning with review decisions: `graphclean clean RUN` and `graphclean train RUN`."""

import json
from collections import Counter
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from .._files import has_file, replaced
from ..cleaning import CleaningResult
from ..config import Config, recorded_settings
from ..data.tables import read_header
from ..data.verdict import Verdict
from ..errors import InputError
from .decisions import Decision, place_decisions, read_checked, settle, settle_notes
from .folder import (
    CHANGES,
    DECISIONS,
    SHOWN_CELLS,
    check_origin,
    is_run,
    read_config,
    read_summary,
    read_verdicts,
    recorded_data,
    require_finished,
    safe_csv,
)
from .inputs import IN_PYTHON, Source, is_there, source_name
from .schema import ChangeCount, ConfigFile, RerunRecord, SourceRecord

GONE_SHOWN = 3


@dataclass(frozen=True)
class EarlierRun:
    """A run, and the review decisions on its samples."""

    run: Path
    config: ConfigFile
    decisions: list[Decision]
    """The decisions in effect, one per sample."""
    notes: list[Decision]
    """Notes on samples, which the new run keeps."""

    @property
    def source(self) -> SourceRecord:
        """What the run was made from."""
        return self.config.get("source", SourceRecord())

    @property
    def shown(self) -> list[str]:
        """The columns that are shown with its samples."""
        return read_header(self.run / SHOWN_CELLS) if has_file(self.run / SHOWN_CELLS) else []

    @cached_property
    def data(self) -> Path:
        """The path of the run's data."""
        path = recorded_data(self.run, self.source)
        if str(path) == IN_PYTHON:
            raise InputError(f"{self.run}: made from arrays in Python, and can be made again only there")
        check_origin(
            self.run,
            self.source,
            "make a run of that data here, and add the decisions with `graphclean review --merge`",
        )
        if not is_there(path):
            raise InputError(
                f"{path}: not there; {self.run} was made from it. Run this from the folder where the run was "
                "made, or put the data back"
            )
        return path

    def settings(self, kind: str) -> Config | None:
        """The run's settings, if it was made by the same command."""
        if self.config.get("kind") != kind:
            return None
        return recorded_settings(self.config.get("settings", {}), str(self.run / "config.json"))

    def hold(self, source: Source) -> Source:
        """The source with the decisions on its samples; samples that are no longer in it are noted."""
        placed, gone = place_decisions(self.decisions, source.all_ids)
        notes = list(source.notes)
        if gone:
            some = ", ".join(gone[:GONE_SHOWN]) + (", …" if len(gone) > GONE_SHOWN else "")
            notes.append(
                f"decisions on samples that are no longer there, or more than once, are left out: {some}"
            )
        return replace(source, decisions=placed, notes=notes)

    def compare(self, cleaning: CleaningResult, source: Source) -> "Changes":
        """How the new verdicts differ from those of this run."""
        changes = compare(self.run, read_verdicts(self.run), cleaning.verdicts, source.decisions)
        notes, _ = place_decisions(self.notes, source.all_ids)
        return replace(changes, carried=[*source.decisions, *notes])


@dataclass(frozen=True)
class Changes:
    """How verdicts changed from one run to the next."""

    table: pd.DataFrame
    """The samples with another verdict, or relabeled to another class."""
    record: RerunRecord
    carried: list[Decision]
    """Decisions and notes that carry over to the new run."""

    def write(self, folder: Path) -> None:
        """Write the table, and the decisions and notes that carry over."""
        with replaced(folder / CHANGES) as draft:
            safe_csv(self.table).to_csv(draft, index=False)
        if self.carried:
            with replaced(folder / DECISIONS) as draft:
                lines = (json.dumps(asdict(decision)) for decision in self.carried)
                draft.write_text("".join(f"{line}\n" for line in lines))


def read_earlier(data: Path | Source) -> EarlierRun | None:
    """The run that DATA is; None if it is anything else."""
    if isinstance(data, Source) or not is_run(data):
        return None
    config = read_config(data)
    require_finished(data)
    lines = read_checked(data)
    return EarlierRun(data, config, list(settle(lines).values()), list(settle_notes(lines).values()))


def usual_settings(data: Path | Source, kind: str) -> Config:
    """The settings of the run that DATA is, if it was made by the same command; otherwise the defaults."""
    earlier = read_earlier(data)
    settings = earlier.settings(kind) if earlier is not None else None
    return settings if settings is not None else Config()


def default_run(data: Path | Source, kind: str, *, resume: bool = False) -> Path:
    """The default run folder for DATA; for a rerun, a free name next to the earlier run.

    With `resume`, the last existing run.
    """
    earlier = read_earlier(data)
    if earlier is None:
        name = "arrays" if isinstance(data, Source) else source_name(data)
        return Path("runs") / f"{name}-{kind}"
    first = earlier.run.parent / f"{source_name(earlier.data)}-{kind}"
    found, number = [first], 2
    while found[-1].exists():
        found.append(first.with_name(f"{first.name}-{number}"))
        number += 1
    return found[-2] if resume and len(found) > 1 else found[-1]


def compare(run: Path, before: pd.DataFrame, after: pd.DataFrame, decisions: list[Decision]) -> Changes:
    """Compare the verdicts of the same samples in two tables, by id if rows have moved."""
    old = before.reset_index(drop=True)
    if list(before["id"]) != list(after["id"]):
        alone = before.drop_duplicates("id", keep=False).set_index("id")
        known = after["id"].where(~after["id"].duplicated(keep=False))
        old = alone.reindex(known).reset_index()
    rows = pd.DataFrame(
        {
            "id": after["id"].to_numpy(),
            "before": old["verdict"].to_numpy(),
            "after": after["verdict"].to_numpy(),
            "proposed_before": old["proposed_label"].astype(object).map(str, na_action="ignore").to_numpy(),
            "proposed_after": after["proposed_label"].astype(object).map(str, na_action="ignore").to_numpy(),
            "decided": np.isin(np.arange(len(after)), [decision.row for decision in decisions]),
        }
    )
    rows = rows[rows["before"].notna()]
    moved = rows["before"] != rows["after"]
    other = (rows["after"] == Verdict.RELABEL) & (rows["proposed_before"] != rows["proposed_after"])
    pairs = list(zip(rows["before"], rows["after"], strict=True))
    held = Counter(pair for pair, decided in zip(pairs, rows["decided"], strict=True) if decided)
    counts = [
        ChangeCount(before=old_, after=new, samples=count, decided=held[old_, new])
        for (old_, new), count in Counter(pairs).most_common()
    ]
    changed = rows[moved | other]
    record = RerunRecord(
        run=str(run),
        decided=len(decisions),
        changed=len(changed),
        changed_undecided=int((~changed["decided"]).sum()),
        verdicts=counts,
    )
    return Changes(changed.reset_index(drop=True), record, decisions)


def read_changes(run: Path) -> RerunRecord | None:
    """How verdicts changed since the run that this one was made from, if any."""
    return read_summary(run).get("rerun")
