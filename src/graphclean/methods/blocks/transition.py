"""The transition matrix T: T[i, j] is the probability that a sample of class i was labeled j."""

import math

import torch
from torch import Tensor

LEAST_TRANSITION = 1e-8
"""Minimum entry of an estimate, so that no given label is impossible."""


def estimate_transition(p: Tensor, percentile: float) -> Tensor:
    """Estimate T from predictions (N, K) on noisy samples: each row is the prediction for its class's anchor.

    The anchor is the sample with the highest probability of the class up to this percentile, since the most
    confident samples may be outliers; at percentile 1 it is the most confident sample.
    """
    rank = len(p) - 1
    if percentile < 1:
        rank = max(math.ceil(percentile * rank) - 1, 0)
    anchors = p.argsort(dim=0, stable=True)[rank]
    rows = p[anchors].clamp(min=LEAST_TRANSITION)
    return rows / rows.sum(1, keepdim=True)


def forward_losses(logits: Tensor, given: Tensor, transition: Tensor) -> Tensor:
    """−log (Tᵀp)_y of each sample's given label y; of class 0 if it has none."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    to_given = transition.log().T[given.clamp(min=0)]
    return -(logits.log_softmax(1) + to_given).logsumexp(1)
