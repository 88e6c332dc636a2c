"""The samples of a run as integer columns, as many rows as the page can hold."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..data.verdict import Verdict
from ..embed.quality import ISSUES
from .escape import count_bytes, to_json

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

Ints = npt.NDArray[np.int64]
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
    near: list[list[int]]
    """Rows of the listed neighbors."""
    detector_score: Floats | None
    """Larger is more OOD; NaN if missing."""
    issues: list[list[int]]
    """Photo quality issues: indices into `ISSUES`."""
    group: Ints
    """The duplicate group; 0 if there is none."""
    cells: dict[str, list[str]] = field(default_factory=dict)
    """Additional columns shown with each sample."""

    def __len__(self) -> int:
        return len(self.ids)

    def where(self, *verdicts: str) -> npt.NDArray[np.bool_]:
        """A mask of the samples with one of these verdicts."""
        return np.isin(self.verdict, [list(Verdict).index(Verdict(name)) for name in verdicts])


def read_samples(verdicts: pd.DataFrame, classes: list[Any], detector_score: Floats | None) -> Samples:
    """Read from a run's verdicts; `detector_score` covers the readable samples."""
    ids = [str(name) for name in verdicts["id"]]
    names = [str(name) for name in classes]
    for column in ("given_label", "proposed_label"):
        there = verdicts[column].dropna().map(str).unique()
        names += sorted(set(there) - set(names))
    code = {name: place for place, name in enumerate(names)}
    order = {name: place for place, name in enumerate(Verdict)}
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
        verdict=np.array([order[Verdict(name)] for name in verdicts["verdict"]], dtype=np.int64),
        confidence=verdicts["confidence"].to_numpy(dtype=np.float64, na_value=np.nan),
        quality=verdicts["label_quality"].to_numpy(dtype=np.float64, na_value=np.nan),
        ood=verdicts["ood_score"].to_numpy(dtype=np.float64, na_value=np.nan),
        selected=verdicts["selected"].to_numpy(dtype=bool),
        near=_find_rows(ids, verdicts["neighbors"].tolist()),
        detector_score=wide,
        issues=_find_issues(verdicts),
        group=verdicts["duplicate_group"].to_numpy(dtype=np.int64, na_value=0),
    )


def _codes(labels: "pd.Series[Any]", code: dict[str, int]) -> Ints:
    kinds, names = pd.factorize(labels)  # -1 if there is no label
    places = np.array([code[str(name)] for name in names], dtype=np.int64)
    return np.where(kinds < 0, -1, places[kinds]) if len(places) else np.full(len(labels), -1)


def _find_issues(verdicts: pd.DataFrame) -> list[list[int]]:
    if "photo_issues" not in verdicts:
        return [[] for _ in range(len(verdicts))]
    place = {name: number for number, name in enumerate(ISSUES)}
    return [[place[name] for name in names if name in place] for names in verdicts["photo_issues"]]


def _find_rows(ids: list[str], named: list[list[str]]) -> list[list[int]]:
    """The first row of each id."""
    first: dict[str, int] = {}
    for row, name in enumerate(ids):
        first.setdefault(name, row)
    return [[first[name] for name in names if name in first] for names in named]


def rank(samples: Samples, verdict: str) -> Ints:
    """The rows with a verdict by decreasing confidence; for `uncertain`, by increasing label quality."""
    rows = np.flatnonzero(samples.where(verdict))
    sign = 1 if verdict == Verdict.UNCERTAIN else -1
    return np.asarray(rows[np.argsort(sign * samples.confidence[rows], kind="stable")])


def rows_with_issues(samples: Samples) -> Ints:
    """The photos with quality issues; the most numerous and severe issues come first."""
    rows = [row for row, found in enumerate(samples.issues) if found]
    return np.array(sorted(rows, key=lambda row: (-len(samples.issues[row]), samples.issues[row])), np.int64)


def duplicate_groups(samples: Samples) -> list[list[int]]:
    """The rows of each duplicate group; groups with conflicting labels come first."""
    held = np.flatnonzero(samples.group > 0)
    held = held[np.argsort(samples.group[held], kind="stable")]
    starts = np.flatnonzero(np.diff(samples.group[held])) + 1
    groups = [part.tolist() for part in np.split(held, starts) if len(part)]
    return sorted(groups, key=lambda rows: not is_conflicting(samples, rows))


def is_conflicting(samples: Samples, rows: list[int]) -> bool:
    """Whether duplicates carry different labels."""
    given = samples.given[rows]
    return len(np.unique(given[given >= 0])) > 1


def choose_rows(samples: Samples, wanted: Ints) -> Ints:
    """The rows of the page in increasing order: all, or first those `wanted`, then flagged ones by
    confidence, then a random sample of the others.
    """
    average = count_bytes(to_json([samples.ids, samples.cells])) / len(samples) + ROW_BYTES
    most = min(MOST_ROWS, int(MOST_TABLE_BYTES / average))
    if len(samples) <= most:
        return np.arange(len(samples))
    others = np.random.default_rng(0).permutation(len(samples))
    by_need = np.concatenate([wanted, *(rank(samples, name)[: most // 4] for name in FLAGGED), others])
    _, first = np.unique(by_need, return_index=True)
    held, room = [], MOST_TABLE_BYTES
    for row in by_need[np.sort(first)[:most]].tolist():
        cells = [texts[row] for texts in samples.cells.values()]
        size = count_bytes(to_json([samples.ids[row], cells])) + ROW_BYTES
        if size <= room:  # a row that is too long is skipped, and shorter ones may still fit
            held.append(row)
            room -= size
    return np.sort(np.array(held, dtype=np.int64))


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
    places = place.tolist()
    columns = {
        "id": [samples.ids[row] for row in rows.tolist()],
        "cells": {name: [texts[row] for row in rows.tolist()] for name, texts in samples.cells.items()},
        "given": samples.given[rows].tolist(),
        "proposed": samples.proposed[rows].tolist(),
        "verdict": samples.verdict[rows].tolist(),
        "confidence": _thousandths(samples.confidence[rows]),
        "quality": _thousandths(samples.quality[rows]),
        "ood": _thousandths(samples.ood[rows]),
        "selected": samples.selected[rows].astype(int).tolist(),
        "near": [[places[other] for other in samples.near[row]] for row in rows.tolist()],
        "issues": [samples.issues[row] for row in rows],
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
    pairs, counts = np.unique(
        np.column_stack([samples.given[rows], samples.proposed[rows]]), axis=0, return_counts=True
    )
    return [[int(from_), int(to), int(count)] for (from_, to), count in zip(pairs, counts, strict=True)]


def count_classes(samples: Samples) -> list[list[int]]:
    """Samples by verdict for each given class, in the order of `Verdict`."""
    table = np.zeros((len(samples.classes), len(Verdict)), dtype=np.int64)
    labeled = samples.given >= 0
    np.add.at(table, (samples.given[labeled], samples.verdict[labeled]), 1)
    return [[int(count) for count in row] for row in table]
