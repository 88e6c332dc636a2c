"""Where to reject: ζ of Eq. 9 from the training set alone."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from .humps import lie_apart
from .settings import OodSettings

Floats = npt.NDArray[np.float64]

LEAST = 0.01
"""OOD share under which there is nothing to tell apart; as much is then rejected, the farthest out."""


@dataclass(frozen=True)
class Threshold:
    """A border on s(x): what lies below is OOD."""

    zeta: float
    rejected_known: float
    """Share of known samples expected below it."""
    ood_share: float
    """Share of the training set that is OOD."""
    how: Literal["auto", "fixed"] = "auto"
    """Found on the training set, or given by the user."""


def find_threshold(
    similarity: Floats, ood: Floats, settings: OodSettings, *, auto: float | None = None
) -> Threshold:
    """The threshold that the settings ask for, with what it does to the training set.

    `ood` is each training sample's probability of being OOD; where that is not known (NaN), all count as
    known. `auto` is half-way between the mean s of the samples that are rather OOD and of those that are
    rather known. Training draws all selected samples inwards, so that the place where one kind outweighs
    the other in the training set lies too low for new data; and a fit of two normals, which gives the long
    tail of the known to the OOD, lies too high. Where the two are not even a deviation apart, the samples
    that are rather OOD are mislabelled ones, and there is nothing to reject but the farthest out. Where s(x)
    is a probability, its border is `auto` itself, unless that would reject too few.
    """
    s, p = np.asarray(similarity, dtype=np.float64), np.asarray(ood, dtype=np.float64)
    p = np.where(np.isfinite(p), p, 0.0)
    far = p > 0.5
    if settings.zeta != "auto":
        zeta = float(settings.zeta)
    elif auto is not None:
        zeta = max(auto, float(np.quantile(s, LEAST)))
    elif LEAST <= far.mean() < 1 and lie_apart(s[far], s[~far]):
        zeta = float(s[far].mean() + s[~far].mean()) / 2
    else:
        zeta = float(np.quantile(s, LEAST))
    known = 1 - p if p.min() < 1 else np.ones_like(p)
    rejected = float(np.average(s < zeta, weights=known))
    return Threshold(zeta, rejected, float(p.mean()), "auto" if settings.zeta == "auto" else "fixed")
