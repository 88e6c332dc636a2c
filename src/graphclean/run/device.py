"""Where to compute."""

import torch

from ..choices import DeviceName
from ..errors import InputError


def choose_device(name: str) -> torch.device:
    """`auto` is CUDA where there is any; `cuda` without it is refused, and so is any other name."""
    if name not in list(DeviceName):
        raise InputError(f"--device {name}: no such device; there are {', '.join(DeviceName)}")
    there = torch.cuda.is_available()
    if name == "cuda" and not there:
        raise InputError(
            "--device cuda: this machine has no CUDA device that torch can use; try --device cpu"
        )
    return torch.device("cuda" if there and name != "cpu" else "cpu")
