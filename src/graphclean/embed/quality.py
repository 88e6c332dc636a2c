"""Photo quality from measurements: CleanVision's issues, and blank photos."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..data.measures import Measures

Flags: TypeAlias = npt.NDArray[np.bool_]
Scores: TypeAlias = npt.NDArray[np.float64]

ISSUES = {
    "blank": "one color all over",
    "dark": "too dark to show much",
    "bright": "overexposed",
    "blurred": "without sharp edges",
    "low information": "few different tones",
    "odd size": "far larger or smaller than most",
    "odd aspect": "far longer than wide, or wider than long",
    "grayscale": "without color, as most are not",
}
"""Issue -> description, in display order."""
LEAST = {"dark_score": 0.32, "bright_score": 0.05, "blur_score": 0.29, "information_score": 0.3}
"""Scores below which a photo has the issue, as in CleanVision."""
LEAST_ASPECT = 0.35
"""Shorter side over longer side; CleanVision's value."""
EDGE_SCALE = 0.01
"""Scales of edges and histogram peaks in the blur score; CleanVision's, as are the next two."""
LEAST_PEAKS = 0.18
"""Above this, a histogram with few tones, rather than blur, explains a photo without edges."""
FENCE = 3.0
"""Interquartile ranges beyond the quartiles at which a size is odd."""
ODD_RATIO = 2.0
"""An odd size must also be this many times the median, or its inverse: otherwise common sizes make others
odd.
"""
FLAT = 0.01
"""The largest standard deviation of a channel in a blank photo: 2.5 of 255 levels, as JPEG noise has."""
COLORLESS = 0.02
"""The largest difference between channels in a photo without color, ignoring 1 % of the pixels."""


def quality_scores(measures: Measures) -> dict[str, Scores]:
    """Scores of each photo from 0 (worst) to 1: CleanVision's dark, light, blurry, low information."""
    brightest, darkest, entropy, edges, peaks = (
        measures[name].astype(np.float64) for name in ("brightest", "darkest", "entropy", "edges", "peaks")
    )
    sharp, peaked = -np.expm1(-EDGE_SCALE * edges), -np.expm1(-EDGE_SCALE * peaks)
    return {
        "dark_score": brightest,
        "bright_score": 1 - darkest,
        "blur_score": np.minimum(sharp + np.where(peaked > LEAST_PEAKS, peaked, 0), 1),
        "information_score": np.minimum(entropy / 10, 1),
    }


def find_issues(measures: Measures) -> dict[str, Flags]:
    """The photos that have each of `ISSUES`."""
    low = {name: scores < LEAST[name] for name, scores in quality_scores(measures).items()}
    width, height = measures["width"].astype(np.float64), measures["height"].astype(np.float64)
    gray = measures["color"] < COLORLESS
    blank = is_blank(measures)
    return {
        "blank": blank,
        "dark": low["dark_score"],
        "bright": low["bright_score"],
        "blurred": low["blur_score"],
        "low information": low["information_score"],
        "odd size": _is_odd(np.sqrt(width * height)),
        "odd aspect": np.minimum(width / height, height / width) < LEAST_ASPECT,
        "grayscale": gray & ~blank & (2 * gray.sum() < len(gray)),
    }


def is_blank(measures: Measures) -> Flags:
    """Photos that show nothing."""
    return np.asarray(measures["contrast"] < FLAT)


def quality_columns(measures: Measures) -> pd.DataFrame:
    """Columns of the verdict table about photo quality."""
    found = find_issues(measures)
    names = [[issue for issue, flags in found.items() if flags[row]] for row in range(len(measures))]
    sides = {name: pd.array(measures[name], dtype="Int64") for name in ("width", "height")}
    return pd.DataFrame({"photo_issues": names, **sides, **quality_scores(measures)})


def _is_odd(size: Scores) -> Flags:
    if not len(size):
        return np.zeros(0, dtype=bool)
    low, middle, high = np.percentile(size, [25, 50, 75])
    reach = FENCE * (high - low)
    return np.asarray(
        (size < min(low - reach, middle / ODD_RATIO)) | (size > max(high + reach, ODD_RATIO * middle))
    )
