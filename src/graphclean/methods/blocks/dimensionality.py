"""Local intrinsic dimensionality: in how many directions the neighborhood of a sample grows."""

import torch
from torch import Tensor

LEAST_DISTANCE = 1e-12
"""Copies of a sample count as this far from it."""


@torch.no_grad()
def local_dimensionality(features: Tensor, k: int) -> Tensor:
    """LID (..., n) of samples (..., n, d) by the k nearest of the same set, without the sample itself.

    −k / Σ log(r_i / r_k), the maximum-likelihood estimate (Amsaleg et al., KDD 2015); infinite where all k
    are equally far.
    """
    x = features.double()
    distances = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")
    own = torch.eye(x.shape[-2], dtype=torch.bool, device=x.device)
    nearest = distances.masked_fill(own, torch.inf).topk(k, largest=False).values.clamp(min=LEAST_DISTANCE)
    return -k / (nearest / nearest[..., -1:]).log().sum(-1)
