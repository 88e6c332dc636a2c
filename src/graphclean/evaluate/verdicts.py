"""Scores of a verdict table against the truth."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.metrics import f1_score, roc_auc_score


@dataclass(frozen=True)
class VerdictScores:
    """Fractions from 0 to 1; NaN where the truth holds no case to score."""

    mislabel_f1: float
    """Flagged: proposed ≠ given; over the samples of known classes."""
    issue_f1: float
    """Flagged: `relabel` or `ood`; over all samples."""
    labels_right: float
    """Proposed = truth, over the samples of known classes."""
    ood_auroc: float
    """OOD against known, by `ood_score`."""
    three_way_f1: float
    """Macro-F1 of the likeliest of keep, relabel and ood against clean, mislabelled and OOD."""


def score_verdicts(table: pd.DataFrame, truth: Any, is_ood: Any) -> VerdictScores:
    """Score a verdict table; `truth` holds the true labels (anything on OOD rows), `is_ood` marks those."""
    ood = np.asarray(is_ood, dtype=bool)
    given, proposed = (
        table[name].astype(object).where(table[name].notna(), None).to_numpy(dtype=object)
        for name in ("given_label", "proposed_label")
    )
    true = np.asarray(truth, dtype=object)
    wrong = (given != true) | ood
    flagged = table["verdict"].isin(["relabel", "ood"]).to_numpy()
    p_ood = table["ood_score"].to_numpy(dtype=np.float64)
    p_keep = table["label_quality"].to_numpy(dtype=np.float64) * (1 - p_ood)
    kinds = np.where(ood, 2, np.where(wrong, 1, 0))
    both = bool(ood.any()) and not bool(ood.all())
    scored = not bool(np.isnan(p_ood).any())
    likeliest = np.stack([p_keep, 1 - p_ood - p_keep, p_ood], axis=1).argmax(1)
    return VerdictScores(
        mislabel_f1=_f1(wrong[~ood], (proposed != given)[~ood]),
        issue_f1=_f1(wrong, flagged),
        labels_right=float((proposed == true)[~ood].mean()) if not ood.all() else float("nan"),
        ood_auroc=float(roc_auc_score(ood, p_ood)) if both and scored else float("nan"),
        three_way_f1=float(f1_score(kinds, likeliest, average="macro")) if scored else float("nan"),
    )


def _f1(true: npt.NDArray[np.bool_], flagged: npt.NDArray[np.bool_]) -> float:
    if not true.any() and not flagged.any():
        return float("nan")
    return float(f1_score(true, flagged, zero_division=0.0))
