"""Detectors that modify features after a ReLU and then compute the energy."""

from typing import Self

import torch
from torch import Tensor

from .features import spread
from .head import HeadDetector


class ReAct(HeadDetector):
    """Energy of features that are clipped at a quantile of typical activations."""

    name = "react"
    needs_relu = True
    title = "energy of features clipped at their 90 % quantile"
    paper = "Sun et al., ReAct: Out-of-distribution Detection With Rectified Activations, NeurIPS 2021"
    cost = "none"
    choices = "quantile 0.9 as in the paper, of the activations of selected samples"
    quantile = 0.9
    limit: Tensor

    def __init__(self, n_classes: int, width: int) -> None:
        super().__init__(n_classes, width)
        self.register_buffer("limit", torch.tensor(torch.inf))

    def fit_features(self, features: Tensor, labels: Tensor) -> Self:
        """The quantile of all activations of evenly subsampled selected samples."""
        values = spread(features[labels >= 0]).flatten().sort().values
        if len(values):
            place = self.quantile * (len(values) - 1)
            low, high = values[int(place)], values[min(int(place) + 1, len(values) - 1)]
            self.limit = low + (place - int(place)) * (high - low)
        return self

    def predict_features(self, features: Tensor) -> Tensor:
        """Energy of min(x, limit)."""
        return self.energy(features.minimum(self.limit))

    def notes(self) -> list[str]:
        """Without a limit the score is the energy."""
        if bool(self.limit.isfinite()):
            return []
        return ["not one sample was selected as clean: react's score is energy"]


class ASH(HeadDetector):
    """Energy of the largest features alone, scaled by exp(sum of all / sum of the largest) (ASH-S)."""

    name = "ash"
    needs_relu = True
    title = "energy of the largest 35 % of features, scaled"
    paper = "Djurisic et al., Extremely Simple Activation Shaping for OOD Detection, ICLR 2023"
    cost = "none"
    choices = "65 % of the features are set to 0"
    left_out = 0.65

    def predict_features(self, features: Tensor) -> Tensor:
        """Energy of x · exp(sum of all / sum of the largest), with x set to 0 except for the largest."""
        largest = features.topk(kept(features.shape[1], self.left_out))
        pruned = torch.zeros_like(features).scatter(1, largest.indices, largest.values)
        return self.energy(pruned * growth(features, largest.values))


class SCALE(HeadDetector):
    """Energy of all features, scaled by exp(sum of all / sum of the largest)."""

    name = "scale"
    needs_relu = True
    title = "energy of features scaled by exp(sum / sum of the largest 15 %)"
    paper = "Xu et al., Scaling for Training Time and Post-hoc Out-of-distribution Detection, ICLR 2024"
    cost = "none"
    choices = "the largest 15 %, as in OpenOOD"
    left_out = 0.85

    def predict_features(self, features: Tensor) -> Tensor:
        """Energy of x · exp(sum of all / sum of the largest)."""
        largest = features.topk(kept(features.shape[1], self.left_out)).values
        return self.energy(features * growth(features, largest))


def kept(width: int, left_out: float) -> int:
    """Number of features that count as the largest; at least one."""
    return max(1, width - round(width * left_out))


def growth(features: Tensor, largest: Tensor) -> Tensor:
    """exp(sum of all / sum of the largest); 1 if all are 0."""
    total, part = features.sum(1, keepdim=True), largest.sum(1, keepdim=True)
    return torch.where(part > 0, total / torch.where(part > 0, part, 1), 0).exp()
