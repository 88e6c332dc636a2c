"""Features, logits and labels by formula, and what the detectors of the literature say of them.

The numbers were computed in float64 by NumPy from the papers' formulas, and agree with pytorch-ood 0.4.0 but
for the conventions that are named.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphclean.ood.detector import Detector, Outputs
from graphclean.ood.detectors import load_detector


class Case(NamedTuple):
    """What a detector is fitted on, and what it scores."""

    train: Outputs
    labels: Tensor
    new: Outputs
    weight: Tensor
    bias: Tensor


def make_case() -> Case:
    """30 samples of 3 classes with 6 features, and 4 new ones."""
    i, c, m = (np.arange(n)[:, None] for n in (30, 3, 4))
    j = np.arange(6)
    x = np.abs(np.sin(1.3 * i + 0.7 * j) + 2.0 * (j == 2 * (i % 3)) + 0.5 * np.cos(0.9 * i * j))
    t = np.abs(1.5 * np.sin(2.1 * m + 0.4 * j) + 1.5 * (j == 2 * m))
    weight = 0.3 * np.cos(1.5 * c + 0.8 * j) + 1.2 * (j == 2 * c)
    bias = np.array([0.1, -0.2, 0.05])
    train, new = (
        Outputs(torch.as_tensor(rows @ weight.T + bias), torch.as_tensor(rows), torch.as_tensor(rows))
        for rows in (x, t)
    )
    return Case(train, torch.as_tensor(i[:, 0] % 3), new, torch.as_tensor(weight), torch.as_tensor(bias))


def fitted(name: str, case: Case, **changes: float) -> Detector:
    """A detector on the samples of a case, with other parameters than its own."""
    made = load_detector(name)(*case.weight.shape).double()
    for parameter, value in changes.items():
        setattr(made, parameter, value)
    made.take_head(case.weight, case.bias)
    return made.fit(case.train, case.labels)


SCORES = {
    "msp": (-0.607181, -0.431812, -0.620032, -0.861026),
    "max-logit": (-2.251863, -1.682518, -1.838603, -2.681654),
    "energy": (-2.750791, -2.522283, -2.316587, -2.831284),
    "entropy": (0.914977, 1.051282, 0.926778, 0.471925),
    "gen": (2.517271, 2.565385, 2.523754, 2.298063),
    "kl-matching": (0.152989, 0.091512, 0.056343, 0.036674),
    "mahalanobis": (15.729455, 3.122252, 14.860813, 10.400904),
    "rmd": (5.095880, -0.390111, -0.029327, 0.381041),
    "knn": (0.467069, 0.427266, 0.586923, 0.473710),
    "vim": (0.818874, 0.844528, 2.683035, 1.486689),
    "she": (-7.642833, -6.546428, -6.847158, -6.796879),
    "fdbd": (-0.550398, -0.178600, -0.474392, -0.727914),
    "nnguide": (-9.176092, -7.602235, -7.257441, -8.291894),
    "react": (-2.750791, -2.512125, -2.316587, -2.831284),
    "scale": (-26.195443, -12.959531, -15.158939, -20.694112),
    "ssd": (6.667512, 4.179709, 19.863156, 9.455485),
    "ash": (-22.159424, -14.474834, -8.438458, -19.770917),
}
"""Larger is more OOD. Ours is 1 + that of `msp`, since it is a share; pytorch-ood has the mean of `gen`'s
terms for their sum, half of `mahalanobis` by a scatter matrix for the covariance (1 / 2N of it), and `rmd` by
such matrices (1 / N of it).
"""
PARAMETERS = {"scale": {"left_out": 0.65}}
"""Where ours are not those of the fixture."""
