"""Scores of a verdict table against the truth."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from .openset import auroc

GIVEN = ("keep", "relabel", "ood", "uncertain")
"""Verdicts of samples with a label."""
KINDS = ("right", "wrong", "ood")
"""What a labelled sample is: of a known class under its own label or another's, or of none."""


@dataclass(frozen=True)
class VerdictScores:
    """Fractions from 0 to 1, and counts; NaN where the truth holds no case to score."""

    mislabel_f1: float
    """Flagged: proposed ≠ given; over the labelled samples of known classes."""
    issue_f1: float
    """Flagged: `relabel` or `ood`; over all labelled samples."""
    labels_right: float
    """Proposed = truth, over the samples of known classes."""
    ood_auroc: float
    """OOD against known, by `ood_score`, over the samples that have one."""
    three_way_f1: float
    """Macro-F1 over the labelled: the likeliest of keep, relabel, ood against `KINDS`."""
    confusion: dict[str, dict[str, int]]
    """How many labelled samples of each of `KINDS` have each verdict."""


def score_verdicts(table: pd.DataFrame, truth: Any, is_ood: Any) -> VerdictScores:
    """Score a verdict table; `truth` holds the true labels (anything on OOD rows), `is_ood` marks those.

    What could not be read is left out.
    """
    from sklearn.metrics import f1_score  # here, as it takes a second to load

    read = (table["verdict"] != "unreadable").to_numpy()
    table, truth, is_ood = table[read], np.asarray(truth, dtype=object)[read], np.asarray(is_ood)[read]
    ood = np.asarray(is_ood, dtype=bool)
    given, proposed = (
        table[name].astype(object).where(table[name].notna(), None).to_numpy(dtype=object)
        for name in ("given_label", "proposed_label")
    )
    true = np.asarray(truth, dtype=object)
    labelled = table["given_label"].notna().to_numpy()
    wrong = (given != true) | ood
    verdict = table["verdict"].to_numpy(dtype=object)
    flagged = (verdict == "relabel") | (verdict == "ood")
    p_ood = table["ood_score"].to_numpy(dtype=np.float64)
    p_keep = table["label_quality"].to_numpy(dtype=np.float64) * (1 - p_ood)
    kinds = np.where(ood, 2, np.where(wrong, 1, 0))
    scored = ~np.isnan(p_ood)
    likeliest = np.stack([p_keep, 1 - p_ood - p_keep, p_ood], axis=1).argmax(1)
    known, three_way = labelled & ~ood, labelled & scored
    return VerdictScores(
        mislabel_f1=_f1(wrong[known], (proposed != given)[known]),
        issue_f1=_f1(wrong[labelled], flagged[labelled]),
        labels_right=float((proposed == true)[~ood].mean()) if not ood.all() else float("nan"),
        ood_auroc=auroc(p_ood[scored], ood[scored]),
        three_way_f1=float(f1_score(kinds[three_way], likeliest[three_way], average="macro"))
        if three_way.any()
        else float("nan"),
        confusion={
            kind: {name: int((labelled & (kinds == row) & (verdict == name)).sum()) for name in GIVEN}
            for row, kind in enumerate(KINDS)
        },
    )


def _f1(true: npt.NDArray[np.bool_], flagged: npt.NDArray[np.bool_]) -> float:
    if not true.any() and not flagged.any():
        return float("nan")
    from sklearn.metrics import f1_score

    return float(f1_score(true, flagged, zero_division=0.0))
