"""ILON: samples that are outliers of their class in feature space are down-weighted and pushed away."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from ..training.method import Batch, Method, MethodInfo, Selected, Selection, TrainerContext
from .blocks.local_outliers import class_outlier_factors, outlier_probabilities
from .blocks.supervised import given_losses

OUTLIER = 0.5
"""Outlier probability above which a sample counts as noisy."""


@dataclass(frozen=True)
class IlonSettings:
    """The values are ours, as there is no release; durations are fractions of the run's epochs."""

    k: int = 20
    """Number of neighbors with the same given label for outlier detection."""
    warmup_fraction: float = 0.05
    """Fraction of the epochs, at least one epoch, before the first round: features must separate classes."""
    round_fraction: float = 0.02
    """Fraction of the epochs, at least one epoch, between two rounds of outlier detection."""
    margin: float = 1.0
    """Distance between features of unit length up to which dissimilar pairs are pushed apart."""
    lambda_contrast: float = 0.5
    """Weight of the contrastive loss."""

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError("k must be at least 1")
        if not 0 <= self.warmup_fraction <= 1:
            raise ValueError("warmup_fraction must be from 0 to 1")
        if not 0 < self.round_fraction <= 1:
            raise ValueError("round_fraction must be above 0 and at most 1")
        if not self.margin > 0:
            raise ValueError("margin must be above 0")
        if not self.lambda_contrast >= 0:
            raise ValueError("lambda_contrast must be at least 0")


class ILON(Method):
    """Cross-entropy weighted by cumulative local outlier factors, and contrast of clean and noisy samples."""

    info = MethodInfo(
        name="ilon",
        title="Iterative learning with open-set noisy labels (ILON)",
        kind="selection",
        paper="Wang et al., Iterative Learning with Open-set Noisy Labels, CVPR 2018",
        cost=1.4,
        follows="the paper's components: cumulative outlier factors within each class, weights, and a "
        "contrastive loss of pairs; as there is no release, all constants are ours, and so are the weights, "
        "one minus the outlier probability; network, optimizer and schedule are those of the training "
        "settings",
    )
    Settings = IlonSettings
    detector = "msp"
    settings: IlonSettings
    factors: Tensor
    rounds: Tensor
    outlier: Tensor

    def setup(self, run: TrainerContext) -> None:
        """Create the network, and each sample's sum of outlier factors and outlier probability."""
        super().setup(run)
        self.weights = {"ce": 1.0, "contrast": self.settings.lambda_contrast}
        self.register_buffer("factors", torch.zeros(len(run.given), device=run.device))
        self.register_buffer("rounds", torch.zeros((), device=run.device))
        self.register_buffer("outlier", torch.zeros(len(run.given), device=run.device))

    def first_round(self, epochs: int) -> int:
        """The epoch that starts with the first round."""
        return max(1, round(self.settings.warmup_fraction * epochs))

    def begin_epoch(self, run: TrainerContext) -> tuple[Tensor, ...]:
        """Detect outliers among the features every few epochs; then all samples in random order."""
        epochs = run.settings.epochs
        since = run.epoch - self.first_round(epochs)
        if since >= 0 and since % max(1, round(self.settings.round_fraction * epochs)) == 0:
            self.find_outliers(run)
        return super().begin_epoch(run)

    def find_outliers(self, run: TrainerContext) -> None:
        """One round: find outliers by their mean factor so far, never among samples reviewed by people."""
        features = run.embed(features=True).features
        assert features is not None
        unit = normalize(features, dim=1)
        self.factors += class_outlier_factors(unit, run.given, run.n_classes, self.settings.k)
        self.rounds += 1
        self.outlier = outlier_probabilities(self.factors / self.rounds, run.given, run.n_classes)
        if run.decided is not None:
            self.outlier = self.outlier.where(run.decided < 0, torch.zeros_like(self.outlier))

    def losses(self, run: TrainerContext, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy with noisy samples down-weighted; from the first round, also the contrastive loss."""
        (out,) = run.forward(run.weak_view(batch.inputs))
        labeled, outlier = batch.given >= 0, self.outlier[batch.index]
        noisy = outlier > OUTLIER
        weight = torch.where(noisy, 1 - outlier, torch.ones_like(outlier)) * labeled
        ce = (given_losses(out.logits, batch.given) * weight).sum() / labeled.sum().clamp(min=1)
        if run.epoch < self.first_round(run.settings.epochs):
            return {"ce": ce}
        assert out.features is not None
        unit = normalize(out.features.float(), dim=1)
        return {"ce": ce, "contrast": pair_contrast(unit, batch.given, noisy, self.settings.margin)}

    def selection(self, run: TrainerContext) -> Selection:
        """The given labels; outliers are not selected."""
        return Selected(run.given.clamp(min=0), (run.given >= 0) & (self.outlier <= OUTLIER))


def pair_contrast(features: Tensor, given: Tensor, noisy: Tensor, margin: float) -> Tensor:
    """Mean over pairs of d² for clean samples of one class, and of max(0, margin − d)² for unlike pairs.

    Dissimilar pairs are clean samples of two classes, or a clean and a noisy one; two noisy samples form no
    pair, nor do unlabeled samples.
    """
    labeled, other = given >= 0, ~torch.eye(len(given), dtype=torch.bool, device=given.device)
    pair = labeled.unsqueeze(1) & labeled & other & ~(noisy.unsqueeze(1) & noisy)
    alike = pair & (given.unsqueeze(1) == given) & ~(noisy.unsqueeze(1) | noisy)
    squared = (2 - 2 * features @ features.T).clamp(min=0)
    hinge = (margin - (squared + torch.finfo(squared.dtype).eps).sqrt()).clamp(min=0).square()
    return (torch.where(alike, squared, hinge) * pair).sum() / pair.sum().clamp(min=1)
