"""The samples of a run as integer columns, as many rows as the page can hold."""

import re
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..data.verdict import Verdict
from ..embed.quality import ISSUES
from .cells import ShownCells
from .escape import count_bytes, to_json
from .lists import Ints, Lists

FLAGGED = (Verdict.RELABEL, Verdict.OOD, Verdict.UNCERTAIN)
MOST_ROWS = 100_000
MOST_TABLE_BYTES = 13_000_000
"""Bytes of the table in the page; with very long names there are fewer rows."""
CLASS_LENGTHS = (2000, 600, 200, 80, 20)
"""Characters of a class name: the largest limit at which all names fit."""
MOST_CLASS_BYTES = 2_000_000
ROW_BYTES = 80
"""Approximate bytes per row, excluding its name."""
SCORE_SCALE = 1000
"""Scores are stored as thousandths."""

MOST_IN_MATRIX = 12
"""Classes in the matrix of given and proposed labels."""
ONE_BYTE_EACH = re.compile(r"[ !#-%'-;=?-\[\]-~]*")
"""Text that takes as many bytes in the page as it has characters."""
ESTIMATED_ON = 10_000
"""Rows by which the size of many more is estimated."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Samples:
    """The verdicts of all samples, with labels as class numbers."""

    ids: list[str]
    classes: list[str]
    given: Ints
    """−1 if there is none."""
    proposed: Ints
    verdict: Ints
    """Indices into `Verdict`."""
    confidence: Floats
    """NaN if there are no scores."""
    quality: Floats
    ood: Floats
    selected: npt.NDArray[np.bool_]
    near: Lists
    """Rows of the listed neighbors."""
    detector_score: Floats | None
    """Larger is more OOD; NaN if missing."""
    issues: Lists
    """Photo quality issues: indices into `ISSUES`."""
    group: Ints
    """The duplicate group; 0 if there is none."""
    cells: ShownCells = field(default_factory=ShownCells)
    """Additional columns shown with each sample."""

    def __len__(self) -> int:
        return len(self.ids)

    def where(self, *verdicts: str) -> npt.NDArray[np.bool_]:
        """A mask of the samples with one of these verdicts."""
        return np.isin(self.verdict, [list(Verdict).index(Verdict(name)) for name in verdicts])


def read_samples(verdicts: pd.DataFrame, classes: list[Any], detector_score: Floats | None) -> Samples:
    """Read from a run's verdicts; `detector_score` covers the readable samples."""
    ids = [str(name) for name in verdicts["id"].tolist()]
    names = [str(name) for name in classes]
    for column in ("given_label", "proposed_label"):
        there = map(str, verdicts[column].dropna().unique())
        names += sorted(set(there) - set(names))
    code = {name: place for place, name in enumerate(names)}
    order = {str(name): place for place, name in enumerate(Verdict)}
    wide = None
    readable = (verdicts["verdict"] != Verdict.UNREADABLE).to_numpy()
    if detector_score is not None and int(readable.sum()) == len(detector_score):
        wide = np.full(len(verdicts), np.nan)
        wide[readable] = detector_score
    return Samples(
        ids=ids,
        classes=names,
        given=_codes(verdicts["given_label"], code),
        proposed=_codes(verdicts["proposed_label"], code),
        verdict=_codes(verdicts["verdict"], order),
        confidence=verdicts["confidence"].to_numpy(dtype=np.float64, na_value=np.nan),
        quality=verdicts["label_quality"].to_numpy(dtype=np.float64, na_value=np.nan),
        ood=verdicts["ood_score"].to_numpy(dtype=np.float64, na_value=np.nan),
        selected=verdicts["selected"].to_numpy(dtype=bool),
        near=Lists.find(verdicts["neighbors"], ids),
        detector_score=wide,
        issues=Lists.find(verdicts["photo_issues"], list(ISSUES))
        if "photo_issues" in verdicts
        else Lists.empty(len(verdicts)),
        group=verdicts["duplicate_group"].to_numpy(dtype=np.int64, na_value=0),
    )


def _codes(labels: "pd.Series[Any]", code: dict[str, int]) -> Ints:
    kinds, names = pd.factorize(labels)  # -1 if there is no label
    places = np.array([code[str(name)] for name in names], dtype=np.int64)
    return np.where(kinds < 0, -1, places[kinds]) if len(places) else np.full(len(labels), -1)


def rank(samples: Samples, verdict: str) -> Ints:
    """The rows with a verdict by decreasing confidence; for `uncertain`, by increasing label quality."""
    rows = np.flatnonzero(samples.where(verdict))
    sign = 1 if verdict == Verdict.UNCERTAIN else -1
    return np.asarray(rows[np.argsort(sign * samples.confidence[rows], kind="stable")])


def rows_with_issues(samples: Samples) -> Ints:
    """The photos with quality issues; the most numerous and severe issues come first."""
    found = {row: samples.issues[row] for row in np.flatnonzero(samples.issues.lengths).tolist()}
    return np.array(sorted(found, key=lambda row: (-len(found[row]), found[row])), np.int64)


@dataclass(frozen=True)
class Duplicates:
    """Groups of samples that show the same thing."""

    groups: list[list[int]]
    """Their rows; groups with conflicting labels come first."""
    conflicting: int
    """The number of groups with conflicting labels."""

    @classmethod
    def find(cls, samples: Samples) -> "Duplicates":
        """The groups of all samples."""
        held = np.flatnonzero(samples.group > 0)
        if len(held) == 0:
            return cls([], 0)
        held = held[np.argsort(samples.group[held], kind="stable")]
        starts = np.concatenate([[0], np.flatnonzero(np.diff(samples.group[held])) + 1])
        given = samples.given[held]
        # A label that is not there conflicts with none.
        largest = np.maximum.reduceat(given, starts)
        smallest = np.minimum.reduceat(np.where(given < 0, len(samples.classes), given), starts)
        conflict = (largest >= 0) & (smallest < largest)
        groups = [part.tolist() for part in np.split(held, starts[1:])]
        return cls([groups[place] for place in np.argsort(~conflict, kind="stable")], int(conflict.sum()))


def choose_rows(samples: Samples, wanted: Ints) -> Ints:
    """The rows of the page in increasing order: all, or first those `wanted`, then flagged ones by
    confidence, then a random sample of the others.
    """
    whole = len(samples) <= MOST_ROWS
    some = (
        np.arange(len(samples)) if whole else np.linspace(0, len(samples) - 1, ESTIMATED_ON).astype(np.int64)
    )
    most = min(MOST_ROWS, int(MOST_TABLE_BYTES / np.mean(_row_bytes(samples, some))))
    if len(samples) <= most:
        return np.arange(len(samples))
    others = np.random.default_rng(0).permutation(len(samples))
    by_need = np.concatenate([wanted, *(rank(samples, name)[: most // 4] for name in FLAGGED), others])
    _, first = np.unique(by_need, return_index=True)
    chosen = by_need[np.sort(first)[:most]]
    held, room = [], MOST_TABLE_BYTES
    for row, size in zip(chosen.tolist(), _row_bytes(samples, chosen), strict=True):
        if size <= room:  # a row that is too long is skipped, and shorter ones may still fit
            held.append(row)
            room -= size
    return np.sort(np.array(held, dtype=np.int64))


def _row_bytes(samples: Samples, rows: Ints) -> list[int]:
    """The size of each of these rows in the page."""
    columns = [[samples.ids[row] for row in rows.tolist()], *samples.cells.take(rows).values()]
    sizes = [[_text_bytes(text) for text in texts] for texts in columns]
    return [ROW_BYTES + 5 + max(len(columns) - 2, 0) + sum(parts) for parts in zip(*sizes, strict=True)]


def _text_bytes(text: str) -> int:
    return len(text) + 2 if ONE_BYTE_EACH.fullmatch(text) else count_bytes(to_json(text))


def cut_classes(classes: list[str]) -> list[str]:
    """Class names as shown in the page: cut if they would not fit, and still distinct."""
    if count_bytes(to_json(classes)) <= MOST_CLASS_BYTES:
        return classes
    for length in CLASS_LENGTHS:
        cut = [
            name if len(name) <= length else f"{name[:length]}… ({place + 1})"
            for place, name in enumerate(classes)
        ]
        if count_bytes(to_json(cut)) <= MOST_CLASS_BYTES:
            break
    return cut


def as_columns(samples: Samples, rows: Ints) -> dict[str, Any]:
    """The rows of the page by column; neighbors are positions among them, −1 if left out."""
    place = np.full(len(samples), -1, dtype=np.int64)
    place[rows] = np.arange(len(rows))
    columns = {
        "id": [samples.ids[row] for row in rows.tolist()],
        "cells": samples.cells.take(rows),
        "given": samples.given[rows].tolist(),
        "proposed": samples.proposed[rows].tolist(),
        "verdict": samples.verdict[rows].tolist(),
        "confidence": _thousandths(samples.confidence[rows]),
        "quality": _thousandths(samples.quality[rows]),
        "ood": _thousandths(samples.ood[rows]),
        "selected": samples.selected[rows].astype(int).tolist(),
        "near": [place[samples.near[row]].tolist() for row in rows.tolist()],
        "issues": [samples.issues[row] for row in rows.tolist()],
    }
    if len(rows) < len(samples):
        columns["row"] = rows.tolist()
    if samples.detector_score is not None:
        columns["detector_score"] = _thousandths(samples.detector_score[rows])
    return columns


def _thousandths(values: Floats) -> list[int | None]:
    whole = np.rint(SCORE_SCALE * values).tolist()
    return [None if value != value else int(value) for value in whole]


def count_pairs(samples: Samples) -> list[list[int]]:
    """(given, proposed, samples) of kept or relabeled samples."""
    rows = samples.where(Verdict.KEEP, Verdict.RELABEL) & (samples.given >= 0)
    width = len(samples.classes) + 1  # a label may be proposed for none
    pairs, counts = np.unique(samples.given[rows] * width + samples.proposed[rows] + 1, return_counts=True)
    table: list[list[int]] = np.column_stack([pairs // width, pairs % width - 1, counts]).tolist()
    return table


def choose_classes(samples: Samples, pairs: list[list[int]]) -> list[int]:
    """The classes of the matrix: all, or those with the most labels changed to or from them."""
    count = len(samples.classes)
    if count <= MOST_IN_MATRIX:
        return list(range(count))
    given, proposed, number = np.array(pairs, dtype=np.int64).reshape(-1, 3).T
    changed = (given != proposed) & (proposed >= 0)
    moved = sum(np.bincount(ends[changed], number[changed], minlength=count) for ends in (given, proposed))
    return sorted(np.argsort(-np.asarray(moved), kind="stable")[:MOST_IN_MATRIX].tolist())


def count_classes(samples: Samples) -> list[list[int]]:
    """Samples by verdict for each given class, in the order of `Verdict`."""
    labeled = samples.given >= 0
    cells = samples.given[labeled] * len(Verdict) + samples.verdict[labeled]
    table = np.bincount(cells, minlength=len(samples.classes) * len(Verdict))
    return [[int(count) for count in row] for row in table.reshape(-1, len(Verdict))]
