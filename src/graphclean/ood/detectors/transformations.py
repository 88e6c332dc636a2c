"""How poorly a network recognizes an input's transformation, with a head trained by its method."""

import math
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from ..detector import Detector, ReadInputs
from ..transformations import ROTATIONS, TRANSFORMATIONS, rotate_all, transform
from .prototypes import NO_DETECTOR

DIRICHLET_STEPS = 1000
"""Maximum number of fixed-point steps to fit the Dirichlet distributions."""
DIRICHLET_CHANGE = 1e-9
"""Relative change of a parameter below which the fit has converged."""
LEAST_TOLD = 1e-12
"""Lower bound on probabilities, so that no single transformation decides about an input."""


class _Transformed(Detector):
    """Stores the head in its buffers."""

    needs = "inputs"
    outputs = ROTATIONS
    weight: Tensor
    bias: Tensor

    def __init__(self, n_classes: int, width: int) -> None:
        super().__init__(n_classes, width)
        self.register_buffer("weight", torch.zeros(self.outputs, width))
        self.register_buffer("bias", torch.zeros(self.outputs))

    def take_transformations(self, weight: Tensor, bias: Tensor) -> None:
        """Store the head that predicts transformations from features."""
        self.weight, self.bias = weight, bias

    def tell(self, features: Tensor) -> Tensor:
        """Log probabilities of the transformations, in float64 because many are summed."""
        return linear(features.double(), self.weight.double(), self.bias.double()).log_softmax(1)


class RotationScore(_Transformed):
    """−KL(uniform ‖ p) of the classes plus the mean loss of predicting four rotations, in bits."""

    name = "rot-plus"
    title = "−KL(uniform ‖ class probabilities) + loss of predicting four rotations"
    paper = "Hendrycks et al., Using Self-Supervised Learning Can Improve Model Robustness and Uncertainty, "
    paper += "NeurIPS 2019"
    cost = f"{ROTATIONS} passes"
    choices = "none"
    methods = ("rot-plus",)

    def predict_inputs(self, network: nn.Module, inputs: Tensor) -> Tensor:
        """The score of each input."""
        out = network(rotate_all(inputs))
        log_p = out.logits[: len(inputs)].double().log_softmax(1)
        from_uniform = -math.log(log_p.shape[1]) - log_p.mean(1)
        told = self.tell(out.features).view(ROTATIONS, len(inputs), ROTATIONS)
        lost = -told.diagonal(dim1=0, dim2=2).mean(1)
        score: Tensor = (lost - from_uniform) / math.log(2)
        return score.float()


class TransformationScore(_Transformed):
    """How improbable the predictions for 72 transformations are under a Dirichlet distribution for each."""

    name = "rot"
    title = "negative Dirichlet log-likelihood of the predictions for 72 flips, shifts and rotations"
    paper = "Golan and El-Yaniv, Deep Anomaly Detection Using Geometric Transformations, NeurIPS 2018"
    cost = f"{TRANSFORMATIONS} passes"
    choices = "a Dirichlet distribution per transformation, fitted to the selected samples"
    methods = ("rot",)
    outputs = TRANSFORMATIONS
    concentration: Tensor

    def __init__(self, n_classes: int, width: int) -> None:
        super().__init__(n_classes, width)
        self.register_buffer("concentration", torch.ones(TRANSFORMATIONS, TRANSFORMATIONS))

    def fit_inputs(self, network: nn.Module, read: ReadInputs, labels: Tensor) -> Self:
        """Fit a Dirichlet distribution to the predictions for each transformation of the selected samples."""
        rows = (labels >= 0).nonzero().squeeze(1)
        total = torch.zeros(TRANSFORMATIONS, TRANSFORMATIONS, dtype=torch.float64, device=labels.device)
        first = torch.zeros_like(total)
        for batch in read(rows) if len(rows) else ():
            for number in range(TRANSFORMATIONS):
                log_p = self._told(network, batch, number)
                total[number] += log_p.sum(0)
                first[number] += log_p.exp().sum(0)
        if len(rows):
            self.concentration = fit_dirichlet(total / len(rows), first / len(rows)).float()
        return self

    def predict_inputs(self, network: nn.Module, inputs: Tensor) -> Tensor:
        """−mean over transformations of Σ (α − 1) log p."""
        score = torch.zeros(len(inputs), dtype=torch.float64, device=inputs.device)
        for number in range(TRANSFORMATIONS):
            score -= self._told(network, inputs, number) @ (self.concentration[number].double() - 1)
        return (score / TRANSFORMATIONS).float()

    def notes(self) -> list[str]:
        """Without samples nothing can be rejected."""
        return [] if bool((self.concentration != 1).any()) else [NO_DETECTOR]

    def _told(self, network: nn.Module, inputs: Tensor, number: int) -> Tensor:
        which = torch.full((len(inputs),), number, device=inputs.device)
        return self.tell(network(transform(inputs, which)).features).clamp(min=math.log(LEAST_TOLD))


def fit_dirichlet(mean_log: Tensor, mean: Tensor) -> Tensor:
    """Maximum-likelihood parameters of Dirichlet distributions, one per row (Minka, 2000).

    The likelihood depends only on the mean log probabilities (T, K). The mean probabilities are the start of
    the fixed-point iteration ψ(α) = ψ(Σ α) + mean log p.
    """
    alpha = mean.clamp(min=LEAST_TOLD)
    for _ in range(DIRICHLET_STEPS):
        found = inverse_digamma(torch.digamma(alpha.sum(1, keepdim=True)) + mean_log)
        change = ((found - alpha).abs() / found).max()
        alpha = found
        if change < DIRICHLET_CHANGE:
            break
    return alpha


def inverse_digamma(y: Tensor) -> Tensor:
    """x with ψ(x) = y, by Newton's method from Minka's initial value."""
    x = torch.where(y >= -2.22, y.exp() + 0.5, -1 / (y - torch.digamma(torch.ones_like(y))))
    for _ in range(5):
        x = x - (torch.digamma(x) - y) / torch.polygamma(1, x)
    return x
