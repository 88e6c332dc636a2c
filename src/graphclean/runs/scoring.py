"""The one place where new data is scored, part by part and in the order of its rows."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..cleaning import with_unreadable
from ..cleaning.inputs import BadRows, Labels, refuse_all
from ..data.progress import Progress
from ..data.tables import listed
from ..data.verdict import Verdict
from ..distributed.group import current
from ..metrics import score_new
from ..ood.model import Model, predict_table
from .leakage import SHOWN, LeakageCheck, describe_leaks
from .pieces import Piece, Pieces


@dataclass
class Predicted:
    """What came of predictions, without their table."""

    out: Path | None = None
    """Where the table is; None if it was not written to a file."""
    samples: int = 0
    ood: int = 0
    """Number of rejected samples."""
    unreadable: int = 0
    known: Counter[str] = field(default_factory=Counter)
    """Number of accepted samples by class."""
    last: "pd.Series[Any] | None" = None
    """The last row of the table."""
    scores: dict[str, Any] | None = None
    """The predictions compared with the labels of the data, if that was asked for."""
    warnings: list[str] = field(default_factory=list)
    promised: float | None = None
    """The fraction of good samples that is rejected, if known."""

    def add(self, part: pd.DataFrame) -> None:
        """Count the next rows of the table."""
        self.samples += len(part)
        self.ood += int((part["verdict"] == Verdict.OOD).sum())
        self.unreadable += int((part["verdict"] == Verdict.UNREADABLE).sum())
        known = part["predicted_label"][part["verdict"] == "known"].value_counts()
        self.known.update({str(name): int(count) for name, count in known.items()})
        self.last = part.iloc[-1]

    def counts(self) -> dict[str, Any]:
        """Numbers of samples, of rejected and unreadable ones, and of accepted ones by class."""
        known = dict(self.known.most_common())
        return {"samples": self.samples, "ood": self.ood, "unreadable": self.unreadable, "known": known}


class Scoring:
    """Predictions for new data: tables of its rows in order, and in the end what came of them."""

    def __init__(
        self,
        model: Model,
        pieces: Pieces,
        *,
        given: Labels | None = None,
        leakage: LeakageCheck | None = None,
        progress: Progress | None = None,
    ) -> None:
        """Nothing is read before the first part is asked for; `given` are labels to compare with."""
        self.model, self.pieces, self.given, self.leakage = model, pieces, given, leakage
        self.progress = progress if progress is not None and not pieces.told else None
        self.found = Predicted(promised=model.found.promised)
        """Complete once all parts were taken."""

    def parts(self) -> Iterator[pd.DataFrame]:
        """Tables of all rows in order; with other than the first nothing is in memory that grows with the
        number of rows, but their names where the data has some.
        """
        self._check()
        ids, classes = self.pieces.ids, self.model.classes
        compared = _Comparison(self.given, classes) if self.given is not None else None
        leaks: list[tuple[str, str]] = []
        leaked, done = 0, 0
        for part, end in self._score():
            self.found.add(part)
            if compared is not None:
                compared.add(part, done)
            twice = part["duplicate_of"].notna()
            leaked += int(twice.sum())
            some = part[twice].head(SHOWN - len(leaks))
            leaks += zip(some["id"], some["duplicate_of"], strict=True)
            done = end
            yield part
        current().follow_only()
        scores = compared.scores() if compared is not None else None
        notes = describe_leaks(leaked, len(ids), leaks, "samples", " (column duplicate_of)")
        self.found.scores = scores
        self.found.warnings = self.model.notes + _score_notes(scores, classes) + notes

    def _score(self) -> Iterator[tuple[pd.DataFrame, int]]:
        """Each part, and where the next one starts; unreadable samples belong to the part after them."""
        total, start, done = len(self.pieces.ids), 0, 0
        empty: pd.DataFrame | None = None
        for piece in self.pieces.read():
            end = int(piece.rows[-1]) + 1
            part = self._score_piece(piece, done)
            done += len(piece.rows)
            empty = part.iloc[:0]
            yield self._complete(part, piece.rows, start, end), end
            start = end
        if start < total and empty is not None:
            yield self._complete(empty, np.zeros(0, dtype=np.int64), start, total), total

    def _score_piece(self, piece: Piece, done: int) -> pd.DataFrame:
        def tell(stage: str, now: int, _: int) -> None:
            if self.progress is not None:
                self.progress(stage, done + now, len(self.pieces.ids))

        rows = piece.rows
        whole = rows[-1] - rows[0] + 1 == len(rows)
        ids = self.pieces.ids
        names = list(ids[rows[0] : rows[-1] + 1]) if whole else [ids[row] for row in rows.tolist()]
        table = predict_table(self.model, piece.inputs, names, tell)
        leaked = [None] * len(rows) if self.leakage is None else self.leakage.find(piece.inputs, piece.hashes)
        table["duplicate_of"] = pd.Series(leaked, index=table.index, dtype=object)
        return table

    def _complete(
        self, table: pd.DataFrame, rows: npt.NDArray[np.int64], start: int, end: int
    ) -> pd.DataFrame:
        """The table of the rows from start to end, of which some can't be read."""
        if len(rows) < end - start:
            table = with_unreadable(table, self.pieces.ids[start:end], rows - start)
        if self.given is not None:
            table.insert(1, "given_label", self.given.names(self.given.codes[start:end]))
        return table

    def _check(self) -> None:
        """Look at all inputs before the first is scored, as an error after an hour would be a waste."""
        if self.pieces.checked:
            return
        bad: list[tuple[int, BadRows]] = []
        for piece in self.pieces.read():
            try:
                self.model.check(piece.inputs)
            except BadRows as found:
                bad.append((int(piece.rows[0]), found))
        refuse_all(bad, len(self.pieces.ids))


class _Comparison:
    """The predictions of all samples that have a label and can be read; labels that are no class of the run
    mean OOD.
    """

    def __init__(self, given: Labels, classes: Sequence[Any]) -> None:
        self.given = given
        self.known = {str(name) for name in classes}
        self.others: set[str] = set()
        self.columns: dict[str, list[npt.NDArray[Any]]] = {
            name: [] for name in ("right", "rejected", "ood_score", "is_ood")
        }

    def add(self, part: pd.DataFrame, start: int) -> None:
        """Add the next rows of the table."""
        codes = self.given.codes[start : start + len(part)]
        scored = (codes >= 0) & (part["verdict"] != Verdict.UNREADABLE).to_numpy()
        part = part[scored]
        labels = np.array([str(self.given.classes[code]) for code in codes[scored]], dtype=object)
        is_ood = np.array([name not in self.known for name in labels], dtype=bool)
        self.others |= set(labels[is_ood])
        found = {
            "right": labels == part["predicted_label"].map(str).to_numpy(dtype=object),
            "rejected": (part["verdict"] == Verdict.OOD).to_numpy(),
            "ood_score": part["ood_score"].to_numpy(dtype=np.float64),
            "is_ood": is_ood,
        }
        for name, values in found.items():
            self.columns[name].append(values)

    def scores(self) -> dict[str, Any]:
        """The scores of all of them."""
        whole = {name: np.concatenate(parts) for name, parts in self.columns.items()}
        return asdict(score_new(**whole)) | {"other_labels": sorted(self.others)}


def _score_notes(scores: dict[str, Any] | None, classes: Sequence[Any]) -> list[str]:
    """Warn if no label is a class of the run: labels with another spelling would silently count as OOD."""
    if scores is None or scores["known"] > 0 or scores["ood"] == 0:
        return []
    there = listed([str(name) for name in classes])
    return [f"not one label is a class of the run, so all samples are taken for OOD; its classes: {there}"]
