"""What is wrong with photos as such, by what was measured of them: CleanVision's issues, and blank photos."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from .measures import Measures

Flags: TypeAlias = npt.NDArray[np.bool_]
Scores: TypeAlias = npt.NDArray[np.float64]

ISSUES = {
    "blank": "one color all over",
    "dark": "too dark to tell much",
    "bright": "overexposed",
    "blurred": "without sharp edges",
    "low information": "few different tones",
    "odd size": "far larger or smaller than most",
    "odd aspect": "far longer than wide, or wider than long",
    "grayscale": "without color, as most are not",
}
"""Issue -> what it means, in the order in which they are shown."""
LEAST = {"dark_score": 0.32, "bright_score": 0.05, "blur_score": 0.29, "information_score": 0.3}
"""Scores under which a photo has the issue, as CleanVision has them."""
LEAST_ASPECT = 0.35
"""Of the shorter side to the longer; CleanVision's."""
EDGE_SCALE = 0.01
"""By which edges and peaks of a histogram go into the score of blur; CleanVision's, as the next two."""
LEAST_PEAKS = 0.18
"""From here on a histogram says that few tones, rather than blur, leave a photo without edges."""
FENCE = 3.0
"""Interquartile ranges beyond the quartiles at which a size is odd."""
ODD_RATIO = 2.0
"""And at least so many times the median size or its inverse: others are not odd yet where most are of one."""
FLAT = 0.01
"""Of a blank photo, the largest standard deviation of a channel: 2.5 of 255 levels, as of JPEG noise."""
COLORLESS = 0.02
"""Of a photo without color, the most that channels are apart, but for 1 of 100 pixels."""


def quality_scores(measures: Measures) -> dict[str, Scores]:
    """Of each photo from 0, the worst, to 1: CleanVision's scores of dark, light, blurry, low information."""
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
    """Which photos have each of `ISSUES`."""
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
    """Which photos show nothing at all."""
    return np.asarray(measures["contrast"] < FLAT)


def quality_columns(measures: Measures) -> pd.DataFrame:
    """What the table of verdicts says of photos."""
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
