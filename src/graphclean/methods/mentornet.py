"""MentorNet: a mentor weights every sample by its loss; here with a predefined curriculum."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..training.method import Batch, Method, MethodInfo, Selected, Selection, TrainerContext
from .blocks.small_loss import remaining, smallest_losses
from .blocks.supervised import given_losses, labeled_mean

SELECTED = 0.5
"""Weight above which a sample counts as selected."""


@dataclass(frozen=True)
class MentorNetSettings:
    """The defaults are the release's for CIFAR-10."""

    loss_percentile: float = 0.75
    """Quantile of a batch's losses that the running percentile follows; 0.5 if 80 % of labels are wrong."""
    percentile_decay: float = 0.5
    """Decay of the running percentile."""
    burn_in: float = 0.18
    """Fraction of the epochs, rounded up, in which all samples have the same weight."""
    burn_in_dropout: float = 0.5
    """Fraction of each batch that is dropped at random during burn-in."""
    dropout: float = 0.05
    """Fraction of each batch that is dropped at random after burn-in."""

    def __post_init__(self) -> None:
        for name in ("loss_percentile", "burn_in"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be from 0 to 1")
        for name in ("percentile_decay", "burn_in_dropout", "dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 0 and less than 1")


@dataclass(frozen=True)
class MentorNetPDSettings(MentorNetSettings):
    """MentorNet's settings, and those of the predefined curriculum."""

    soften_from: float = 0.9
    """Fraction of the epochs after which weights fall linearly with the loss, from 1 at the percentile."""
    gamma: float = 1.0
    """Loss above the percentile at which the weight reaches 0."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.soften_from <= 1:
            raise ValueError("soften_from must be from 0 to 1")
        if not self.gamma > 0:
            raise ValueError("gamma must be above 0")


class MentorNet(Method):
    """A student whose samples are weighted by a mentor that sees losses and the epoch."""

    settings: MentorNetSettings
    level: Tensor
    weight_of: Tensor

    def setup(self, run: TrainerContext) -> None:
        """Create the network, the running percentile, and the last weight of each sample."""
        super().setup(run)
        self.register_buffer("level", torch.zeros((), device=run.device))
        self.register_buffer("weight_of", (run.given >= 0).float())

    def burning_in(self, run: TrainerContext) -> bool:
        """Whether all samples still have the same weight."""
        return run.epoch < self.settings.burn_in * run.settings.epochs

    def losses(self, run: TrainerContext, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy weighted by the mentor, averaged over all labeled samples."""
        labeled = batch.given >= 0
        (out,) = run.forward(run.weak_view(batch.inputs))
        losses = given_losses(out.logits, batch.given)
        with torch.no_grad():
            self.level = self._follow(losses, labeled)
            weights = torch.ones_like(losses)
            if not self.burning_in(run):
                weights = self.mentor(run, losses - self.level)
            self.weight_of[batch.index] = weights * labeled
            dropout = self.dropout(run)
            if dropout:
                keys = torch.rand(len(losses), generator=run.generator, device=run.device)
                weights = weights * smallest_losses(keys, labeled, remaining(labeled, dropout))
        return {"ce": labeled_mean(weights * losses, labeled)}

    def dropout(self, run: TrainerContext) -> float:
        """Fraction of each batch that is dropped."""
        return self.settings.burn_in_dropout if self.burning_in(run) else self.settings.dropout

    def _follow(self, losses: Tensor, labeled: Tensor) -> Tensor:
        """The running percentile after a batch; unchanged if no sample is labeled."""
        ranked = losses.masked_fill(~labeled, torch.inf).sort().values
        count = labeled.sum()
        place = (self.settings.loss_percentile * (count - 1)).round().clamp(min=0).long()
        now = ranked.gather(0, place.view(1)).squeeze(0)
        return torch.where(count > 0, torch.lerp(now, self.level, self.settings.percentile_decay), self.level)

    def mentor(self, run: TrainerContext, over: Tensor) -> Tensor:
        """Weights from 0 to 1, by how far losses are above the running percentile."""
        raise NotImplementedError

    def selection(self, run: TrainerContext) -> Selection:
        """The given labels; samples that last had a large weight are selected."""
        return Selected(run.given.clamp(min=0), self.weight_of > SELECTED)

    def metrics(self, run: TrainerContext) -> dict[str, Any]:
        """The running percentile, and the mean weight of the labeled samples."""
        mean = labeled_mean(self.weight_of, run.given >= 0)
        return {"loss_level": float(self.level), "mean_weight": float(mean)}


class MentorNetPD(MentorNet):
    """All samples at first, then those with small losses, and finally also those slightly above them."""

    info = MethodInfo(
        name="mentornet-pd",
        title="MentorNet with a predefined curriculum (MentorNet PD)",
        kind="selection",
        paper="Jiang et al., MentorNet: Learning Data-Driven Curriculum for Very Deep Neural Networks on "
        "Corrupted Labels, ICML 2018",
        cost=1.0,
        follows="the curriculum that the release trains its mentor to imitate, without that network; weight "
        "decay does not depend on the sample weights; network, optimizer and schedule are those of the "
        "training settings",
    )
    Settings = MentorNetPDSettings
    detector = "msp"
    settings: MentorNetPDSettings

    def mentor(self, run: TrainerContext, over: Tensor) -> Tensor:
        """Whether the loss is at most the percentile; in the last epochs, a slope instead of the step."""
        if run.epoch < self.settings.soften_from * run.settings.epochs:
            return (over <= 0).to(over.dtype)
        return (1 - over / self.settings.gamma).clamp(0, 1)
