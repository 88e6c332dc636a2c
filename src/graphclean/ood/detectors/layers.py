"""Detectors that read features of several depths."""

from typing import Any, Self

import torch
from torch import Tensor, nn

from ..detector import Detector
from .features import Gaussian, describe_gaussians


class MahalanobisLayers(Detector):
    """Mahalanobis distances of several layers, each standardized over the training samples, and added.

    The paper weighs layers by a regression on OOD samples, and adds noise to the input; here all weigh alike,
    and there is none, since both would have to be chosen on OOD data.
    """

    name = "mahalanobis-layers"
    needs = "layers"
    title = "sum of standardized Mahalanobis distances of several layers"
    paper = "Lee et al., A Simple Unified Framework for Detecting OOD Samples, NeurIPS 2018"
    cost = "Σ d²"
    choices = "all layers weigh alike, once each has mean 0 and deviation 1 over the selected samples"
    cross_fit = True
    middle: Tensor
    spread: Tensor

    def __init__(self, n_classes: int, width: int) -> None:
        super().__init__(n_classes, width)
        self.n_classes, self.parts = n_classes, nn.ModuleList()
        for name in ("middle", "spread"):
            self.register_buffer(name, torch.zeros(0))

    def fit_layers(self, layers: tuple[Tensor, ...], labels: Tensor) -> Self:
        """Class means and their covariance in each layer, and what the distances are."""
        fitted = [Gaussian().to(layer.device).fit(layer, labels, self.n_classes) for layer in layers]
        self.parts = nn.ModuleList(fitted)
        known = labels >= 0
        if bool(known.any()):
            distances = torch.stack([part(layer[known]) for part, layer in zip(fitted, layers, strict=True)])
        else:
            distances = layers[0].new_zeros(len(layers), 1)
        self.middle, spread = distances.mean(1), distances.std(1, correction=0)
        # Of a layer whose distances don't vary, as with one sample a class, the scale is their own.
        self.spread = torch.where(spread > 0, spread, self.middle.clamp(min=1))
        return self

    def predict_layers(self, layers: tuple[Tensor, ...]) -> Tensor:
        """Σ (MD − mean MD) / deviation of MD."""
        distances = torch.stack([part(layer) for part, layer in zip(self.parts, layers, strict=True)], 1)
        return ((distances - self.middle) / self.spread).sum(1)

    def notes(self) -> list[str]:
        """Where a covariance has no inverse, some features are not looked at."""
        return describe_gaussians([part for part in self.parts if isinstance(part, Gaussian)])

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        self.parts = nn.ModuleList(Gaussian() for _ in state.get(f"{prefix}middle", ()))
        super()._load_from_state_dict(state, prefix, *rest)
