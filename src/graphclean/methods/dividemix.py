"""DivideMix: treat samples with large losses as unlabeled, and train on all samples with MixMatch."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..training.method import MethodInfo, TrainerContext
from .blocks.gaussian_mixture import EM_ITERATIONS, scale_losses, small_loss_probability
from .blocks.semi_supervised import SEMI_SUPERVISED_FOLLOWS, SemiSupervised, SemiSupervisedSettings
from .blocks.supervised import given_losses

DIVIDEMIX_FOLLOWS = (
    "the paper and its release, except that the mixture starts from the optimal split into two clusters, and "
    f"if no label passes the threshold, the most probable ones are accepted; {SEMI_SUPERVISED_FOLLOWS}"
)


@dataclass(frozen=True)
class DivideMix1Settings(SemiSupervisedSettings):
    """The shared settings, and those of the split by losses."""

    threshold: float = 0.5
    """Probability of a correct label above which a sample counts as labeled; 0.6 at 90 % noise."""
    loss_history: int = 1
    """Epochs over which a sample's losses are averaged before the split; 5 at 90 % noise."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.threshold <= 1:
            raise ValueError("threshold must be from 0 to 1")
        if self.loss_history < 1:
            raise ValueError("loss_history must be at least 1")


@dataclass(frozen=True)
class DivideMixSettings(DivideMix1Settings):
    """The same settings, and which networks predict."""

    ensemble: bool = True
    """Predict with the mean of both networks' logits; if false, with the first network alone."""


class DivideMix1(SemiSupervised):
    """One network splits the samples by its own losses, and guesses labels by its own predictions."""

    info = MethodInfo(
        name="dividemix-1",
        title="DivideMix with a single network",
        kind="semi-supervised",
        paper="Li et al., DivideMix: Learning with Noisy Labels as Semi-supervised Learning, ICLR 2020",
        cost=3.0,
        follows=DIVIDEMIX_FOLLOWS,
    )
    Settings = DivideMix1Settings
    members: ClassVar[tuple[str, ...]] = ("main",)
    em_iterations: ClassVar[int] = EM_ITERATIONS
    settings: DivideMix1Settings
    history: Tensor
    judged: Tensor

    def setup(self, run: TrainerContext) -> None:
        """Create the networks, and the history of each network's losses for every sample."""
        super().setup(run)
        shape = len(self.members), self.settings.loss_history, len(run.given)
        self.register_buffer("history", torch.zeros(shape, device=run.device))
        self.register_buffer("judged", torch.zeros((), dtype=torch.long, device=run.device))

    def judge(self, run: TrainerContext, logits: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Each network's posterior of a small loss, with losses averaged over the last epochs.

        It is 0 without a given label, and 1 for labels reviewed by people.
        """
        labeled = run.given >= 0
        clean = torch.zeros_like(self.clean)
        self.judged += 1
        if bool(labeled.any()):
            seen = min(int(self.judged), self.settings.loss_history)
            for member, outputs in enumerate(logits):
                losses = torch.zeros_like(clean[member])
                losses[labeled] = scale_losses(given_losses(outputs, run.given)[labeled])
                self.history[member] = torch.cat([losses.unsqueeze(0), self.history[member, :-1]])
                mean = self.history[member, :seen].mean(0)[labeled]
                clean[member, labeled] = small_loss_probability(mean, max_iterations=self.em_iterations)
        if run.decided is not None:
            clean[:, labeled & (run.decided >= 0)] = 1
        return clean, clean.mean(0) > self.settings.threshold

    def split(self, run: TrainerContext) -> Tensor:
        """Split by the losses of the other network, if there are two."""
        clean = self.clean[self.peer(run)]
        return (run.given >= 0) & ((clean > self.settings.threshold) | (clean >= clean.amax()))

    def notes(self, run: TrainerContext) -> list[str]:
        """Also report if the last split accepted no label."""
        if int(self.judged) and not bool((self.clean > self.settings.threshold).any(1).all()):
            return [f"in the end no label was right with probability {self.settings.threshold:g}"]
        return super().notes(run)


class DivideMix(DivideMix1):
    """Two networks, each of which splits the samples for the other; both guess labels and predict."""

    info = MethodInfo(
        name="dividemix",
        title="DivideMix",
        kind="semi-supervised",
        paper=DivideMix1.info.paper,
        networks=2,
        cost=6.7,
        follows=DIVIDEMIX_FOLLOWS,
    )
    Settings = DivideMixSettings
    members = ("main", "second")
    settings: DivideMixSettings

    def predictor(self) -> nn.Module:
        """An ensemble of both networks, or the first one."""
        return super().predictor() if self.settings.ensemble else self.networks["main"]
