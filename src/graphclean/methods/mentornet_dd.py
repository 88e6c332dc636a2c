"""MentorNet with a data-driven curriculum: trusted samples show the losses of wrong labels."""

from dataclasses import dataclass
from typing import Any

import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torch.nn.functional import one_hot

from ..config.settings import Auto
from ..training.method import MethodInfo, TrainerContext
from .blocks.noise_rate import NoiseRate, check_noise_rate
from .mentornet import MentorNet, MentorNetPD, MentorNetSettings

LAST_EPOCHS = 0.95
"""Fraction of the epochs after which most samples are dropped."""


@dataclass(frozen=True)
class MentorNetDDSettings(MentorNetSettings):
    """MentorNet's settings, and those of the mentor."""

    final_dropout: float = 0.9
    """Fraction of each batch that is dropped at random in the last twentieth of the epochs."""
    noise_rate: float | Auto = "auto"
    """Fraction of wrong labels, equal for all classes; `auto`: estimated for each class."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_noise_rate(self.noise_rate)
        if not 0 <= self.final_dropout < 1:
            raise ValueError("final_dropout must be at least 0 and less than 1")


class MentorNetDD(MentorNet):
    """Before every epoch, a logistic regression learns the probability that a label is right, given its loss.

    Its examples are the trusted samples under every label, of which one is right; each is weighted by its
    frequency under the noise.
    """

    info = MethodInfo(
        name="mentornet-dd",
        title="MentorNet with a data-driven curriculum (MentorNet DD)",
        kind="selection",
        paper=MentorNetPD.info.paper,
        cost=1.2,
        needs=("trusted samples", "noise rate"),
        follows="the paper's objective, the probability that a label is right, with a logistic regression as "
        "mentor, fitted before every epoch to trusted samples under estimated noise, where the paper fits a "
        "network once to samples with known noise; weight decay does not depend on the sample "
        "weights; network, optimizer and schedule are those of the training settings",
    )
    Settings = MentorNetDDSettings
    detector = "msp"
    settings: MentorNetDDSettings
    intercept: Tensor
    slope: Tensor

    def setup(self, run: TrainerContext) -> None:
        """Set up MentorNet and the mentor, which initially gives all samples the weight 1/2."""
        super().setup(run)
        self.noise = NoiseRate(self.settings.noise_rate, run.n_classes, run.device)
        self.register_buffer("intercept", torch.zeros((), device=run.device))
        self.register_buffer("slope", torch.zeros((), device=run.device))

    def begin_epoch(self, run: TrainerContext) -> tuple[Tensor, ...]:
        """Estimate the noise, and fit the mentor to the current network."""
        self.noise.begin_epoch(run)
        if not self.burning_in(run):
            self._fit(run)
        return super().begin_epoch(run)

    def _fit(self, run: TrainerContext) -> None:
        trusted = run.trusted
        assert trusted is not None
        logits = run.embed(weak=True, inputs=trusted.inputs).logits
        self.intercept, self.slope = fit_mentor(logits, trusted.labels, self.noise.transition, self.level)

    def mentor(self, run: TrainerContext, over: Tensor) -> Tensor:  # noqa: ARG002
        """The probability that a label is right."""
        return torch.sigmoid(self.intercept + self.slope * over)

    def dropout(self, run: TrainerContext) -> float:
        """MentorNet's dropout, and most of each batch at the end."""
        last = run.epoch >= LAST_EPOCHS * run.settings.epochs
        return self.settings.final_dropout if last else super().dropout(run)

    def metrics(self, run: TrainerContext) -> dict[str, Any]:
        """MentorNet's metrics, the noise rate, and the loss above the percentile with even odds of a right
        label.
        """
        at = float(-self.intercept / self.slope) if self.slope < 0 else None
        return {**super().metrics(run), **self.noise.metrics(), "even_loss": at}

    def notes(self, run: TrainerContext) -> list[str]:
        """Report what the mentor was fitted to."""
        assert run.trusted is not None
        seen = len(run.trusted.labels)
        return [
            f"the mentor was fitted to {seen} trusted samples, and accuracy on them is no independent score",
            *self.noise.notes(run),
        ]


@torch.no_grad()
def fit_mentor(logits: Tensor, labels: Tensor, transition: Tensor, level: Tensor) -> tuple[Tensor, Tensor]:
    """Intercept and slope of the log odds that a label is right, by how far its loss is above `level`.

    `labels` are right; every label of a sample is weighted by its probability in `transition` (K, K).
    """
    over = -logits.float().log_softmax(1) - level
    right, often = one_hot(labels, logits.shape[1]), transition[labels]
    if logits.shape[1] < 2:
        return torch.zeros_like(level), torch.zeros_like(level)
    found = LogisticRegression().fit(
        over.flatten().double().cpu().numpy()[:, None],
        right.flatten().cpu().numpy(),
        sample_weight=often.flatten().double().cpu().numpy(),
    )
    return torch.full_like(level, found.intercept_[0]), torch.full_like(level, found.coef_[0, 0])
