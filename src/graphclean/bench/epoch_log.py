"""The record of a run: every epoch as it ends, and the final scores."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .._files import plain, replaced
from .._shapes import check_shape
from ..config.settings import LccEdges
from ..errors import InputError, parse_json
from ..graph import Cleaned, confident_edges, select_components
from ..metrics import best_threshold, open_set_f, score_cleaning, score_open_set, top_k_accuracy
from .noise import Draw, LabelArray
from .schema import Cleaning, EpochRecord, Strategy

SAMPLE_KINDS = ("clean", "wrong", "ood")
"""A training sample has the right label, a wrong one, or is OOD."""
FIXED_ZETAS = (0.5, 0.7)
"""Thresholds that the paper reports in addition to the best one."""
DETECTOR_SCORES = ("auroc", "fpr95", "f_auto", "f_best")
"""Scores recorded for each further detector."""
CONTROL_LIMIT = 0.55
"""AUROC between original and resampled images above which a detector may be detecting the resampling."""


class EpochLog:
    """Records by epoch in a file that survives interruptions: one line per entry, later entries override
    earlier ones.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records: dict[int, EpochRecord] = {}
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
        for number, line in enumerate(lines, 1):
            try:
                self._merge(check_shape(parse_json(line), EpochRecord, path))
            except (ValueError, InputError) as error:
                if number < len(lines):
                    raise InputError(
                        f"{path}: line {number} is damaged; remove {path.parent} to start over"
                    ) from error
        # Keep whole lines only: a crash may have truncated the last one.
        with replaced(path) as draft:
            draft.write_text("".join(f"{json.dumps(record)}\n" for record in self.records.values()))

    def add(self, epoch: int, **values: Any) -> EpochRecord:
        """Record values of an epoch, overriding earlier ones of the same name; returns all values of the
        epoch.
        """
        entry = plain({"epoch": epoch, **values})
        self._merge(entry)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())
        return self.records[epoch]

    def _merge(self, entry: EpochRecord) -> None:
        self.records.setdefault(entry["epoch"], entry).update(entry)

    def first(self, count: int) -> list[EpochRecord]:
        """The records of epochs 1 to `count`, all of which must be complete."""
        missing = [e for e in range(1, count + 1) if "seconds" not in self.records.get(e, {})]
        if missing:
            raise InputError(
                f"{self.path}: epoch {missing[0]} is missing; remove {self.path.parent} to start over"
            )
        return [self.records[epoch] for epoch in range(1, count + 1)]


def sample_kinds(draw: Draw) -> LabelArray:
    """The kind (`SAMPLE_KINDS`) of every training sample."""
    return np.where(draw.truth < 0, 2, np.where(draw.labels == draw.truth, 0, 1))


def describe_cleaning(labels: Tensor, selected: Tensor, draw: Draw) -> Cleaning:
    """Scores of the selected set and pseudo-labels, and the accuracy of the given labels."""
    if not draw.truth_known:
        return Cleaning(
            selected=int(selected.sum()),
            wrong_known=None,
            ood=None,
            noise_rate=None,
            label_accuracy=None,
            given_right=None,
        )
    known = draw.truth >= 0
    found = score_cleaning(labels.cpu().numpy(), selected.cpu().numpy(), draw.truth)
    return Cleaning(
        selected=found.selected,
        wrong_known=found.wrong_known,
        ood=found.ood,
        noise_rate=found.noise_rate,
        label_accuracy=found.label_accuracy,
        given_right=float((draw.labels == draw.truth)[known].mean()),
    )


def mean_degrees(cleaned: Cleaned, kinds: LabelArray) -> dict[str, float | None]:
    """Mean degree of the confident nodes of each kind; None if there are none."""
    degrees, confident = cleaned.degrees.cpu().numpy(), cleaned.confident.cpu().numpy()
    chosen = {name: degrees[confident & (kinds == kind)] for kind, name in enumerate(SAMPLE_KINDS)}
    return {kind: float(found.mean()) if len(found) else None for kind, found in chosen.items()}


def compare_strategies(
    cleaned: Cleaned, truth: LabelArray, n_classes: int, edges: LccEdges
) -> dict[str, Strategy]:
    """The selection by confidence alone and by geometry alone, on a step's own labels and graph, and the
    step's own.

    `confidence` and `both` are the step's own decisions, including an OOD gate; geometry alone has no gate.
    """
    assert cleaned.graph is not None
    everyone = torch.ones_like(cleaned.confident)
    alone = confident_edges(cleaned.graph, everyone)
    chosen = {
        "confidence": cleaned.confident,
        "geometry": select_components(*alone, cleaned.labels, everyone, n_classes, edges),
        "both": cleaned.selected,
    }
    found: dict[str, Strategy] = {}
    for name, selected in chosen.items():
        scores = score_cleaning(cleaned.labels.cpu().numpy(), selected.cpu().numpy(), truth)
        found[name] = {"selected": scores.selected, "noise_rate": scores.noise_rate}
    return found


def describe_scores(
    predicted: LabelArray,
    score: npt.NDArray[np.float64],
    truth: LabelArray,
    threshold: float | None,
    *,
    classified: bool = True,
) -> dict[str, float | None]:
    """The scores of a result; accuracy alone if there is no threshold (a cell without OOD).

    Unless a classifier was trained, only those that no class has a part in.
    """
    found = _describe_scores(predicted, score, truth, threshold)
    claimed = found if classified else {"auroc", "fpr95"}
    return {name: value if name in claimed else None for name, value in found.items()}


def describe_top(
    probabilities: npt.NDArray[np.float64], truth: LabelArray, *, classified: bool = True
) -> dict[str, float | None]:
    """Top-1 and top-5 accuracy on a validation set, if a classifier was trained, and its number of images."""
    found = {"accuracy": 1, "top5": 5}
    scores = {
        name: top_k_accuracy(probabilities, truth, k) if classified else None for name, k in found.items()
    }
    return {**scores, "images": len(truth)}


def _describe_scores(
    predicted: LabelArray, score: npt.NDArray[np.float64], truth: LabelArray, threshold: float | None
) -> dict[str, float | None]:
    names = ("auroc", "fpr95", "f_auto", "f_best", "zeta_best", *(f"f_{fixed}" for fixed in FIXED_ZETAS))
    if threshold is None:
        return {"accuracy": float((predicted == truth).mean()), **dict.fromkeys(names)}
    right, is_ood = predicted == truth, truth < 0
    found = score_open_set(predicted, score, truth, threshold)
    best = best_threshold(score, right, is_ood)
    at = [open_set_f(right, score <= 1 - fixed, is_ood) for fixed in FIXED_ZETAS]
    values = (found.auroc, found.fpr95, found.f, best.f, 1 - best.threshold, *at)
    return {"accuracy": found.accuracy, **dict(zip(names, values, strict=True))}
