"""Batches of the selected samples in which every class comes equally often, as far as it has samples."""

import torch
from torch import Generator, Tensor


def balanced_batches(
    labels: Tensor, selected: Tensor, n_classes: int, shape: tuple[int, int], cap: float, generator: Generator
) -> Tensor:
    """Indices of selected samples in (steps, size), drawn so that the classes of `labels` come equally often.

    No sample comes over `cap` times as often as the average one, so that a class of which little was selected
    is not memorized; the other classes take what it leaves. The samples of a class come equally often,
    give or take one, and are dealt to the steps in turn. A class without selected samples has no part in it.
    Where nothing is selected all indices are 0.
    """
    steps, size = shape
    order = torch.randperm(len(labels), generator=generator, device=labels.device)
    order = order[selected[order]]
    if not len(order):
        return torch.zeros(shape, dtype=torch.long, device=labels.device)
    order = order[labels[order].argsort(stable=True)]
    of_class = labels[order]
    counts = torch.bincount(of_class, minlength=n_classes)
    quotas = torch.tensor(class_quotas(counts.tolist(), steps * size, cap), device=labels.device)
    rank = torch.arange(len(order), device=labels.device) - (counts.cumsum(0) - counts)[of_class]
    quota, count = quotas[of_class], counts[of_class]
    times = quota // count + (rank < quota % count)
    return order.repeat_interleave(times).view(size, steps).T


def class_quotas(counts: list[int], total: int, cap: float) -> list[int]:
    """How many of `total` places each class takes: as equal as they can be with `cap`, and `total` in all."""
    room = [cap * count * total / sum(counts) for count in counts]
    quotas, left = [0] * len(counts), total
    waiting = sorted((c for c in range(len(counts)) if counts[c]), key=lambda c: (room[c], c))
    for place, c in enumerate(waiting):
        # The smallest takes its equal part of what is left, or all that it may; the last takes the rest.
        last = place + 1 == len(waiting)
        quotas[c] = left if last else min(left // (len(waiting) - place), int(room[c]))
        left -= quotas[c]
    return quotas
