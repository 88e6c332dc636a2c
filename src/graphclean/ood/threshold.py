"""Where to reject, from the training set alone: for prototypes 1 − ζ of Eq. 9."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..config import OodSettings
from .bimodality import are_separated

Floats = npt.NDArray[np.float64]

MIN_OOD_RATE = 0.01
"""OOD share under which there is nothing to tell apart; as much is then rejected, the farthest out."""


@dataclass(frozen=True)
class Threshold:
    """Where a detector rejects: what scores above is OOD."""

    threshold: float
    rejected_known: float
    """Share of known samples expected above it."""
    ood_share: float
    """Share of the training set that is OOD."""
    how: Literal["auto", "fixed"] = "auto"
    """Found on the training set, or given by the user."""


def find_threshold(
    score: Floats, ood: Floats, settings: OodSettings, *, auto: float | None = None
) -> Threshold:
    """The threshold that the settings ask for, with what it does to the training set.

    `ood` is each training sample's probability of being OOD; where that is not known (NaN), all count as
    known. `auto` is half-way between the mean score of the samples that are rather OOD and of those that are
    rather known. Training draws all selected samples inwards, so that the place where one kind outweighs
    the other in the training set lies too high for new data; and a fit of two normals, which gives the long
    tail of the known to the OOD, lies too low. Where the two are not even a deviation apart, the samples
    that are rather OOD are mislabeled ones, and there is nothing to reject but the farthest out. Where the
    score is a probability, its threshold is `auto` itself, unless that would reject too few.
    """
    s, p = np.asarray(score, dtype=np.float64), np.asarray(ood, dtype=np.float64)
    p = np.where(np.isfinite(p), p, 0.0)
    far = p > 0.5
    if settings.threshold != "auto":
        threshold = float(settings.threshold)
    elif auto is not None:
        threshold = min(auto, float(np.quantile(s, 1 - MIN_OOD_RATE)))
    elif MIN_OOD_RATE <= far.mean() < 1 and are_separated(s[~far], s[far]):
        threshold = float(s[far].mean() + s[~far].mean()) / 2
    else:
        threshold = float(np.quantile(s, 1 - MIN_OOD_RATE))
    known = 1 - p if p.min() < 1 else np.ones_like(p)
    rejected = float(np.average(s > threshold, weights=known))
    return Threshold(
        threshold, rejected, float(p.mean()), "auto" if settings.threshold == "auto" else "fixed"
    )
