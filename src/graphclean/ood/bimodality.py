"""Whether s(x) is bimodal, and P(OOD) from s(x) alone if labels have been memorized."""

import numpy as np
import numpy.typing as npt
from scipy.special import expit

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SMALLEST = 0.05
"""Fraction of the samples that the lower mode must hold: fewer may be unusual samples of a known class."""
FEWEST = 20
"""Samples that its peak must hold: fewer may be due to chance."""
UNLEARNED = 0.9
"""Fraction of a class in the lower mode above which training has not learned the class."""


def bimodal_ood_probability(similarity: Floats, classes: Ints) -> Floats | None:
    """P(OOD) of each sample as membership in the lower of two modes of s(x); None if s(x) is not bimodal.

    The modes are those of 2-means. Without OOD samples s has one mode with a tail that 2-means cuts
    somewhere, but not at a valley: around the boundary of two modes there must be less than half as many
    samples as at the lower mode's peak. The probability is that of two normal distributions with a common
    variance, which is monotonic in s.

    `classes` is the assigned class of each sample. Of a class that was learned, some samples are close to its
    prototype, even if many OOD samples are assigned to it too. If almost none are, as for cats and dogs with
    90 % wrong labels, the lower mode contains what has not been learned yet rather than OOD.
    """
    s = np.sort(np.asarray(similarity, dtype=np.float64))
    if s[0] == s[-1]:
        return None
    border = s.mean()
    for _ in range(100):
        low, high = s[s < border], s[s >= border]
        if len(low) == 0:
            return None
        gap, before, border = high.mean() - low.mean(), border, (high.mean() + low.mean()) / 2
        if border == before:
            break
    width = gap / 10

    def around(x: npt.ArrayLike) -> npt.NDArray[np.int64]:
        return np.asarray(np.searchsorted(s, np.add(x, width)) - np.searchsorted(s, np.subtract(x, width)))

    peak = around(np.linspace(s[0], border, 50)).max()
    if len(low) < SMALLEST * len(s) or peak < FEWEST or around(border) >= peak / 2:
        return None
    # If both groups are constant, the variance is 0 and the probability a step function.
    slope = gap / max(_variance_within(low, high), 1e-9)
    chance = np.asarray(expit(slope * (border - similarity) + np.log(len(low) / len(high))))
    return None if _miss_a_class(chance > 0.5, classes) else chance


def _miss_a_class(far: npt.NDArray[np.bool_], classes: Ints) -> bool:
    sizes = np.bincount(classes)
    return bool((np.bincount(classes[far], minlength=len(sizes)) >= UNLEARNED * sizes)[sizes >= FEWEST].any())


def are_separated(far: Floats, near: Floats) -> bool:
    """Whether the first of two groups has a mean at least one standard deviation below the other."""
    return bool(near.mean() - far.mean() >= np.sqrt(_variance_within(far, near)))


def _variance_within(low: Floats, high: Floats) -> float:
    return float((low.var() * len(low) + high.var() * len(high)) / (len(low) + len(high)))
