"""Batches of selected samples in which classes are equally frequent, as far as there are samples."""

import torch
from torch import Generator, Tensor


def balanced_batches(
    labels: Tensor, selected: Tensor, n_classes: int, shape: tuple[int, int], cap: float, generator: Generator
) -> Tensor:
    """Indices (steps, size) of selected samples, with the classes of `labels` equally frequent.

    No sample is repeated more than `cap` times as often as the average one, so that a class with few selected
    samples is not memorized; the other classes take the remaining places. The samples of a class are repeated
    equally often, up to one, and spread evenly over the steps. Classes without selected samples are left out.
    If nothing is selected, all indices are 0.
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
    """The number of places of each class: as equal as `cap` permits, summing to `total`."""
    room = [cap * count * total / sum(counts) for count in counts]
    quotas, left = [0] * len(counts), total
    waiting = sorted((c for c in range(len(counts)) if counts[c]), key=lambda c: (room[c], c))
    for place, c in enumerate(waiting):
        # The smallest class takes an equal part of the rest, up to its limit; the last takes all of it.
        last = place + 1 == len(waiting)
        quotas[c] = left if last else min(left // (len(waiting) - place), int(room[c]))
        left -= quotas[c]
    return quotas
