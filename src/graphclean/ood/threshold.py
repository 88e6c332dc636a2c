"""Where to reject, from the training set alone."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..config import OodSettings
from .bimodality import are_separated

Floats = npt.NDArray[np.float64]

MIN_OOD_RATE = 0.01
"""Share of OOD samples under which there is nothing to learn from."""
FEWEST_OOD = 10
"""OOD samples under which nothing is learned from them, and nothing said of their like."""


@dataclass(frozen=True)
class Threshold:
    """Where a detector rejects: what scores above is OOD."""

    threshold: float
    rejected_known: float
    """Share of known training samples above it."""
    rejected_ood: float | None
    """Share of the OOD training samples above it; None where there are none to tell by."""
    ood_share: float
    """Share of the training set that is OOD."""
    calibrated_on: int
    """Good inputs by which it was found, none of them trained on or each judged as if not."""
    how: Literal["auto", "fixed"] = "auto"
    """Found on the training set, or given by the user."""
    promised: float | None = None
    """Share of new inputs of the classes that is rejected; None where no share can be promised."""


def holds_ood(distance: Floats, ood: Floats) -> bool:
    """Whether training held OOD samples to learn from, by their probabilities of being so.

    Where those that are rather OOD are not even a deviation farther out than the rest, they are mislabeled.
    """
    far = ood > 0.5
    enough = far.sum() >= max(FEWEST_OOD, MIN_OOD_RATE * len(far)) and not far.all()
    return bool(enough and are_separated(-distance[far], -distance[~far]))


def find_threshold(
    score: Floats, ood: Floats, settings: OodSettings, *, learned: bool, good: Floats | None = None
) -> Threshold:
    """The threshold that the settings ask for, with what it does to the training set.

    `ood` is each training sample's probability of being OOD, and `learned` whether there is anything to it
    (`holds_ood`): otherwise, and where it is NaN, samples count as known.

    With scores of `good` inputs that were not trained on, or are judged as if not, it is conformal: of n of
    them the ⌈(n + 1)(1 − r)⌉th smallest score, so that r = `ood.reject` of new ones are rejected. Without, it
    promises nothing, as a network draws inwards what it is trained on. It then lies half-way between the mean
    scores of OOD and of known samples: where one kind outweighs the other is too high for new data. Without
    OOD it lies above all but the farthest hundredth.
    """
    s, p = np.asarray(score, dtype=np.float64), np.asarray(ood, dtype=np.float64)
    p = np.where(np.isfinite(p), p, 0.0)
    far = (p > 0.5) if learned else np.zeros(len(p), dtype=bool)
    known, promised = s[~far], None
    count = len(good) if good is not None else 0
    if settings.threshold != "auto":
        threshold = float(settings.threshold)
    elif good is not None:
        rank = math.ceil((count + 1) * (1 - settings.reject))
        promised = settings.reject if rank <= count else None
        threshold = float(np.sort(good)[min(rank, count) - 1])
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
        how="auto" if settings.threshold == "auto" else "fixed",
        promised=promised,
    )
