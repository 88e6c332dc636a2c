"""Local intrinsic dimensionality: the number of directions in which a sample's neighborhood extends."""

import torch
from torch import Tensor

LEAST_DISTANCE = 1e-12
"""Minimum distance, assumed for duplicates of a sample."""


@torch.no_grad()
def local_dimensionality(features: Tensor, k: int) -> Tensor:
    """LID (..., n) of samples (..., n, d) from their k nearest neighbors in the set, without themselves.

    The maximum-likelihood estimate −k / Σ log(r_i / r_k) (Amsaleg et al., KDD 2015); infinite if all k
    neighbors are equally distant.
    """
    x = features.double()
    distances = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")
    own = torch.eye(x.shape[-2], dtype=torch.bool, device=x.device)
    nearest = distances.masked_fill(own, torch.inf).topk(k, largest=False).values.clamp(min=LEAST_DISTANCE)
    return -k / (nearest / nearest[..., -1:]).log().sum(-1)
