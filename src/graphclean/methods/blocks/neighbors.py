"""Class votes of a sample's nearest neighbors, by hard or soft labels."""

import torch
from torch import Tensor

from ...graph.knn import nearest_neighbors

OF_ONE_CLASS = 0.5
"""Maximum number of neighbors per average class size: of more, too many are of other classes."""


def fitting_k(k: int, n: int, n_classes: int) -> int:
    """k, limited by `OF_ONE_CLASS` for a set of `n` samples."""
    return max(1, min(k, int(OF_ONE_CLASS * n / n_classes)))


@torch.no_grad()
def balanced_votes(features: Tensor, labels: Tensor, n_classes: int, k: int) -> Tensor:
    """Fraction of each class (N, K) in the votes of the `k` nearest, weighted by inverse class size.

    Votes count equally, regardless of distance; a sample does not vote on itself, nor does one with a label
    below 0. A row is 0 if no neighbor has a label.
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
    """Mean soft label (N, K) of each sample's `k` nearest neighbors, weighted by exp(cosine / tau)."""
    found = nearest_neighbors(z, k)
    weights = (found.similarities / tau).softmax(1).to(soft.dtype)
    mean = torch.zeros_like(soft)
    for column in range(weights.shape[1]):  # one neighbor at a time: (N, k, K) would not fit
        mean += weights[:, column, None] * soft[found.indices[:, column]]
    return mean
