"""The fraction of wrong labels, for methods that need it: given by the user or estimated.

The estimate comes from the noise model, fitted to the given labels of the nearest neighbors in z: one minus
the mean probability of a given label. It is too large if classes are hard to tell apart, especially early in
training, and too small once labels are memorized. Therefore it is repeated before every epoch of the first
half, in which methods that drop wrong labels hardly memorize any, and the last estimate is kept.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...config.settings import Auto
from ...graph.noise_model import fit_noise_model
from ...training.method import TrainerContext
from .neighbors import balanced_votes, fitting_k

NOISE_NEIGHBORS = 50
"""Maximum number of neighbors of a sample; on digits, 200 gave the same within 0.01."""
ESTIMATED_UNTIL = 0.5
"""Fraction of the epochs after which the estimate is fixed."""


def check_noise_rate(value: float | Auto) -> None:
    """Refuse invalid noise rates."""
    if value != "auto" and not 0 <= value < 1:
        raise ValueError("noise_rate must be auto, or at least 0 and less than 1")


class LabelNoise(NamedTuple):
    """The noise of the given labels."""

    rate: Tensor
    """Fraction of wrong labels."""
    transition: Tensor
    """(K, K): the probability of each label (column) for the samples of a class (row)."""


def uniform_noise(rate: float, n_classes: int, device: torch.device) -> LabelNoise:
    """Wrong labels distributed uniformly over the other classes."""
    others = rate / max(n_classes - 1, 1)
    right = torch.eye(n_classes, dtype=torch.bool, device=device)
    return LabelNoise(torch.tensor(rate, device=device), torch.where(right, 1 - rate, others))


@torch.no_grad()
def estimate_noise(z: Tensor, given: Tensor, n_classes: int) -> LabelNoise:
    """Estimate the noise from neighbors in z: a rate from 0 to that of random labels; 0 without labels.

    Labels below 0 mean unlabeled.
    """
    labeled = given >= 0
    if n_classes < 2 or not bool(labeled.any()):
        return uniform_noise(0.0, n_classes, z.device)
    votes = balanced_votes(z, given, n_classes, fitting_k(NOISE_NEIGHBORS, len(given), n_classes)).float()
    model = fit_noise_model(votes, given, correct=False, ood=False, grid=True)
    right = model.posterior(votes, given).classes.gather(1, given.clamp(min=0).unsqueeze(1)).squeeze(1)
    rate = (1 - right[labeled].mean()).clamp(0, 1 - 1 / n_classes)
    return LabelNoise(rate, model.transition.contiguous())


def rate_of_agreement(agreement: Tensor, n_classes: int) -> Tensor:
    """The noise rate e, given how often labels agree with predictions trained on labels of the same noise.

    They agree if both are right, or wrong in the same way: (1 − e)² + e² / (K − 1), from 1 without noise to
    1 / K for random labels.
    """
    if n_classes < 2:
        return torch.zeros_like(agreement)
    most = 1 - 1 / n_classes
    return most * (1 - (1 - (1 - agreement) / most).clamp(min=0).sqrt())


class NoiseRate(nn.Module):
    """The assumed fraction of wrong labels, and whether it is estimated."""

    value: Tensor
    transition: Tensor

    def __init__(self, setting: float | Auto, n_classes: int, device: torch.device) -> None:
        super().__init__()
        self.estimated = setting == "auto"
        noise = uniform_noise(0.0 if setting == "auto" else setting, n_classes, device)
        self.register_buffer("value", noise.rate)
        self.register_buffer("transition", noise.transition)

    def begin_epoch(self, run: TrainerContext) -> Tensor:
        """The rate for this epoch; an estimate costs a pass, and is 0 in the first epoch."""
        last = max(1, int(ESTIMATED_UNTIL * run.settings.epochs))
        if self.estimated and 0 < run.epoch <= last:
            self.value, self.transition = estimate_noise(run.embed().z, run.given, run.n_classes)
        return self.value

    def metrics(self) -> dict[str, Any]:
        """The rate as a metric of the epoch."""
        return {"noise_rate": float(self.value)}

    def notes(self, run: TrainerContext) -> list[str]:
        """Report that the rate was estimated, so that the user can correct it."""
        if not self.estimated:
            return []
        if run.settings.epochs == 1:
            return ["the noise rate was not given, and one epoch is too few to estimate it: it counted as 0"]
        return [
            "the noise rate was not given; it was estimated from the given labels as "
            f"{float(self.value):.3f}, too large if classes are hard to tell apart; method.noise_rate sets it"
        ]
