"""The state of training as tensors: out of optimizers and generators, and back into them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Generator, Tensor
from torch.optim import Optimizer

from .method import split_state


@dataclass
class EpochState:
    """A part of an epoch: the batches that were decided on, and how far it has come."""

    streams: tuple[Tensor, ...]
    totals: Tensor
    """The sum of every loss over the steps so far, of earlier parts too."""
    part: int = 0
    steps: int = 0
    """Of the epoch, up to the end of this part."""
    step: int = 0
    seconds: float = 0.0
    clean_seconds: float = 0.0

    @classmethod
    def begin(cls, streams: tuple[Tensor, ...], before: Self | None, losses: int, seconds: float) -> Self:
        """A part after another one, or the first."""
        count = len(streams[0])
        if before is None:
            totals = torch.zeros(losses, device=streams[0].device)
            return cls(streams, totals, 0, count, 0, seconds, seconds)
        spent, prepared = before.seconds + seconds, before.clean_seconds + seconds
        return cls(streams, before.totals, before.part + 1, before.steps + count, 0, spent, prepared)

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint from the middle of it holds besides."""
        return {"totals": self.totals, **{f"stream{i}": stream for i, stream in enumerate(self.streams)}}

    def facts(self) -> dict[str, Any]:
        """And as plain values."""
        names = ("part", "steps", "step", "seconds", "clean_seconds")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def restore(cls, tensors: dict[str, Tensor], facts: dict[str, Any], device: torch.device) -> Self:
        """The part of such a checkpoint."""
        here = {name: tensor.to(device) for name, tensor in tensors.items()}
        streams = tuple(here[f"stream{i}"] for i in range(len(here) - 1))
        kept = {name: facts[name] for name in ("part", "steps", "step", "seconds", "clean_seconds")}
        return cls(streams, here["totals"], **kept)


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """PyTorch's own generators from a seed, for first weights and dropout; then as the caller left them."""
    own = global_generators(device).values()
    before = [generator.get_state() for generator in own]
    try:
        for generator in own:
            generator.manual_seed(seed)
        yield
    finally:
        for generator, state in zip(own, before, strict=True):
            generator.set_state(state)


def global_generators(device: torch.device) -> dict[str, Generator]:
    """PyTorch's own, from which dropout draws and some networks of timm drop paths: the device's too."""
    found: dict[str, Generator] = {"global": torch.default_generator}
    if device.type == "cuda":
        current = torch.cuda.current_device()  # asked first: before CUDA has started there are no generators
        index = device.index if device.index is not None else current
        found["gpu"] = torch.cuda.default_generators[index]
    return found


def gather_generators(generator: Generator) -> dict[str, Tensor]:
    """The state of the run's own generator, and of PyTorch's."""
    return {name: each.get_state() for name, each in _generators(generator).items()}


def restore_generators(generator: Generator, states: Mapping[str, Tensor]) -> None:
    """All as they were."""
    for name, each in _generators(generator).items():
        each.set_state(states[name])


def _generators(generator: Generator) -> dict[str, Generator]:
    return {"own": generator, **global_generators(generator.device)}


def gather_optimizers(optimizers: Mapping[str, Optimizer]) -> dict[str, Tensor]:
    """Everything that optimizers remember, as `optimizer.parameter.name`."""
    return {
        f"{name}.{number}.{key}": torch.as_tensor(value)
        for name, optimizer in optimizers.items()
        for number, parameter in enumerate(_parameters(optimizer))
        for key, value in optimizer.state[parameter].items()
        if value is not None
    }


def restore_optimizers(optimizers: Mapping[str, Optimizer], tensors: Mapping[str, Tensor]) -> None:
    """All as it was."""
    parts = split_state(tensors)
    for name, optimizer in optimizers.items():
        parameters = _parameters(optimizer)
        for full, value in parts.get(name, {}).items():
            number, _, key = full.partition(".")
            parameter = parameters[int(number)]
            if value.shape == parameter.shape:
                # In the parameter's own layout, which the fused optimizer takes for granted.
                value = torch.empty_like(parameter).copy_(value).detach()
            optimizer.state[parameter][key] = value


def _parameters(optimizer: Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
