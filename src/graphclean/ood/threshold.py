"""Rejection thresholds from the training set alone."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..config import OodSettings
from .bimodality import are_separated

Floats = npt.NDArray[np.float64]

MIN_OOD_RATE = 0.01
"""Fraction of OOD samples below which there is nothing to learn from."""
FEWEST_OOD = 10
"""Number of OOD samples below which nothing is learned from them, and nothing claimed about OOD."""


@dataclass(frozen=True)
class Threshold:
    """A detector's threshold: inputs with higher scores are rejected as OOD."""

    threshold: float
    rejected_known: float
    """Fraction of known training samples above it."""
    rejected_ood: float | None
    """Fraction of OOD training samples above it; None if there are none to estimate it from."""
    ood_share: float
    """Fraction of OOD in the training set."""
    calibrated_on: int
    """Number of good inputs used to find it, none of them trained on or each judged as if it were not."""
    how: Literal["auto", "fixed"] = "auto"
    """Found on the training set, or given by the user."""
    promised: float | None = None
    """The guaranteed fraction of rejected new inputs of the classes; None if there is no guarantee."""


def holds_ood(distance: Floats, ood: Floats) -> bool:
    """Whether training contained OOD samples to learn from, by their P(OOD).

    If probable OOD samples are not even one standard deviation farther out than the rest, they are
    mislabeled.
    """
    far = ood > 0.5
    enough = far.sum() >= max(FEWEST_OOD, MIN_OOD_RATE * len(far)) and not far.all()
    return bool(enough and are_separated(-distance[far], -distance[~far]))


def find_threshold(
    score: Floats,
    ood: Floats,
    settings: OodSettings,
    *,
    learned: bool,
    good: Floats | None = None,
    selected: Floats | None = None,
) -> Threshold:
    """The threshold according to the settings, with its effect on the training set.

    `ood` is each training sample's P(OOD), and `learned` whether it is meaningful (`holds_ood`): otherwise,
    and where it is NaN, samples count as known.

    Given scores of `good` inputs that were not trained on, or are judged as if they were not, it is
    conformal: the ⌈(n + 1)(1 − r)⌉th smallest of n scores, so that a fraction r = `ood.reject` of new inputs
    is rejected. Without them there is no guarantee, because training lowers the scores of a network's own
    samples. The threshold is then halfway between the mean scores of OOD and known samples: the point at
    which one kind becomes more frequent is too high for new data. Without OOD only the farthest 1 % exceed
    it. With `conformal` it is the same order statistic of the scores of `selected` training samples.
    """
    s, p = np.asarray(score, dtype=np.float64), np.asarray(ood, dtype=np.float64)
    p = np.where(np.isfinite(p), p, 0.0)
    far = (p > 0.5) if learned else np.zeros(len(p), dtype=bool)
    known, promised = s[~far], None
    count = len(good) if good is not None else 0
    fixed = settings.threshold not in ("auto", "conformal")
    if fixed:
        threshold = float(settings.threshold)
    elif good is not None:
        threshold, kept = _conformal(good, settings.reject)
        promised = settings.reject if kept else None
    elif settings.threshold == "conformal" and selected is not None and len(selected):
        threshold, _ = _conformal(selected, settings.reject)
    elif learned:
        threshold = float(s[far].mean() + known.mean()) / 2
    else:
        threshold = float(np.quantile(known, 1 - MIN_OOD_RATE))
    return Threshold(
        threshold=threshold,
        rejected_known=float((known > threshold).mean()),
        rejected_ood=float((s[far] > threshold).mean()) if learned else None,
        ood_share=float(p.mean()),
        calibrated_on=count,
        how="fixed" if fixed else "auto",
        promised=promised,
    )


def _conformal(good: Floats, reject: float) -> tuple[float, bool]:
    """The threshold, and whether there are enough scores to guarantee the rejection rate."""
    rank = math.ceil((len(good) + 1) * (1 - reject))
    return float(np.sort(good)[min(rank, len(good)) - 1]), rank <= len(good)
