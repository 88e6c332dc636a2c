"""Pretrained embedders, behind extras."""

from collections.abc import Callable

import torch

from ..errors import InputError, suggest
from .backbones import PREFIX
from .efficientnet import EfficientNetLite0
from .photos import Batch, Embedder, embed_batches, read_batches
from .timm import TimmEmbedder

__all__ = ["EMBEDDERS", "Batch", "Embedder", "embed_batches", "load_embedder", "read_batches"]

EMBEDDERS: dict[str, Callable[[], Embedder]] = {"efficientnet-lite0": EfficientNetLite0}
"""Name -> what loads it; besides, `timm:NAME` is any network of timm."""


def load_embedder(name: str, device: torch.device = torch.device("cpu")) -> Embedder:
    """The embedder of that name, or `timm:NAME`; an `InputError` where its extra is not installed.

    Networks of timm work on the `device`, the others are made for the CPU.
    """
    if name.startswith(PREFIX):
        return TimmEmbedder(name.removeprefix(PREFIX), device)
    if name not in EMBEDDERS:
        raise InputError(f'there is no embedder "{name}"; {suggest(name, [*EMBEDDERS, f"{PREFIX}NAME"])}')
    return EMBEDDERS[name]()
