"""The learning rate over the epochs, and the losses of a step as one number."""

import functools
import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ..config import TrainingSettings


def phase_around(epoch: int, phases: Sequence[int], epochs: int) -> tuple[int, int]:
    """The first epoch of the phase that `epoch` is in, and of the next one.

    An epoch after the last one, as a benchmark may run it, is still in the last phase.
    """
    start = max(first for first in phases if first <= epoch)
    return start, min((edge for edge in (*phases, epochs) if edge > epoch), default=epochs)


def learning_rate(settings: TrainingSettings, epoch: float, epochs: int) -> float:
    """Cosine from `lr` to `min_lr` over the epochs, and a linear ramp at the start."""
    s = settings
    lr = s.min_lr + (s.lr - s.min_lr) * (1 + math.cos(math.pi * epoch / epochs)) / 2
    return lr * max(epoch / s.lr_warmup_epochs, 1e-3) if epoch < s.lr_warmup_epochs else lr


def total_loss(losses: Mapping[str, Tensor], weights: Mapping[str, float]) -> Tensor:
    """The weighted sum, in the order of the losses."""
    terms = [weights[name] * loss for name, loss in losses.items()]
    return functools.reduce(torch.add, terms)
