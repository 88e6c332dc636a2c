"""Pretrained embedders, as extras, and those of other packages."""

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..config.plugins import Plugins
from ..data.images import Encoded, UnreadableImage, decoded_bytes, open_image
from ..errors import InputError
from .backbones import TIMM_PREFIX
from .cache import EmbeddingCache, Key
from .functions import FUNCTION_PREFIX, EmbeddingFunction, FunctionEmbedder, as_embedder
from .photos import Embedder, PhotoBatch, embed_batches, read_batches
from .timm import TimmEmbedder, weights_sha256

__all__ = [
    "EMBEDDERS",
    "Embedder",
    "EmbeddingCache",
    "EmbeddingFunction",
    "FunctionEmbedder",
    "Key",
    "PhotoBatch",
    "as_embedder",
    "embed_batches",
    "embed_photos",
    "embedder_version",
    "load_embedder",
    "read_batches",
    "weights_sha256",
]

OWN_EMBEDDERS = {
    "efficientnet-lite0": "graphclean.embed.efficientnet:EfficientNetLite0",
    "efficientnet-lite2": "graphclean.embed.efficientnet:EfficientNetLite2",
}
EMBEDDERS = Plugins("graphclean.embedders", OWN_EMBEDDERS, 'there is no embedder "{name}"')
"""In addition, `timm:NAME` is any network of timm, and `timm:NAME@FILE` one with weights from a file."""


def load_embedder(spec: str | Embedder, device: torch.device = torch.device("cpu")) -> Embedder:
    """Load an embedder by name, or return the given object; raises `InputError` if its extra is not
    installed.

    Our own embedders run on the CPU; networks of timm and those of other packages run on `device`.
    """
    if isinstance(spec, Embedder):
        return spec.eval()
    if spec.startswith(FUNCTION_PREFIX):
        raise InputError(f"{spec} was a function in Python; pass it there, as embedder")
    if spec.startswith(TIMM_PREFIX):
        return TimmEmbedder(spec.removeprefix(TIMM_PREFIX)).to(device)
    made: Embedder = EMBEDDERS.load(spec, Embedder, (f"{TIMM_PREFIX}NAME",))()
    return made.eval() if spec in OWN_EMBEDDERS else made.eval().to(device)


def embedder_version(spec: str | Embedder) -> str | None:
    """A version that changes whenever the features of an embedder change; None if unknown."""
    if isinstance(spec, FunctionEmbedder) and spec.kept:
        return f"{spec.size} px {spec.probe()}"
    if isinstance(spec, Embedder):
        return None
    if not spec.startswith(TIMM_PREFIX):
        return EMBEDDERS.version(spec)
    try:
        return "-".join(filter(None, (version("timm"), weights_sha256(spec))))
    except PackageNotFoundError:
        return None


def embed_photos(
    photos: Sequence[Encoded],
    spec: str | Embedder | EmbeddingFunction,
    device: torch.device = torch.device("cpu"),
) -> npt.NDArray[Any]:
    """Features (N, d) of photos given by path or content; an unreadable photo raises `InputError`."""
    parts = []
    loaded = load_embedder(as_embedder(spec), device)
    batches = embed_batches(
        enumerate(photos), open_image, loaded, refusal=UnreadableImage, weigh=decoded_bytes
    )
    for batch in batches:
        for row, reason in batch.problems.items():
            photo = photos[row]
            raise InputError(f"{photo if isinstance(photo, Path) else f'photo {row}'}: {reason}")
        parts.append(batch.inputs)
    if not parts:
        raise InputError("there are no photos to embed")
    return np.concatenate(parts)
