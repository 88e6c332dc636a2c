"""Pretrained embedders, behind extras."""

import difflib
from collections.abc import Callable

from ..errors import InputError
from .efficientnet import EfficientNetLite0
from .images import Embedded, Embedder, embed_images

__all__ = ["EMBEDDERS", "Embedded", "Embedder", "embed_images", "load_embedder"]

EMBEDDERS: dict[str, Callable[[], Embedder]] = {"efficientnet-lite0": EfficientNetLite0}
"""Name -> what loads it."""


def load_embedder(name: str) -> Embedder:
    """The embedder of that name, ready to use; an `InputError` where its extra is not installed."""
    if name not in EMBEDDERS:
        near = difflib.get_close_matches(name, EMBEDDERS, n=1, cutoff=0)[0]
        raise InputError(f'there is no embedder "{name}"; did you mean "{near}"?')
    return EMBEDDERS[name]()
