"""What changes on large sets: choices are made on some of the samples, and arrays are half as wide.

k, the scaling, the classifier and the noise model have a few parameters, which tens of thousands of samples
determine. The graph, the verdicts and the models for new data are still those of all samples.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

LARGE = 200_000
"""Sets of more samples are large."""
CHOSEN_ON = 50_000
"""Evenly spaced samples of a large set on which k, the scaling and the classifier are chosen."""
FITTED_ON = 100_000
"""Evenly spaced samples of a large set to which models are fitted."""
BLOCK_ROWS = 2**18
"""Rows processed at once where each is processed on its own; this does not affect the result."""


def is_large(n: int) -> bool:
    """Whether a set of `n` samples is large."""
    return n > LARGE


def fitted_on(n: int) -> npt.NDArray[np.int64] | slice:
    """The samples to which models are fitted: all of a set that is not large."""
    return spaced(n, FITTED_ON) if is_large(n) else slice(None)


def chosen_on(n: int) -> npt.NDArray[np.int64]:
    """The samples of a large set on which k, the scaling and the classifier are chosen."""
    return spaced(n, CHOSEN_ON)


def spaced(n: int, count: int) -> npt.NDArray[np.int64]:
    """At most `count` evenly spaced numbers below `n`."""
    return np.unique(np.linspace(0, n - 1, min(n, count)).round().astype(np.int64))


def row_blocks(n: int) -> Iterator[slice]:
    """Slices of `n` rows to process one after the other."""
    return (slice(start, min(start + BLOCK_ROWS, n)) for start in range(0, n, BLOCK_ROWS))
