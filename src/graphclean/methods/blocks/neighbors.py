"""What a sample's nearest neighbors say its class is, by hard labels or by soft ones."""

import torch
from torch import Tensor

from ...graph.knn import nearest_neighbors

OF_ONE_CLASS = 0.5
"""Neighbors are at most so large a part of an average class: of more, too many are of other classes."""


def fitting_k(k: int, n: int, n_classes: int) -> int:
    """k, or what `OF_ONE_CLASS` leaves of it on a set of `n` samples."""
    return max(1, min(k, int(OF_ONE_CLASS * n / n_classes)))


@torch.no_grad()
def balanced_votes(features: Tensor, labels: Tensor, n_classes: int, k: int) -> Tensor:
    """The share of each class (N, K) in the votes of the `k` nearest, each class's divided by its size.

    Votes count alike, however near; a sample has none on itself, nor has one with a label under 0. A row is
    0 where no neighbor has a label.
    """
    voted = labels[nearest_neighbors(features, k).indices]
    counts = torch.zeros(len(labels), n_classes + 1, device=labels.device)
    counts.scatter_add_(
        1, torch.where(voted < 0, n_classes, voted), torch.ones_like(voted, dtype=counts.dtype)
    )
    sizes = torch.bincount(labels[labels >= 0], minlength=n_classes)
    votes = counts[:, :-1] / sizes.clamp(min=1)
    return votes / votes.sum(1, keepdim=True).clamp(min=torch.finfo(votes.dtype).tiny)


@torch.no_grad()
def average_neighbors(z: Tensor, soft: Tensor, k: int, tau: float) -> Tensor:
    """Each sample's mean of the soft labels (N, K) of its `k` nearest, weighted by exp(cosine / tau)."""
    found = nearest_neighbors(z, k)
    weights = (found.similarities / tau).softmax(1).to(soft.dtype)
    mean = torch.zeros_like(soft)
    for column in range(weights.shape[1]):  # one neighbor at a time: (N, k, K) would not fit
        mean += weights[:, column, None] * soft[found.indices[:, column]]
    return mean
