"""Training state as tensors: saved from and restored to optimizers and generators."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Self

import torch
from torch import Generator, Tensor
from torch.optim import Optimizer

from ..distributed.group import Group
from ..errors import RunStopped
from .method import Method, split_state


@dataclass
class EpochState:
    """A part of an epoch: its batches, and the progress through them."""

    streams: tuple[Tensor, ...]
    totals: Tensor
    """The sum of each loss over the steps so far, including earlier parts."""
    part: int = 0
    steps: int = 0
    """Steps of the epoch up to the end of this part."""
    step: int = 0
    seconds: float = 0.0
    clean_seconds: float = 0.0

    @classmethod
    def begin(cls, streams: tuple[Tensor, ...], before: Self | None, losses: int, seconds: float) -> Self:
        """Begin the first part, or the one after `before`."""
        count = len(streams[0])
        if before is None:
            totals = torch.zeros(losses, device=streams[0].device)
            return cls(streams, totals, 0, count, 0, seconds, seconds)
        spent, prepared = before.seconds + seconds, before.clean_seconds + seconds
        return cls(streams, before.totals, before.part + 1, before.steps + count, 0, spent, prepared)

    def tensors(self) -> dict[str, Tensor]:
        """The tensors that a checkpoint within the part needs."""
        return {"totals": self.totals, **{f"stream{i}": stream for i, stream in enumerate(self.streams)}}

    def facts(self) -> dict[str, Any]:
        """The plain values that such a checkpoint needs."""
        names = ("part", "steps", "step", "seconds", "clean_seconds")
        return {name: getattr(self, name) for name in names}

    @classmethod
    def restore(cls, tensors: dict[str, Tensor], facts: dict[str, Any], device: torch.device) -> Self:
        """Restore a part from `tensors` and `facts`."""
        here = {name: tensor.to(device) for name, tensor in tensors.items()}
        streams = tuple(here[f"stream{i}"] for i in range(len(here) - 1))
        kept = {name: facts[name] for name in ("part", "steps", "step", "seconds", "clean_seconds")}
        return cls(streams, here["totals"], **kept)


def own_randomness(group: Group, device: torch.device, *key: int) -> AbstractContextManager[None]:
    """In a group, dropout of this process's rows: seeded by a key, so that nothing before matters."""
    if not group.several:
        return nullcontext()
    digest = blake2b(repr((*key, group.rank)).encode(), digest_size=8).digest()
    return seeded(int.from_bytes(digest) >> 1, device)


def follow_state(group: Group, streams: Sequence[Tensor], method: Method | None) -> None:
    """Take over what the leading process decided, so that rounding never lets processes drift apart.

    Decisions of different size can't be taken over; that they differ is then the error.
    """
    if not group.several:
        return
    state = method.save_state() if method is not None else {}
    decided = {**{f"stream {i}": stream for i, stream in enumerate(streams)}, **state}
    shapes = group.all_say([(name, tuple(value.shape)) for name, value in decided.items()])
    differing = [mine for mine, theirs in zip(shapes[group.rank], shapes[0], strict=False) if mine != theirs]
    if any(shape != shapes[0] for shape in shapes):
        which = differing[0][0] if differing else "number of tensors"
        raise RunStopped(f"the processes of this run decided differently ({which}); please report it", 1)
    group.follow(list(decided.values()))
    if method is not None and not group.leads:
        method.load_state(state)  # also what it keeps in other forms than tensors


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed PyTorch's own generators, for initial weights and dropout, and restore them afterwards."""
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
    """PyTorch's own generators, used by dropout and by drop path in some timm networks: CPU and GPU."""
    found: dict[str, Generator] = {"global": torch.default_generator}
    if device.type == "cuda":
        current = torch.cuda.current_device()  # first, as it initializes CUDA, which creates the generators
        index = device.index if device.index is not None else current
        found["gpu"] = torch.cuda.default_generators[index]
    return found


def gather_generators(generator: Generator) -> dict[str, Tensor]:
    """The states of the run's own generator and of PyTorch's."""
    return {name: each.get_state() for name, each in _generators(generator).items()}


def restore_generators(generator: Generator, states: Mapping[str, Tensor]) -> None:
    """Restore the states from `gather_generators`."""
    for name, each in _generators(generator).items():
        each.set_state(states[name])


def _generators(generator: Generator) -> dict[str, Generator]:
    return {"own": generator, **global_generators(generator.device)}


def gather_optimizers(optimizers: Mapping[str, Optimizer]) -> dict[str, Tensor]:
    """The state of optimizers, with keys `optimizer.parameter.name`."""
    return {
        f"{name}.{number}.{key}": torch.as_tensor(value)
        for name, optimizer in optimizers.items()
        for number, parameter in enumerate(_parameters(optimizer))
        for key, value in optimizer.state[parameter].items()
        if value is not None
    }


def restore_optimizers(optimizers: Mapping[str, Optimizer], tensors: Mapping[str, Tensor]) -> None:
    """Restore the state from `gather_optimizers`."""
    parts = split_state(tensors)
    for name, optimizer in optimizers.items():
        parameters = _parameters(optimizer)
        for full, value in parts.get(name, {}).items():
            number, _, key = full.partition(".")
            parameter = parameters[int(number)]
            if value.shape == parameter.shape:
                # In the parameter's memory layout, which the fused optimizer assumes.
                value = torch.empty_like(parameter).copy_(value).detach()
            optimizer.state[parameter][key] = value


def _parameters(optimizer: Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
