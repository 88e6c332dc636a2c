"""Any network of timm as an embedder, behind the extra `timm`."""

import hashlib
from pathlib import Path

from torch import Tensor

from ..errors import InputError
from .backbones import TIMM_PREFIX, Backbone
from .photos import Embedder


class TimmEmbedder(Embedder):
    """Photos to the pooled features of a pretrained network, at the size and scaling of its training."""

    def __init__(self, name: str, *, pretrained: bool = True) -> None:
        """`name` is timm's name, or NAME@FILE with weights from a local file."""
        super().__init__()
        self.name = TIMM_PREFIX + name
        network, weights = split_weights(name)
        self.network = Backbone(network, pretrained=pretrained, weights=weights)
        self.size = self.network.size
        self.eval()

    def forward(self, batch: Tensor) -> Tensor:
        """(N, d) features of an (N, 3, size, size) uint8 batch."""
        features: Tensor = self.network(batch.float())
        return features


def split_weights(name: str) -> tuple[str, Path | None]:
    """Split NAME@FILE into timm's name and the weights file, which is refused if it could execute code."""
    network, at, file = name.partition("@")
    if not at:
        return name, None
    path = Path(file)
    if path.suffix.lower() != ".safetensors":
        raise InputError(f"{TIMM_PREFIX}{name}: weights are a .safetensors file, which can hold no code")
    if not path.is_file():
        raise InputError(f"{TIMM_PREFIX}{name}: no such file: {file}")
    return network, path


def weights_sha256(name: str) -> str | None:
    """SHA-256 of the weights file in an embedder's name; None if there is no file."""
    path = split_weights(name.removeprefix(TIMM_PREFIX))[1] if name.startswith(TIMM_PREFIX) else None
    if path is None:
        return None
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
