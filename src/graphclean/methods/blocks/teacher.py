"""A teacher: a second network whose weights are a moving average of a student's."""

import copy
import math

import torch
from torch import nn

from ...training.networks import Network


def copy_as_teacher(student: Network) -> Network:
    """A copy that no gradient trains."""
    return copy.deepcopy(student).requires_grad_(False)


@torch.no_grad()
def update_teacher(teacher: nn.Module, student: nn.Module, decay: float) -> None:
    """Weights of the teacher go toward the student's, by 1 − decay of the way.

    Its batch statistics are its own: it is asked in training mode, and takes them from what it sees. (A
    network that is only to judge, with averaged statistics too, is `training.ema_decay`.)
    """
    torch._foreach_lerp_(list(teacher.parameters()), list(student.parameters()), 1 - decay)


def ramp_up(progress: float) -> float:
    """exp(−5 (1 − progress)²): from nearly 0 at the start to 1 at progress 1, and after it."""
    return math.exp(-5 * (1 - min(progress, 1.0)) ** 2)
