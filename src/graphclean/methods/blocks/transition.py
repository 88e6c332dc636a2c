"""The transition matrix T: T[i, j] is the probability that a sample of class i was given label j."""

import math

import torch
from torch import Tensor

LEAST_TRANSITION = 1e-8
"""Least entry of an estimate, so that no given label is impossible."""


def estimate_transition(p: Tensor, percentile: float) -> Tensor:
    """T from predictions (N, K) on samples with noisy labels: a row a class, as predicted for its anchor.

    The anchor of a class is the sample that is most surely of it, but none above that percentile of its
    probability, since the surest may be outliers; at 1 it is the surest of all.
    """
    rank = len(p) - 1
    if percentile < 1:
        rank = max(math.ceil(percentile * rank) - 1, 0)
    anchors = p.argsort(dim=0, stable=True)[rank]
    rows = p[anchors].clamp(min=LEAST_TRANSITION)
    return rows / rows.sum(1, keepdim=True)


def forward_losses(logits: Tensor, given: Tensor, transition: Tensor) -> Tensor:
    """−log (Tᵀp)_y of each sample's given label y; of class 0 where there is none."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    to_given = transition.log().T[given.clamp(min=0)]
    return -(logits.log_softmax(1) + to_given).logsumexp(1)
