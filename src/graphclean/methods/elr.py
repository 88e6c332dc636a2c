"""Early-Learning Regularization: keep predictions close to what they were before memorization."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ..training.method import Batch, Method, MethodInfo, Selected, Selection, TrainerContext
from .blocks.label_store import clipped_softmax, early_learning, update_rows
from .blocks.supervised import given_losses, labeled_mean


@dataclass(frozen=True)
class ElrSettings:
    """The defaults are the release's for CIFAR-10 with symmetric noise."""

    beta: float = 0.7
    """Decay of the moving average of predictions; 0.9 for asymmetric noise and CIFAR-100."""
    lambda_elr: float = 3.0
    """Weight of the regularization; 1 for asymmetric noise, 7 for CIFAR-100."""

    def __post_init__(self) -> None:
        if not 0 <= self.beta < 1:
            raise ValueError("beta must be at least 0 and less than 1")
        if not self.lambda_elr >= 0:
            raise ValueError("lambda_elr must be at least 0")


class ELR(Method):
    """Cross-entropy on the given labels, and log(1 − ⟨t, p⟩) with each sample's average prediction t."""

    info = MethodInfo(
        name="elr",
        title="Early-Learning Regularization (ELR)",
        kind="loss",
        paper="Liu et al., Early-Learning Regularization Prevents Memorization of Noisy Labels, NeurIPS 2020",
        cost=1.0,
        follows="the release's losses; network, optimizer and schedule are those of the training settings",
    )
    Settings = ElrSettings
    settings: ElrSettings
    targets: Tensor

    def setup(self, run: TrainerContext) -> None:
        """Create the network, and an average prediction for every sample."""
        super().setup(run)
        self.weights = {"ce": 1.0, "elr": self.settings.lambda_elr}
        self.register_buffer("targets", torch.zeros(len(run.given), run.n_classes, device=run.device))

    def losses(self, run: TrainerContext, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy of the labeled samples, and the regularization of all samples."""
        (out,) = run.forward(run.weak_view(batch.inputs))
        p = clipped_softmax(out.logits)
        t = update_rows(self.targets, batch.index, p, self.settings.beta)
        ce = labeled_mean(given_losses(out.logits, batch.given), batch.given >= 0)
        return {"ce": ce, "elr": early_learning(t, p)}

    def selection(self, run: TrainerContext) -> Selection:
        """The class with the highest average prediction; selected if it is the given one."""
        labels = self.targets.argmax(1)
        return Selected(labels, labels == run.given)
