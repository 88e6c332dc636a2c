"""The local outlier factor: how much sparser a sample's neighborhood is than those of its neighbors."""

import torch
from torch import Tensor

TILE = 2**24
"""Maximum number of values held at once, of distances or of neighbors' features."""
LEAST_REACH = 1e-10
"""Added to the mean distance to neighbors, so that it is not 0 for duplicates."""


@torch.no_grad()
def local_outlier_factors(x: Tensor, k: int) -> Tensor:
    """LOF of each row from its `k` nearest (Breunig et al., 2000): about 1 for inliers, larger for outliers.

    It is 1 without neighbors.
    """
    k = min(k, len(x) - 1)
    if k < 1:
        return torch.ones(len(x), dtype=x.dtype, device=x.device)
    indices, distances = _nearest(x, k)
    reach = torch.maximum(distances[indices, -1], distances)
    density = 1 / (reach.mean(1) + LEAST_REACH)
    return density[indices].mean(1) / density


def _nearest(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Indices (N, k) and Euclidean distances of the nearest other rows, nearest first."""
    rows = max(1, TILE // max(len(x), k * x.shape[1]))
    indices, distances = [], []
    for start in range(0, len(x), rows):
        part = x[start : start + rows]
        tile = torch.cdist(part, x)
        tile.diagonal(start).fill_(torch.inf)
        near = tile.topk(k, dim=1, largest=False).indices
        # Recomputed from the features, as the products in `cdist` lose precision for close points.
        exact = (x[near] - part.unsqueeze(1)).square().sum(2).sqrt()
        ordered, order = exact.sort(dim=1)
        distances.append(ordered)
        indices.append(near.gather(1, order))
    return torch.cat(indices), torch.cat(distances)


@torch.no_grad()
def class_outlier_factors(x: Tensor, labels: Tensor, n_classes: int, k: int) -> Tensor:
    """LOF of each row among those with the same label; 1 for a label below 0."""
    found = torch.ones(len(x), dtype=x.dtype, device=x.device)
    for c in range(n_classes):
        rows = (labels == c).nonzero().squeeze(1)
        found[rows] = local_outlier_factors(x[rows], k)
    return found


@torch.no_grad()
def outlier_probabilities(factors: Tensor, labels: Tensor, n_classes: int) -> Tensor:
    """The probability of being an outlier of the class (Kriegel et al., LoOP, 2009).

    max(0, erf((f − 1) / (√2 s))), where s² is the class mean of (f − 1)²; 0 for a label below 0.
    """
    of_class = torch.where(labels < 0, n_classes, labels)
    excess = factors - 1
    total = torch.zeros(n_classes + 1, dtype=factors.dtype, device=factors.device)
    total.index_add_(0, of_class, excess.square())
    counts = torch.bincount(of_class, minlength=n_classes + 1).clamp(min=1)
    spread = (total / counts).sqrt()[of_class].clamp(min=torch.finfo(factors.dtype).tiny)
    found = torch.erf(excess / (2**0.5 * spread)).clamp(min=0)
    return found.where(labels >= 0, torch.zeros_like(found))
