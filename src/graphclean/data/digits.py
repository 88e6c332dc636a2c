"""Scikit-learn's digits with noisy labels: the data of `graphclean demo`."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

KNOWN = 8
"""Digits 0 to 7 are the classes; 8 and 9 are OOD."""


@dataclass(frozen=True)
class NoisyDigits:
    """Pixels, noisy labels, and the truth."""

    pixels: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    truth: npt.NDArray[np.int64]

    @property
    def is_ood(self) -> npt.NDArray[np.bool_]:
        """The 8s and 9s."""
        return self.truth >= KNOWN

    @property
    def images(self) -> npt.NDArray[np.uint8]:
        """The pixels, 0 to 16, as images of 0 to 255: (N, 1, 8, 8)."""
        return np.asarray(np.rint(self.pixels * (255 / 16)), dtype=np.uint8).reshape(-1, 1, 8, 8)


def noisy_digits(noise: float = 0.5, seed: int = 0) -> NoisyDigits:
    """Digits with noisy labels: a fraction `noise` of the 0-7, and all 8s and 9s, get a random label from
    0-7.
    """
    from sklearn.datasets import load_digits  # here, as it takes a second to load

    pixels, truth = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    labels = truth.copy()
    known = np.flatnonzero(truth < KNOWN)
    chosen = rng.choice(known, round(noise * len(known)), replace=False)
    labels[chosen] = rng.integers(0, KNOWN, len(chosen))
    unknown = truth >= KNOWN
    labels[unknown] = rng.integers(0, KNOWN, int(unknown.sum()))
    return NoisyDigits(pixels.astype(np.float32), labels.astype(np.int64), truth.astype(np.int64))
