"""Where to reject: ζ of Eq. 9 from the training set alone."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.stats import norm

from .settings import OodSettings

Floats = npt.NDArray[np.float64]

ROUNDS = 200
SEPARATION = 2.0
"""Ashman's D from which a mixture of two normals has two humps."""
FLOOR = 1e-3
"""Smallest deviation of a component, so that ties can't collapse it."""


@dataclass(frozen=True)
class Threshold:
    """A border on s(x): what lies below is OOD."""

    zeta: float
    rejected_known: float
    """Share of known samples expected below it."""
    ood_share: float
    """Share of the training set that is OOD, by the same estimate."""
    how: Literal["auto", "fixed"] = "auto"
    """Found on the training set, or given by the user."""


def find_threshold(similarity: Floats, settings: OodSettings, ood: Floats | None = None) -> Threshold:
    """The threshold that the settings ask for, with what it does to the training set.

    `ood` is each training sample's probability of being OOD, where that is known from elsewhere; without it
    a fit to s alone has to do, which counts the known samples that lie far out as OOD.
    """
    zeta = None if settings.zeta == "auto" else float(settings.zeta)
    if ood is not None and np.isfinite(ood).all() and (ood < 1).any():
        return informed_threshold(similarity, ood, zeta)
    return auto_threshold(similarity) if zeta is None else fixed_threshold(similarity, zeta)


def informed_threshold(similarity: Floats, ood: Floats, zeta: float | None = None) -> Threshold:
    """ζ that makes the fewest mistakes by the samples' own P(OOD), or what a given ζ does by them.

    A known sample under ζ and an OOD sample over it count the same, so that P(OOD) is about ½ at ζ. The
    lowest hundredth is always rejected: where nothing is OOD, the mistakes alone would set no border.
    """
    s, p = np.asarray(similarity, dtype=np.float64), np.asarray(ood, dtype=np.float64)
    how: Literal["auto", "fixed"] = "auto" if zeta is None else "fixed"
    if zeta is None:
        order = np.argsort(s, kind="stable")
        ranked = s[order]
        # Of rejecting the lowest 0, 1, … n samples: known ones lost, and OOD ones kept.
        mistakes = np.append(0, np.cumsum(1 - p[order])) + p.sum() - np.append(0, np.cumsum(p[order]))
        border = np.append(ranked[1:] != ranked[:-1], True)  # equal ones fall together
        mistakes[1:][~border] = np.inf
        cut = int(mistakes.argmin())
        between = (ranked[max(cut - 1, 0)] + ranked[min(cut, len(s) - 1)]) / 2
        zeta = float(max(between, np.quantile(s, 0.01)))
    rejected = ((1 - p) * (s < zeta)).sum() / (1 - p).sum()
    return Threshold(zeta, float(rejected), float(p.mean()), how)


def auto_threshold(similarity: Floats) -> Threshold:
    """Fit two normals to s over the training set; ζ is where the lower one takes over.

    Without two humps (Ashman's D under 2, or a component of next to nothing) there is nothing to tell apart,
    and ζ is the first percentile.
    """
    s = np.asarray(similarity, dtype=np.float64)
    low, high, weight = _fit(s)
    if not _two_humps(low, high, weight):
        zeta = float(np.quantile(s, 0.01))
        return Threshold(zeta, 0.01, 0.0)
    grid = np.linspace(low[0], high[0], 2001)
    odds = weight * norm.pdf(grid, *low) - (1 - weight) * norm.pdf(grid, *high)
    crossed = np.flatnonzero(odds <= 0)
    zeta = float(grid[crossed[0]]) if len(crossed) else float(high[0])
    return Threshold(zeta, float(norm.cdf(zeta, *high)), float(weight))


def fixed_threshold(similarity: Floats, zeta: float) -> Threshold:
    """A ζ that was given, with the share of known inputs it rejects by the fit of `auto_threshold`.

    Without two humps all of the training set counts as known.
    """
    s = np.asarray(similarity, dtype=np.float64)
    low, high, weight = _fit(s)
    if not _two_humps(low, high, weight):
        return Threshold(zeta, float((s < zeta).mean()), 0.0, "fixed")
    return Threshold(zeta, float(norm.cdf(zeta, *high)), float(weight), "fixed")


def _two_humps(low: tuple[float, float], high: tuple[float, float], weight: float) -> bool:
    apart = np.sqrt(2) * (high[0] - low[0]) / np.hypot(low[1], high[1])
    return bool(0.01 <= weight <= 0.99 and apart >= SEPARATION)


def _fit(s: Floats) -> tuple[tuple[float, float], tuple[float, float], float]:
    """Mean and deviation of the lower and the upper normal, and the share of the lower; by EM."""
    border = _otsu(s)
    lower = (s < border).astype(np.float64)
    for _ in range(ROUNDS):
        weight = float(np.clip(lower.mean(), 1e-6, 1 - 1e-6))
        parts = []
        for share in (lower, 1 - lower):
            total = max(float(share.sum()), 1e-9)
            mean = float((share * s).sum() / total)
            deviation = float(np.sqrt((share * (s - mean) ** 2).sum() / total))
            parts.append((mean, max(deviation, FLOOR)))
        low, high = parts
        below = weight * norm.pdf(s, *low)
        above = (1 - weight) * norm.pdf(s, *high)
        following = below / np.maximum(below + above, 1e-300)
        if np.abs(following - lower).max() < 1e-6:
            break
        lower = following
    return (low, high, weight) if low[0] <= high[0] else (high, low, 1 - weight)


def _otsu(s: Floats) -> float:
    """The split that leaves the least variance within the two sides."""
    ranked = np.sort(s)
    n = len(ranked)
    if n < 2:
        return float(ranked[0]) if n else 0.0
    left = np.cumsum(ranked)[:-1]
    count = np.arange(1, n)
    between = (left / count - (ranked.sum() - left) / (n - count)) ** 2 * count * (n - count)
    at = int(between.argmax())
    return float((ranked[at] + ranked[at + 1]) / 2)
