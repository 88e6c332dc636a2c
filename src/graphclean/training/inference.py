"""A trained network applied to new inputs in batches: the parts of training that prediction needs."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..config import TrainingSettings
from ..ood.detector import Needs, Outputs
from .networks import Ensemble, Output, build_network, network_options
from .predictors import LayerHeads, Predictor
from .views import scale

INFERENCE_BATCH = 1024
"""Inputs per batch; bounds memory for any number of inputs."""


def describe_network(settings: TrainingSettings, network: nn.Module) -> dict[str, Any]:
    """Name and options from which `rebuild_network` can rebuild the network, given its weights."""
    options = {name: value for name, value in network_options(settings).items() if name != "pretrained"}
    described = {"name": settings.network, "options": options, "flip_tta": settings.flip_tta}
    if isinstance(network, LayerHeads):
        return described | {"layers": network.widths}
    return described | ({"members": len(network.members)} if isinstance(network, Ensemble) else {})


def rebuild_network(
    description: dict[str, Any], weights: dict[str, Tensor], n_classes: int, input_shape: tuple[int, ...]
) -> Predictor:
    """Rebuild a saved network; raises ValueError or RuntimeError if the weights don't fit."""
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
    """Split inputs into batches that fit into memory with the network's outputs."""
    return torch.split(inputs, INFERENCE_BATCH)


def copy_output(out: Output, *, features: bool) -> Output:
    """A copy in float32, since compiled code overwrites its output; with the trunk's features on request."""
    kept = out.features.to(torch.float32, copy=True) if features and out.features is not None else None
    return Output(out.logits.to(torch.float32, copy=True), out.z.clone(), kept)


def join_outputs(outputs: Sequence[Output], n: int) -> Output:
    """The outputs of several batches as one, without the padding after the first `n` rows."""
    parts = [[part for part in column if part is not None] for column in zip(*outputs, strict=True)]
    return Output(*(torch.cat(column)[:n] for column in parts if column))


def read_outputs(network: nn.Module, inputs: Tensor, needs: Needs = "z") -> Outputs:
    """One pass of a network over inputs as it takes them; returns the outputs that a detector needs."""
    if needs == "layers":
        assert isinstance(network, Predictor)
        out, layers = network.forward_all(inputs)
        return Outputs(out.logits, out.z, out.features, layers)
    found: Output = network(inputs)
    return Outputs(found.logits, found.z, found.features if needs == "features" else None)


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Evaluation mode within the context; the previous mode is restored."""
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
    """Yield each batch as the network takes it, on its device, and the outputs in float32.

    Runs in evaluation mode without randomness, and leaves the network unchanged.
    """
    device = next(network.parameters()).device
    with evaluating(network):
        for batch in batches:
            inputs = scale(batch.to(device))
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                found = read_outputs(network, inputs, needs)
            yield inputs, map_outputs(Tensor.float, found)


def map_outputs(change: Callable[[Tensor], Tensor], outputs: Outputs) -> Outputs:
    """Apply a function to every tensor of the outputs."""
    features = outputs.features
    return Outputs(
        change(outputs.logits),
        change(outputs.z),
        change(features) if features is not None else None,
        tuple(map(change, outputs.layers)),
    )


def embed_new(network: nn.Module, inputs: Tensor) -> Output:
    """z and logits of inputs (uint8 images or float features) on the CPU; the network stays on its device."""
    found = [map_outputs(Tensor.cpu, out) for _, out in run_network(network, split_batches(inputs))]
    return Output(torch.cat([out.logits for out in found]), torch.cat([out.z for out in found]))
