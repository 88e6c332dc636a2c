"""Review decisions, in a file of lines that is only ever appended to."""

import errno
import json
import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from .._files import has_file, locked
from ..data.verdict import Verdict
from ..errors import InputError, parse_json
from .folder import DECISIONS, SCORE_COLUMNS, read_config, read_verdicts, require_finished

NOTE = "note"
DECISION_KINDS = ("accept", "reject", "label", "remove", "undo", NOTE)
LONGEST_NOTE = 1000
"""Maximum length of a note in characters."""


@dataclass(frozen=True)
class Decision:
    """One line: a reviewer's decision on one sample."""

    row: int
    id: str
    """Checked against the run, so that a decision is never applied to another sample."""
    kind: str
    """Accept the verdict, reject it, set another label, remove the sample, undo the last one; or a note."""
    label: str | None
    """The label of the sample from now on; None means OOD. It has no meaning for `undo` and notes."""
    time: str
    """UTC time as ISO 8601, which compares as text. All decisions of one step have the same time."""
    by: str | None = None
    note: str | None = None
    """The text of a `note`, which replaces the previous one; `undo` has no effect on notes."""


@dataclass(frozen=True)
class ReviewedSamples:
    """What decisions are validated against: the verdicts of a run, with labels as text."""

    ids: list[str]
    verdicts: list[str]
    given: list[str | None]
    proposed: list[str | None]

    @classmethod
    def read(cls, run: Path) -> Self:
        """Read the verdicts of a run folder."""
        # Scores as well, so that what is damaged is refused here and not by the page.
        columns = ("id", "verdict", "given_label", "proposed_label", *SCORE_COLUMNS)
        table = read_verdicts(run, columns)
        texts = [_texts(table[name]) for name in ("verdict", "given_label", "proposed_label")]
        return cls([str(name) for name in table["id"].tolist()], *texts)

    @cached_property
    def classes(self) -> frozenset[str]:
        """All labels, given or proposed."""
        return frozenset(name for name in {*self.given, *self.proposed} if name is not None)

    def decide(
        self,
        row: Any,
        kind: Any,
        label: Any = None,
        by: str | None = None,
        *,
        note: Any = None,
        time: str | None = None,
    ) -> Decision:
        """A validated decision; decisions of one step share a `time`, which is now by default.

        `label` is only for the kind `label`, and `note` only for notes.
        """
        if isinstance(row, bool) or not isinstance(row, int) or not 0 <= row < len(self.ids):
            raise InputError(f"there is no sample {row!r}")
        if kind not in DECISION_KINDS:
            raise InputError(f"there is no decision {kind!r}")
        if kind == "label" and label not in self.classes:
            raise InputError(f"there is no class {label!r}")
        if kind == NOTE and not (isinstance(note, str) and len(note) <= LONGEST_NOTE):
            raise InputError(f"a note is text of at most {LONGEST_NOTE} characters")
        outcome = label
        if kind == "accept":
            moved = {
                Verdict.RELABEL: self.proposed[row],
                Verdict.UNLABELED: self.proposed[row],
                Verdict.OOD: None,
            }
            outcome = moved.get(Verdict(self.verdicts[row]), self.given[row])
        elif kind == "reject":
            outcome = self.given[row]
        elif kind != "label":
            outcome = None
        written = (note.strip() or None) if kind == NOTE else None
        return Decision(row, self.ids[row], kind, outcome, time if time is not None else now(), by, written)

    def check(self, decisions: Sequence[Decision], path: Path) -> None:
        """Refuse decisions on samples, or for labels, that are not in the run."""
        classes = self.classes
        for number, decision in enumerate(decisions, 1):
            here = 0 <= decision.row < len(self.ids) and self.ids[decision.row] == decision.id
            if not here:
                raise InputError(
                    f"{path}, decision {number}: {decision.id} is not a sample of this run; take the line "
                    "out, or the file, if it belongs to another run"
                )
            if decision.kind not in DECISION_KINDS:
                raise InputError(f"{path}, decision {number}: there is no decision {decision.kind!r}")
            if decision.label is not None and decision.label not in classes:
                raise InputError(f"{path}, decision {number}: no class {decision.label!r} in this run")


def _texts(column: "pd.Series[Any]") -> list[Any]:
    """The values of a column that repeat, as text; None where there is none."""
    codes, names = pd.factorize(column)  # -1 if there is no label
    return list(np.array([*map(str, names), None], dtype=object)[codes])


def now() -> str:
    """The current time, as recorded in decisions."""
    return datetime.now(UTC).isoformat()


def place_decisions(decisions: Sequence[Decision], ids: Sequence[str]) -> tuple[list[Decision], list[str]]:
    """Move decisions to the current rows of their samples; also returns the ids that were not found in `ids`.

    Rows change if samples are added or removed. An id that occurs more than once identifies no row.
    """
    rows: dict[str, int | None] = {}
    for row, name in enumerate(ids):
        rows[name] = None if name in rows else row
    placed: list[Decision] = []
    gone: dict[str, None] = {}
    for decision in decisions:
        here = 0 <= decision.row < len(ids) and ids[decision.row] == decision.id
        place = decision.row if here else rows.get(decision.id)
        if place is None:
            gone[decision.id] = None
        else:
            placed.append(replace(decision, row=place))
    return placed, list(gone)


def read_decisions(path: Path) -> list[Decision]:
    """Read the decisions in a file; empty if there is no file. An incompletely written last line is ignored.

    A last line that only lacks its newline, as some editors leave it, is complete.
    """
    try:
        text = path.read_bytes() if has_file(path) else b""
    except OSError as error:
        raise InputError(f"{path}: can't be read: {error.strerror}") from error
    decisions = []
    *lines, last = text.split(b"\n")
    if _is_whole(last):
        lines.append(last)
    for number, line in enumerate(lines, 1):
        try:
            decisions.append(_parse(parse_json(line)))
        except (ValueError, TypeError) as error:
            raise InputError(f"{path}, line {number}: not a decision; take the line out") from error
    return decisions


def _parse(value: Any) -> Decision:
    decision = Decision(**value)
    texts = (decision.id, decision.kind, decision.time)
    named = (decision.label, decision.by, decision.note)
    if not isinstance(decision.row, int) or not all(isinstance(text, str) for text in texts):
        raise TypeError
    if not all(name is None or isinstance(name, str) for name in named):
        raise TypeError
    return decision


def _is_whole(line: bytes) -> bool:
    """Whether the text after the last newline is a complete decision."""
    try:
        _parse(parse_json(line))
    except (ValueError, TypeError):
        return False
    return True


class Settled:
    """The decision in effect for each row, while decisions are added; an undo restores the previous one."""

    def __init__(self, decisions: Iterable[Decision] = ()) -> None:
        self._stacks: dict[int, list[Decision]] = {}
        for decision in decisions:
            self.add(decision)

    def add(self, decision: Decision) -> None:
        """Let a decision take effect; its row becomes the most recent one."""
        if decision.kind == NOTE:
            return
        stack = self._stacks.pop(decision.row, [])
        if decision.kind != "undo":
            stack.append(decision)
        elif stack:
            stack.pop()
        if stack:
            self._stacks[decision.row] = stack

    def find(self, row: int) -> Decision | None:
        """The decision on a row, if there is one."""
        stack = self._stacks.get(row)
        return stack[-1] if stack else None

    def all(self) -> dict[int, Decision]:
        """All of them by row, most recent last."""
        return {row: stack[-1] for row, stack in self._stacks.items()}


def settle(decisions: Iterable[Decision]) -> dict[int, Decision]:
    """The decision in effect for each row, most recent last."""
    return Settled(decisions).all()


def settle_notes(decisions: Sequence[Decision]) -> dict[int, Decision]:
    """The current note of each row that has one."""
    last = {decision.row: decision for decision in decisions if decision.kind == NOTE}
    return {row: decision for row, decision in last.items() if decision.note is not None}


def read_checked(run: Path) -> list[Decision]:
    """All decisions and notes on a run, once validated against its samples."""
    decisions = read_decisions(run / DECISIONS)
    if decisions:
        ReviewedSamples.read(run).check(decisions, run / DECISIONS)
    return decisions


def read_decided(run: Path) -> dict[int, Decision]:
    """The review decisions in effect for a run, by row."""
    return settle(read_checked(run))


class DecisionLog:
    """The decisions on a run, open for appending: each is on disk before `add` returns."""

    def __init__(self, run: Path) -> None:
        read_config(run)
        require_finished(run)
        self.path = run / DECISIONS
        if self.path.is_symlink():
            raise InputError(f"{self.path}: a link, and what it leads to is not written to; put a file there")
        has_file(self.path)  # anything else is refused
        self.samples = ReviewedSamples.read(run)
        self._alone = ExitStack()
        self._alone.enter_context(
            locked(self.path, f"{self.path}: another review of this run is open; end it first")
        )
        try:
            self._file = self._alone.enter_context(self.path.open("ab", buffering=0))
            self.decisions = read_decisions(self.path)
            self.samples.check(self.decisions, self.path)
            self.settled = Settled(self.decisions)
            # A torn line would corrupt the one after it, and so would a line without a newline.
            text = self.path.read_bytes()
            if _is_whole(text.rpartition(b"\n")[2]):
                self._file.write(b"\n")
            else:
                self._file.truncate(text.rfind(b"\n") + 1)
        except OSError as error:
            self._alone.close()
            raise InputError(f"{self.path}: can't be written: {error.strerror}") from error
        except BaseException:
            self._alone.close()
            raise

    def add(self, *decisions: Decision) -> None:
        """Append decisions, all or none of them."""
        lines = "".join(f"{json.dumps(asdict(decision))}\n" for decision in decisions).encode()
        size = os.fstat(self._file.fileno()).st_size
        try:
            if self._file.write(lines) < len(lines):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(self._file.fileno())
        except OSError as error:
            with suppress(OSError):
                self._file.truncate(size)
            raise InputError(f"{self.path}: can't be written: {error.strerror}") from error
        self.decisions.extend(decisions)
        for decision in decisions:
            self.settled.add(decision)

    def close(self) -> None:
        """Release the file, and delete it if it is empty."""
        with suppress(OSError):
            if os.fstat(self._file.fileno()).st_size == 0:
                self.path.unlink()
        self._alone.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class Merged:
    """The result of merging another reviewer's file."""

    added: int
    """Number of samples that only the other reviewer had decided on."""
    agreed: int
    conflicts: list[dict[str, Any]] = field(default_factory=list)
    """Samples with different decisions: `id`, `ours`, `theirs`, and which one was `taken`."""
    notes: int = 0
    """Number of notes taken over; if both reviewers wrote one, the later one is shown."""
    gone: list[str] = field(default_factory=list)
    """Ids that are missing from this run or occur more than once; decisions on them are ignored."""


def merge_decisions(run: Path, other: Path) -> Merged:
    """Merge the decisions of another reviewer, or of an earlier run on the same samples.

    Samples are matched by id, as rows change if samples are added or removed. Of two different decisions, the
    later one takes effect. If that is theirs, ours stays before it in the file, and an undo restores it.
    """
    if other.is_dir():
        raise InputError(f"{other}: a folder; the decisions of a run are in {other / DECISIONS}")
    if not other.is_file():
        raise InputError(f"{other}: no such file")
    theirs = read_decisions(other)
    if not theirs:
        raise InputError(f"{other}: there is not one decision in it")
    added, agreed, conflicts, notes = 0, 0, [], 0
    with DecisionLog(run) as log:
        placed, gone = place_decisions(theirs, log.samples.ids)
        log.samples.check(placed or theirs, other)
        ours = log.settled.all()
        for row, decision in settle(placed).items():
            mine = ours.get(row)
            if mine is not None and mine.label == decision.label:
                agreed += 1
                continue
            later = mine is None or decision.time > mine.time
            if later:
                log.add(decision)
            if mine is None:
                added += 1
            else:
                names = {"id": decision.id, "ours": mine.label, "theirs": decision.label}
                conflicts.append({**names, "taken": "theirs" if later else "ours"})
        written = settle_notes(log.decisions)
        for row, note in settle_notes(placed).items():
            own = written.get(row)
            if own is None or (own.note != note.note and note.time > own.time):
                log.add(note)
                notes += 1
    return Merged(added, agreed, conflicts, notes, gone)
