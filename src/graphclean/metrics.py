"""Scores of verdicts and predictions against a known truth."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from .data.verdict import Verdict

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


def auroc(ood_score: Floats, is_ood: Bools) -> float:
    """AUROC of OOD against known by score, larger = more OOD; NaN if either is missing."""
    if is_ood.all() or not is_ood.any():
        return float("nan")
    from sklearn.metrics import roc_auc_score  # here, as it takes a second to load

    return float(roc_auc_score(is_ood, ood_score))


def fpr_at_95(ood_score: Floats, is_ood: Bools) -> float:
    """Fraction of OOD accepted when 95 % of the known samples are; NaN if either is missing."""
    if is_ood.all() or not is_ood.any():
        return float("nan")
    from sklearn.metrics import roc_curve

    # All points: of tied scores, those on one line with their neighbors may be the first over 95 %.
    false, true, _ = roc_curve(~is_ood, -ood_score, drop_intermediate=False)
    return float(false[np.argmax(true >= 0.95)])


def open_set_f(right: Bools, accepted: Bools, is_ood: Bools) -> float:
    """Eq. 10-12: TP = known, accepted and correct; FP = known, wrong or rejected; FN = OOD accepted.

    The paper does not define the counts; these reproduce its DivideMix column.
    """
    true = int((~is_ood & accepted & right).sum())
    false = int((~is_ood & ~(accepted & right)).sum())
    missed = int((is_ood & accepted).sum())
    return 2 * true / (2 * true + false + missed) if true else 0.0


def top_k_accuracy(probabilities: Floats, truth: npt.NDArray[np.int64], k: int) -> float:
    """Fraction of samples whose true class is among the `k` most probable; of tied classes, the first counts.

    With k = 1 it is the accuracy of the most probable class. NaN without samples.
    """
    if not len(truth):
        return float("nan")
    own = np.take_along_axis(probabilities, truth[:, None], axis=1)
    earlier = np.arange(probabilities.shape[1]) < truth[:, None]
    before = (probabilities > own) | ((probabilities == own) & earlier)
    return float((before.sum(axis=1) < k).mean())


@dataclass(frozen=True)
class BestThreshold:
    """The threshold with the largest F on the samples it is scored on: for the paper's tables only."""

    threshold: float
    f: float


def best_threshold(score: Floats, right: Bools, is_ood: Bools) -> BestThreshold:
    """Tune the threshold on the test set, as the paper does for ζ: every score is tried."""
    order = np.argsort(score, kind="stable")
    good = (~is_ood & right)[order]
    is_ood_sorted = is_ood[order]
    true, missed = np.cumsum(good), np.cumsum(is_ood_sorted)
    known = int((~is_ood).sum())
    f = 2 * true / np.maximum(true + known + missed, 1)  # FP = known − TP
    # Equal scores fall together: only the last of a run is a border.
    ranked = score[order]
    border = np.append(ranked[1:] != ranked[:-1], True)
    f = np.where(border, f, -1)
    best = int(f.argmax())
    return BestThreshold(float(ranked[best]), float(f[best]))


@dataclass(frozen=True)
class OpenSetScores:
    """A classifier with a detector on a test set; larger `ood_score` = more OOD."""

    accuracy: float
    """Top-1 accuracy over the known samples, without rejection."""
    auroc: float
    fpr95: float
    f: float
    """Open-set F at the detector's own threshold."""
    f_best: float
    """Open-set F at the best ζ for these samples."""


def score_open_set(
    predicted: npt.NDArray[np.int64], score: Floats, truth: npt.NDArray[np.int64], threshold: float
) -> OpenSetScores:
    """Score predictions with OOD scores against the truth (below 0: OOD), rejecting above `threshold`."""
    is_ood = truth < 0
    right = predicted == truth
    return OpenSetScores(
        accuracy=float(right[~is_ood].mean()) if not is_ood.all() else float("nan"),
        auroc=auroc(score, is_ood),
        fpr95=fpr_at_95(score, is_ood),
        f=open_set_f(right, score <= threshold, is_ood),
        f_best=best_threshold(score, right, is_ood).f,
    )


@dataclass(frozen=True)
class NewScores:
    """Predictions for new samples against true labels; None if there is nothing to score."""

    known: int
    """Samples of known classes."""
    accuracy: float | None
    """Fraction classified correctly, without rejection."""
    known_rejected: float | None
    ood: int
    """OOD samples."""
    ood_rejected: float | None
    auroc: float | None


def score_new(right: Bools, rejected: Bools, ood_score: Floats, is_ood: Bools) -> NewScores:
    """Score predictions: `right` marks correct classes, `is_ood` OOD samples."""
    known = ~is_ood
    return NewScores(
        known=int(known.sum()),
        accuracy=float(right[known].mean()) if known.any() else None,
        known_rejected=float(rejected[known].mean()) if known.any() else None,
        ood=int(is_ood.sum()),
        ood_rejected=float(rejected[is_ood].mean()) if is_ood.any() else None,
        auroc=auroc(ood_score, is_ood) if known.any() and is_ood.any() else None,
    )


@dataclass(frozen=True)
class CleaningScores:
    """The selected set and pseudo-labels against the truth (below 0: OOD)."""

    selected: int
    wrong_known: int
    """Selected samples of a known class with a wrong pseudo-label."""
    ood: int
    """Selected OOD samples."""
    noise_rate: float
    """(wrong_known + ood) / selected."""
    label_accuracy: float
    """Fraction of correct pseudo-labels over all samples of known classes."""


def score_cleaning(
    labels: npt.NDArray[np.int64], selected: Bools, truth: npt.NDArray[np.int64]
) -> CleaningScores:
    """Score pseudo-labels and the selected set."""
    is_ood = truth < 0
    wrong = int((selected & ~is_ood & (labels != truth)).sum())
    n_ood = int((selected & is_ood).sum())
    count = int(selected.sum())
    return CleaningScores(
        selected=count,
        wrong_known=wrong,
        ood=n_ood,
        noise_rate=(wrong + n_ood) / count if count else float("nan"),
        label_accuracy=float((labels == truth)[~is_ood].mean()) if not is_ood.all() else float("nan"),
    )


GIVEN = (Verdict.KEEP, Verdict.RELABEL, Verdict.OOD, Verdict.UNCERTAIN)
"""Verdicts of samples with a label."""
LABEL_KINDS = ("right", "wrong", "ood")
"""What a labeled sample is: of a known class with its own label or another's, or OOD."""


@dataclass(frozen=True)
class VerdictScores:
    """Fractions from 0 to 1, and counts; NaN if the truth has no such case."""

    mislabel_f1: float
    """Flagged: proposed ≠ given; over the labeled samples of known classes."""
    issue_f1: float
    """Flagged: `relabel` or `ood`; over all labeled samples."""
    label_accuracy: float
    """Proposed = truth, over the samples of known classes."""
    ood_auroc: float
    """OOD against known, by `ood_score`, over the samples that have one."""
    three_way_f1: float
    """Macro-F1 over labeled samples: the most probable of keep, relabel, ood against `LABEL_KINDS`."""
    confusion: dict[str, dict[str, int]]
    """Number of labeled samples of each of `LABEL_KINDS` by verdict."""


def score_verdicts(table: pd.DataFrame, truth: Any, is_ood: Any) -> VerdictScores:
    """Score a verdict table; `truth` holds the true labels (anything on OOD rows), `is_ood` marks OOD.

    Unreadable samples are left out.
    """
    from sklearn.metrics import f1_score  # here, as it takes a second to load

    read = (table["verdict"] != Verdict.UNREADABLE).to_numpy()
    table, truth, is_ood = table[read], np.asarray(truth, dtype=object)[read], np.asarray(is_ood)[read]
    ood = np.asarray(is_ood, dtype=bool)
    given, proposed = (
        table[name].astype(object).where(table[name].notna(), None).to_numpy(dtype=object)
        for name in ("given_label", "proposed_label")
    )
    true = np.asarray(truth, dtype=object)
    labeled = table["given_label"].notna().to_numpy()
    wrong = (given != true) | ood
    verdict = table["verdict"].to_numpy(dtype=object)
    flagged = (verdict == Verdict.RELABEL) | (verdict == Verdict.OOD)
    p_ood = table["ood_score"].to_numpy(dtype=np.float64)
    p_keep = table["label_quality"].to_numpy(dtype=np.float64) * (1 - p_ood)
    kinds = np.where(ood, 2, np.where(wrong, 1, 0))
    scored = ~np.isnan(p_ood)
    most_likely = np.stack([p_keep, 1 - p_ood - p_keep, p_ood], axis=1).argmax(1)
    known, three_way = labeled & ~ood, labeled & scored
    return VerdictScores(
        mislabel_f1=_f1(wrong[known], (proposed != given)[known]),
        issue_f1=_f1(wrong[labeled], flagged[labeled]),
        label_accuracy=float((proposed == true)[~ood].mean()) if not ood.all() else float("nan"),
        ood_auroc=auroc(p_ood[scored], ood[scored]),
        three_way_f1=float(f1_score(kinds[three_way], most_likely[three_way], average="macro"))
        if three_way.any()
        else float("nan"),
        confusion={
            kind: {name: int((labeled & (kinds == row) & (verdict == name)).sum()) for name in GIVEN}
            for row, kind in enumerate(LABEL_KINDS)
        },
    )


def _f1(true: npt.NDArray[np.bool_], flagged: npt.NDArray[np.bool_]) -> float:
    if not true.any() and not flagged.any():
        return float("nan")
    from sklearn.metrics import f1_score

    return float(f1_score(true, flagged, zero_division=0.0))
