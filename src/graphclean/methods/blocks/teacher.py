"""A mean teacher: a second network whose weights are a moving average of a student's."""

import copy
import math

import torch
from torch import nn

from ...training.networks import Network


def copy_as_teacher(student: Network) -> Network:
    """A copy that receives no gradients."""
    return copy.deepcopy(student).requires_grad_(False)


@torch.no_grad()
def update_teacher(teacher: nn.Module, student: nn.Module, decay: float) -> None:
    """Move the teacher's weights toward the student's, by a fraction 1 − decay.

    The teacher has batch statistics of its own: it runs in training mode, and takes them from its inputs.
    (For an averaged network that only predicts, with averaged statistics too, see `training.ema_decay`.)
    """
    torch._foreach_lerp_(list(teacher.parameters()), list(student.parameters()), 1 - decay)


def ramp_up(progress: float) -> float:
    """exp(−5 (1 − progress)²): from nearly 0 at the start to 1 at progress 1, and 1 thereafter."""
    return math.exp(-5 * (1 - min(progress, 1.0)) ** 2)
