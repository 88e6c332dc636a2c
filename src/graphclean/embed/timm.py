"""Any network of timm as an embedder, behind the extra `timm`."""

from torch import Tensor

from .backbones import TIMM_PREFIX, Backbone
from .photos import Embedder


class TimmEmbedder(Embedder):
    """Photos to the pooled features of a pretrained network, at the size and scaling it was trained with."""

    def __init__(self, name: str, *, pretrained: bool = True) -> None:
        super().__init__()
        self.name = TIMM_PREFIX + name
        self.network = Backbone(name, pretrained=pretrained)
        self.size = self.network.size
        self.eval()

    def forward(self, batch: Tensor) -> Tensor:
        """(N, d) features of an (N, 3, size, size) uint8 batch."""
        features: Tensor = self.network(batch.float())
        return features
