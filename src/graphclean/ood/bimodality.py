"""Whether s(x) is bimodal, and P(OOD) by it alone where labels have been memorized."""

import numpy as np
import numpy.typing as npt
from scipy.special import expit

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SMALLEST = 0.05
"""Share of the samples that the lower mode must hold: fewer may be odd samples of a known class."""
FEWEST = 20
"""Samples that its peak must hold: fewer may be chance."""
UNLEARNED = 0.9
"""Share of a class in the lower mode from which on training has not learned it."""


def bimodal_ood_probability(similarity: Floats, classes: Ints) -> Floats | None:
    """Each sample's probability of being OOD, in the lower of two modes of s(x); None where s(x) is not
    bimodal.

    The modes are those of two means. Without OOD samples s has one mode, and a tail that the means cut
    somewhere, but not in a valley: around the border of two modes there must be less than half as many
    samples as at the lower mode's peak. The chance is that of two normals with one deviation, which falls
    evenly with s.

    `classes` is what each sample is taken for. Of a class that was learned, some lie close to its prototype,
    even where many OOD samples are taken for it too. Where nearly none do, as of cats and dogs when nine of
    ten labels are wrong, the lower mode is what has not been learned yet, and not what is OOD.
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
    # Equal values on both sides leave no variance, and a step.
    slope = gap / max(_variance_within(low, high), 1e-9)
    chance = np.asarray(expit(slope * (border - similarity) + np.log(len(low) / len(high))))
    return None if _miss_a_class(chance > 0.5, classes) else chance


def _miss_a_class(far: npt.NDArray[np.bool_], classes: Ints) -> bool:
    sizes = np.bincount(classes)
    return bool((np.bincount(classes[far], minlength=len(sizes)) >= UNLEARNED * sizes)[sizes >= FEWEST].any())


def are_separated(far: Floats, near: Floats) -> bool:
    """Whether the means of two groups are at least one of their deviations apart, the first below the
    second.
    """
    return bool(near.mean() - far.mean() >= np.sqrt(_variance_within(far, near)))


def _variance_within(low: Floats, high: Floats) -> float:
    return float((low.var() * len(low) + high.var() * len(high)) / (len(low) + len(high)))
