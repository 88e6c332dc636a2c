"""Where to compute."""

import torch

from ..config.presets import DeviceName
from ..errors import InputError, arg


def choose_device(name: str) -> torch.device:
    """`auto` is CUDA where there is any; `cuda` without it is refused, and so is any other name."""
    if name not in list(DeviceName):
        raise InputError(f"{arg('device')} {name}: no such device; there are {', '.join(DeviceName)}")
    there = torch.cuda.is_available()
    if name == "cuda" and not there:
        raise InputError(f"{arg('device')} cuda: this machine has no CUDA device that torch can use; try cpu")
    return torch.device("cuda" if there and name != "cpu" else "cpu")
