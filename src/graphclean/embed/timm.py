"""Any network of timm as an embedder, behind the extra `timm`."""

import torch
from torch import Tensor, nn

from .backbones import PREFIX, Backbone


class TimmEmbedder:
    """Photos to the pooled features of a pretrained network, at the size and scaling it was trained with.

    It works on the `device` it is told; the features come back to the CPU.
    """

    def __init__(
        self, name: str, device: torch.device = torch.device("cpu"), *, pretrained: bool = True
    ) -> None:
        self.name = PREFIX + name
        backbone = Backbone(name, pretrained=pretrained)
        self.size = backbone.size
        self.device = device
        self.network: nn.Module = Floats(backbone).eval().to(device)

    @torch.inference_mode()
    def __call__(self, batch: Tensor) -> Tensor:
        """(N, d) float32 features of an (N, 3, size, size) uint8 batch."""
        features: Tensor = self.network(batch.to(self.device))
        return features.float().cpu()


class Floats(nn.Module):
    """From bytes to features."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, batch: Tensor) -> Tensor:
        """The features of a uint8 batch."""
        features: Tensor = self.backbone(batch.float())
        return features
