"""The state of training as tensors: out of network, optimiser, cleaner and generators, and back into them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Self, TypeAlias

import torch
from torch import Generator, Tensor, nn
from torch.optim import Optimizer

from ..graph import Cleaned, GraphCleaner
from .beliefs import DrawnLabels

KINDS = ("network", "momentum", "cleaner", "rng", "gate", "now")
"""What the tensors of a checkpoint are of: the first part of their names."""
OF_CLEANED = ("soft_labels", "confident", "degrees")
"""What an epoch keeps of its cleaning; labels and selection are the cleaner's own."""

Kinds: TypeAlias = dict[str, dict[str, Tensor]]


@dataclass
class EpochUnderWay:
    """An epoch: what was decided at its start, and how far it has come."""

    cleaned: Cleaned
    batches: Tensor
    totals: Tensor
    step: int = 0
    seconds: float = 0.0
    clean_seconds: float = 0.0

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint from the middle of it holds besides."""
        kept = {f"now.{name}": getattr(self.cleaned, name) for name in OF_CLEANED}
        return {"now.batches": self.batches, "now.totals": self.totals, **kept}

    def facts(self) -> dict[str, Any]:
        """And as plain values."""
        return {"step": self.step, "seconds": self.seconds, "clean_seconds": self.clean_seconds}

    @classmethod
    def restore(cls, parts: Kinds, facts: dict[str, Any], device: torch.device) -> Self:
        """The epoch of such a checkpoint."""
        here = {name: tensor.to(device) for name, tensor in parts["now"].items()}
        decided = {name: parts["cleaner"][name].to(device) for name in ("labels", "selected")}
        return cls(
            Cleaned(**decided, **{name: here[name] for name in OF_CLEANED}),
            here["batches"],
            here["totals"],
            **{name: facts[name] for name in ("step", "seconds", "clean_seconds")},
        )


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


def gather_tensors(
    network: nn.Module, optimiser: Optimizer, cleaner: GraphCleaner | DrawnLabels, generator: Generator
) -> dict[str, Tensor]:
    """All that the next epoch depends on."""
    tensors = {f"network.{name}": value for name, value in network.state_dict().items()}
    for name, parameter in network.named_parameters():
        buffer = optimiser.state[parameter].get("momentum_buffer")
        if buffer is not None:
            tensors[f"momentum.{name}"] = buffer
    decided = cleaner.state_dict()
    tensors |= {f"cleaner.{key}": value for key, value in decided.items() if isinstance(value, Tensor)}
    generators = {"own": generator, **global_generators(generator.device)}
    return tensors | {f"rng.{name}": each.get_state() for name, each in generators.items()}


def sort_tensors(tensors: dict[str, Tensor]) -> Kinds:
    """A checkpoint's tensors by what they are of."""
    parts: Kinds = {kind: {} for kind in KINDS}
    for name, tensor in tensors.items():
        kind, _, rest = name.partition(".")
        parts[kind][rest] = tensor
    return parts


def restore_tensors(
    parts: Kinds,
    cleaner_epoch: int,
    network: nn.Module,
    optimiser: Optimizer,
    cleaner: GraphCleaner | DrawnLabels,
    generator: Generator,
) -> None:
    """Everything as it was when the tensors were gathered."""
    network.load_state_dict(parts["network"])
    for name, parameter in network.named_parameters():
        if name in parts["momentum"]:
            # In the parameter's own layout, which the fused optimiser takes for granted.
            buffer = torch.empty_like(parameter).copy_(parts["momentum"][name])
            optimiser.state[parameter]["momentum_buffer"] = buffer.detach()
    facts: dict[str, Any] = {"epoch": cleaner_epoch}
    if isinstance(cleaner, GraphCleaner):
        facts["settings"] = asdict(cleaner.settings)
    cleaner.load_state_dict({**facts, **parts["cleaner"]})
    for name, each in {"own": generator, **global_generators(generator.device)}.items():
        each.set_state(parts["rng"][name])
