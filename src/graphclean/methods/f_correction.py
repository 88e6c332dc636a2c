"""Forward correction: predictions pass through the noise before they are compared with the noisy labels."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..training.method import Batch, Method, MethodInfo, TrainerContext
from .blocks.supervised import given_losses, labeled_mean
from .blocks.transition import estimate_transition, forward_losses

HELD_OUT = 0.1
"""Fraction of the labeled samples that is held out to find the best epoch of the first stage."""


@dataclass(frozen=True)
class FCorrectionSettings:
    """The defaults are the release's for CIFAR-10; the division of the epochs is ours."""

    estimation_fraction: float = 0.33
    """Fraction of the epochs for the first stage, which estimates the transition matrix."""
    percentile: float = 0.97
    """Percentile of a class's probability that defines its anchor, to avoid outliers; 1 for CIFAR-100."""
    identity: float = 0.0
    """Weight of the identity that is mixed into the matrix, against collapse if most labels are wrong."""

    def __post_init__(self) -> None:
        if not 0 < self.estimation_fraction < 1:
            raise ValueError("estimation_fraction must be between 0 and 1")
        if not 0 < self.percentile <= 1:
            raise ValueError("percentile must be above 0 and at most 1")
        if not 0 <= self.identity <= 1:
            raise ValueError("identity must be from 0 to 1")


class FCorrection(Method):
    """Cross-entropy to estimate the transition matrix T; then training from scratch on −log (Tᵀp)_y."""

    info = MethodInfo(
        name="f-correction",
        title="Forward loss correction (F-correction)",
        kind="loss",
        paper="Patrini et al., Making Deep Neural Networks Robust to Label Noise, CVPR 2017",
        cost=1.1,
        follows="the paper; the two stages share the run's epochs, and the last epoch is the result; without "
        "the release's search for anchors, which changes the predictions that it reads",
    )
    Settings = FCorrectionSettings
    detector = "msp"
    settings: FCorrectionSettings
    transition: Tensor
    held_out: Tensor
    best: Tensor

    def setup(self, run: TrainerContext) -> None:
        """Create the network and the matrix, and choose the samples that the first stage holds out."""
        super().setup(run)
        drawn = torch.rand(len(run.given), generator=run.generator, device=run.device) < HELD_OUT
        self.register_buffer("held_out", drawn & (run.given >= 0))
        self.register_buffer("transition", torch.eye(run.n_classes, device=run.device))
        self.register_buffer("best", torch.tensor(torch.inf, device=run.device))

    def phases(self, epochs: int) -> tuple[int, ...]:
        """The two stages; a run of one epoch has only the first."""
        return 0, max(round(self.settings.estimation_fraction * epochs), 1)

    def begin_epoch(self, run: TrainerContext) -> tuple[Tensor, ...]:
        """Estimate after each epoch of the first stage; start the second with new initial weights."""
        start = self.phases(run.settings.epochs)[1]
        if 0 < run.epoch <= start:
            self._estimate(run)
        if run.epoch == start:
            self.networks["main"].load_state_dict(run.new_network().state_dict())
        return super().begin_epoch(run)

    def _estimate(self, run: TrainerContext) -> None:
        """Keep the matrix of the epoch with the lowest held-out loss."""
        logits = run.embed().logits
        loss = labeled_mean(given_losses(logits, run.given), self.held_out)
        if loss <= self.best:
            eye = torch.eye(run.n_classes, device=run.device)
            found = estimate_transition(logits.softmax(1), self.settings.percentile)
            self.best, self.transition = loss, found.lerp(eye, self.settings.identity)

    def losses(self, run: TrainerContext, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy of samples that are not held out; then the corrected loss of all labeled samples."""
        (out,) = run.forward(run.weak_view(batch.inputs))
        labeled = batch.given >= 0
        if run.epoch < self.phases(run.settings.epochs)[1]:
            return {
                "ce": labeled_mean(
                    given_losses(out.logits, batch.given), labeled & ~self.held_out[batch.index]
                )
            }
        return {"ce": labeled_mean(forward_losses(out.logits, batch.given, self.transition), labeled)}

    def notes(self, run: TrainerContext) -> list[str]:
        """Report if there is no matrix, or if it confuses classes."""
        if run.settings.epochs <= self.phases(run.settings.epochs)[1]:
            return ["the only epoch estimated the transition matrix: nothing was corrected"]
        lost = int((self.transition.argmax(1) != torch.arange(run.n_classes, device=run.device)).sum())
        if lost:
            return [
                f"by the transition matrix, {lost} of {run.n_classes} classes are mostly labeled as another "
                "class: the estimate may be wrong, and these classes confused"
            ]
        return []
