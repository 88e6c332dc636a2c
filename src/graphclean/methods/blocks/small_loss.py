"""Small-loss selection: networks fit clean labels first, so few labels with small losses are wrong.

Everything uses masks, so that shapes are static and there is no device sync.
"""

import torch
from torch import Tensor

ROUNDING_ERROR = 1e-6
"""Added before rounding down, so that 0.8 of 5 samples is 4 in floating point too."""


def remaining(candidates: Tensor, drop: Tensor | float) -> Tensor:
    """Number of samples left of a mask after dropping a fraction `drop`, at least one."""
    count = candidates.sum().double()
    return ((1 - drop) * count + ROUNDING_ERROR).floor().clamp(min=1)


def smallest_losses(losses: Tensor, candidates: Tensor, count: Tensor | int) -> Tensor:
    """Mask of the `count` candidates with the smallest losses, or of all if there are fewer."""
    order = losses.detach().masked_fill(~candidates, torch.inf).argsort(stable=True)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order), device=order.device)
    return candidates & (rank < count)


def smallest_of_class(losses: Tensor, labels: Tensor, n_classes: int, count: Tensor | int) -> Tensor:
    """Mask of the `count` smallest losses of each class; `count` may differ between classes.

    Samples with a label below 0 are left out. Classes are neither equally hard nor equally noisy; selecting
    by class leaves none of them without samples.
    """
    labeled = labels >= 0
    order = losses.detach().argsort(stable=True)
    of_class = torch.where(labeled, labels, n_classes)
    order = order[of_class[order].argsort(stable=True)]
    sizes = torch.zeros(n_classes + 1, dtype=torch.long, device=labels.device)
    sizes = sizes.scatter_add(0, of_class, torch.ones_like(of_class))
    sorted_class = of_class[order]
    rank = torch.empty_like(order)
    place = torch.arange(len(order), device=order.device)
    rank[order] = place - (sizes.cumsum(0) - sizes)[sorted_class]
    quota = torch.as_tensor(count, device=labels.device).expand(n_classes)
    return labeled & (rank < quota[labels.clamp(min=0)])
