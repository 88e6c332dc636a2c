"""The learning rate schedule, and the total loss of a step."""

import functools
import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ..config import TrainingSettings


def phase_around(epoch: int, phases: Sequence[int], epochs: int) -> tuple[int, int]:
    """The first epoch of the phase that contains `epoch`, and that of the next phase.

    Epochs after the last one, which a benchmark may run, belong to the last phase.
    """
    start = max(first for first in phases if first <= epoch)
    return start, min((edge for edge in (*phases, epochs) if edge > epoch), default=epochs)


def learning_rate(settings: TrainingSettings, epoch: float, epochs: int) -> float:
    """Cosine decay from `lr` to `min_lr` over the epochs, with a linear warm-up."""
    s = settings
    lr = s.min_lr + (s.lr - s.min_lr) * (1 + math.cos(math.pi * epoch / epochs)) / 2
    return lr * max(epoch / s.lr_warmup_epochs, 1e-3) if epoch < s.lr_warmup_epochs else lr


def total_loss(losses: Mapping[str, Tensor], weights: Mapping[str, float]) -> Tensor:
    """The weighted sum, in the order of the losses."""
    terms = [weights[name] * loss for name, loss in losses.items()]
    return functools.reduce(torch.add, terms)
