"""The device and the number of threads to compute on."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_limits

from ..config.presets import DeviceName
from ..errors import InputError, arg


def choose_device(name: str) -> torch.device:
    """Choose the device: `auto` is CUDA if available; `cuda` without a GPU and unknown names are refused."""
    if name == "mps":
        raise InputError(f"{arg('device')} mps: GPUs of Apple are not supported; use cpu")
    if name not in list(DeviceName):
        raise InputError(f"{arg('device')} {name}: no such device; there are {', '.join(DeviceName)}")
    there = torch.cuda.is_available()
    if name == "cuda" and not there:
        raise InputError(f"{arg('device')} cuda: this machine has no CUDA device that torch can use; try cpu")
    return torch.device("cuda" if there and name != "cpu" else "cpu")


@contextmanager
def limited_threads(count: int | None) -> Iterator[None]:
    """Limit the number of threads within the block; None leaves it to the machine."""
    if count is None:
        yield
        return
    if count < 1:
        raise InputError(f"{arg('threads')} {count}: at least one is needed")
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with threadpool_limits(count):
            yield
    finally:
        torch.set_num_threads(before)
