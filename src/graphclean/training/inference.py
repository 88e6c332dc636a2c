"""A trained network on new inputs, batch by batch: what prediction needs of training, and no more."""

from typing import Any

import torch
from torch import Tensor, nn

from ..config import TrainingSettings
from ..data.progress import Progress
from .networks import Ensemble, Output, build_network, network_options
from .views import scale

INFERENCE_BATCH = 1024
"""Inputs at a time: memory is bounded by this, however many there are."""


def describe_network(settings: TrainingSettings, network: nn.Module) -> dict[str, Any]:
    """Name and options, from which `rebuild_network` makes the same network again, from its own weights."""
    options = {name: value for name, value in network_options(settings).items() if name != "pretrained"}
    described = {"name": settings.network, "options": options, "flip_tta": settings.flip_tta}
    return described | ({"members": len(network.members)} if isinstance(network, Ensemble) else {})


def rebuild_network(
    description: dict[str, Any], weights: dict[str, Tensor], n_classes: int, input_shape: tuple[int, ...]
) -> nn.Module:
    """The network as it was saved; raises ValueError or RuntimeError where the weights don't fit."""
    members = [
        build_network(description["name"], n_classes, input_shape=input_shape, **description["options"])
        for _ in range(description.get("members", 1))
    ]
    for member in members:
        member.flip_tta = description.get("flip_tta", False)
    network = Ensemble(members) if "members" in description else members[0]
    network.load_state_dict(weights)
    return network.eval()


@torch.no_grad()
def embed_new(network: nn.Module, inputs: Tensor, progress: Progress | None = None) -> Output:
    """z and logits of inputs (uint8 images or float features), on the CPU; the network stays where it is.

    In evaluation mode, and nothing is drawn at random: the network is left as it was.
    """
    device = next(network.parameters()).device
    training = network.training
    network.eval()
    z, logits = [], []
    for start in range(0, len(inputs), INFERENCE_BATCH):
        batch = inputs[start : start + INFERENCE_BATCH].to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            out = network(scale(batch))
        z.append(out.z.float().cpu())
        logits.append(out.logits.float().cpu())
        if progress is not None:
            progress("predicting", min(start + INFERENCE_BATCH, len(inputs)), len(inputs))
    network.train(training)
    return Output(logits=torch.cat(logits), z=torch.cat(z))
