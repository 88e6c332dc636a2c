"""A trained network on new inputs, batch by batch: what prediction needs of training, and no more."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..config import TrainingSettings
from ..ood.detector import Needs, Outputs
from .networks import Ensemble, LayerHeads, Output, Predictor, build_network, network_options
from .views import scale

INFERENCE_BATCH = 1024
"""Inputs at a time: memory is bounded by this, however many there are."""


def describe_network(settings: TrainingSettings, network: nn.Module) -> dict[str, Any]:
    """Name and options, from which `rebuild_network` makes the same network again, from its own weights."""
    options = {name: value for name, value in network_options(settings).items() if name != "pretrained"}
    described = {"name": settings.network, "options": options, "flip_tta": settings.flip_tta}
    if isinstance(network, LayerHeads):
        return described | {"layers": network.widths}
    return described | ({"members": len(network.members)} if isinstance(network, Ensemble) else {})


def rebuild_network(
    description: dict[str, Any], weights: dict[str, Tensor], n_classes: int, input_shape: tuple[int, ...]
) -> Predictor:
    """The network as it was saved; raises ValueError or RuntimeError where the weights don't fit."""
    members = [
        build_network(description["name"], n_classes, input_shape=input_shape, **description["options"])
        for _ in range(description.get("members", 1))
    ]
    for member in members:
        member.flip_tta = description.get("flip_tta", False)
    network: Predictor = Ensemble(members) if "members" in description else members[0]
    if "layers" in description:
        network = LayerHeads(members[0], description["layers"])
    network.load_state_dict(weights)
    return network.eval()


def split_batches(inputs: Tensor) -> tuple[Tensor, ...]:
    """Inputs in batches that fit into memory with what a network makes of them."""
    return torch.split(inputs, INFERENCE_BATCH)


def read_outputs(network: nn.Module, inputs: Tensor, needs: Needs = "z") -> Outputs:
    """What a detector reads of a network, of inputs as that takes them, by one pass."""
    if needs == "layers":
        assert isinstance(network, Predictor)
        out, layers = network.forward_all(inputs)
        return Outputs(out.logits, out.z, out.features, layers)
    found: Output = network(inputs)
    return Outputs(found.logits, found.z, found.features if needs == "features" else None)


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """In evaluation mode, and then left as it was."""
    training = network.training
    network.eval()
    try:
        yield
    finally:
        network.train(training)


@torch.no_grad()
def run_network(
    network: nn.Module, batches: Iterable[Tensor], needs: Needs = "z"
) -> Iterator[tuple[Tensor, Outputs]]:
    """Batch by batch inputs as the network takes them, on its device, and what it gives, in float32.

    In evaluation mode, and nothing is drawn at random: the network is left as it was.
    """
    device = next(network.parameters()).device
    with evaluating(network):
        for batch in batches:
            inputs = scale(batch.to(device))
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                found = read_outputs(network, inputs, needs)
            yield inputs, map_outputs(Tensor.float, found)


def map_outputs(change: Callable[[Tensor], Tensor], outputs: Outputs) -> Outputs:
    """The same with every tensor changed."""
    features = outputs.features
    return Outputs(
        change(outputs.logits),
        change(outputs.z),
        change(features) if features is not None else None,
        tuple(map(change, outputs.layers)),
    )


def embed_new(network: nn.Module, inputs: Tensor) -> Output:
    """z and logits of inputs (uint8 images or float features), on the CPU; the network stays where it is."""
    found = [map_outputs(Tensor.cpu, out) for _, out in run_network(network, split_batches(inputs))]
    return Output(torch.cat([out.logits for out in found]), torch.cat([out.z for out in found]))
