"""Pretrained embedders, behind extras, and those of other packages."""

import torch

from ..config.plugins import Plugins
from .backbones import PREFIX
from .photos import Batch, Embedder, embed_batches, read_batches
from .timm import TimmEmbedder

__all__ = ["EMBEDDERS", "Batch", "Embedder", "embed_batches", "load_embedder", "read_batches"]

OWN = {"efficientnet-lite0": "graphclean.embed.efficientnet:EfficientNetLite0"}
EMBEDDERS = Plugins("graphclean.embedders", OWN, 'there is no embedder "{name}"')
"""Besides, `timm:NAME` is any network of timm."""


def load_embedder(spec: str | Embedder, device: torch.device = torch.device("cpu")) -> Embedder:
    """An embedder by its name, or as an object; an `InputError` where its extra is not installed.

    Ours is made for the CPU; networks of timm and those of other packages work on the `device`.
    """
    if isinstance(spec, Embedder):
        return spec.eval()
    if spec.startswith(PREFIX):
        return TimmEmbedder(spec.removeprefix(PREFIX)).to(device)
    made: Embedder = EMBEDDERS.load(spec, Embedder, (f"{PREFIX}NAME",))()
    return made.eval() if spec in OWN else made.eval().to(device)
