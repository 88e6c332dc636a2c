"""Detectors that read features of several depths."""

from typing import Any, Self

import torch
from torch import Tensor, nn

from ..detector import Detector
from .features import Gaussian, describe_gaussians


class MahalanobisLayers(Detector):
    """The sum of the Mahalanobis distances of several layers, each standardized over the training samples.

    The paper weights the layers by a regression on OOD samples and adds noise to the input. Here the weights
    are equal and there is no noise, since both would have to be chosen on OOD data.
    """

    name = "mahalanobis-layers"
    needs = "layers"
    title = "sum of standardized Mahalanobis distances of several layers"
    paper = "Lee et al., A Simple Unified Framework for Detecting OOD Samples, NeurIPS 2018"
    cost = "Σ d²"
    choices = "equal weights for all layers, each standardized over the selected samples"
    cross_fit = True
    middle: Tensor
    spread: Tensor

    def __init__(self, n_classes: int, width: int) -> None:
        super().__init__(n_classes, width)
        self.n_classes, self.parts = n_classes, nn.ModuleList()
        for name in ("middle", "spread"):
            self.register_buffer(name, torch.zeros(0))

    def fit_layers(self, layers: tuple[Tensor, ...], labels: Tensor) -> Self:
        """Class means and their covariance in each layer, and the mean and deviation of the distances."""
        fitted = [Gaussian().to(layer.device).fit(layer, labels, self.n_classes) for layer in layers]
        self.parts = nn.ModuleList(fitted)
        known = labels >= 0
        if bool(known.any()):
            distances = torch.stack([part(layer[known]) for part, layer in zip(fitted, layers, strict=True)])
        else:
            distances = layers[0].new_zeros(len(layers), 1)
        self.middle, spread = distances.mean(1), distances.std(1, correction=0)
        # If a layer's distances don't vary, as with one sample per class, they are scaled by themselves.
        self.spread = torch.where(spread > 0, spread, self.middle.clamp(min=1))
        return self

    def predict_layers(self, layers: tuple[Tensor, ...]) -> Tensor:
        """Σ (MD − mean MD) / deviation of MD."""
        distances = torch.stack([part(layer) for part, layer in zip(self.parts, layers, strict=True)], 1)
        return ((distances - self.middle) / self.spread).sum(1)

    def notes(self) -> list[str]:
        """A note if a covariance is singular: some directions are ignored."""
        return describe_gaussians([part for part in self.parts if isinstance(part, Gaussian)])

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        self.parts = nn.ModuleList(Gaussian() for _ in state.get(f"{prefix}middle", ()))
        super()._load_from_state_dict(state, prefix, *rest)
