"""SOP+: label noise is modeled by a sparse term per sample that is learned jointly with the network."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot
from torch.optim import SGD, Optimizer

from ..training.method import Batch, Method, MethodInfo, Selected, Selection, TrainerContext
from .blocks.mixmatch import divergence_from_uniform
from .blocks.supervised import given_losses, labeled_mean

FIRST_TERMS = 1e-8
"""Initial standard deviation of u and v: so small that they grow only if the loss consistently requires it.
"""
LEAST_PROBABILITY = 1e-4
"""Minimum probability of a class after the subtraction."""
RELEASE_BATCH, RELEASE_EPOCHS = 128, 300
"""Batch size and epochs that the release's learning rates of u and v refer to."""


@dataclass(frozen=True)
class SopPlusSettings:
    """The defaults are the release's for CIFAR-10 with symmetric noise."""

    lr_u: float = 10.0
    """Learning rate of u, which explains given labels away; 1 for CIFAR-100, 0.1 there for asymmetric noise.

    Each sample's u and v are updated once per epoch, by a mean over the batch: the rates are for 300 epochs
    with batches of 128, and are scaled to those of the run.
    """
    lr_v: float = 10.0
    """Learning rate of v, which explains predictions of other classes; 100 for asymmetric noise."""
    lambda_consistency: float = 0.9
    """Weight of KL(weak ‖ strong) between the predictions of two views; not part of SOP."""
    lambda_balance: float = 0.1
    """Weight of the divergence of a batch's mean prediction from uniform classes; not part of SOP."""

    def __post_init__(self) -> None:
        for name in ("lr_u", "lr_v", "lambda_consistency", "lambda_balance"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be at least 0")


class SOPPlus(Method):
    """Cross-entropy of predictions plus U − V, where U = u² on the given class and V = v² on the others."""

    info = MethodInfo(
        name="sop-plus",
        title="Sparse Over-Parameterization with consistency regularization (SOP+)",
        kind="loss",
        paper="Liu et al., Robust Training under Label Noise by Over-parameterization, ICML 2022",
        cost=2.0,
        follows="the release; the learning rates of u and v are scaled with batch size and number of epochs; "
        "strong views, network, optimizer and schedule are those of the training settings",
    )
    Settings = SopPlusSettings
    settings: SopPlusSettings
    detector = "msp"

    def setup(self, run: TrainerContext) -> None:
        """Create the network, and u and v for every sample."""
        super().setup(run)
        s, n = self.settings, len(run.given)
        self.weights = {
            "ce": 1.0,
            "error": 1.0,
            "consistency": s.lambda_consistency,
            "balance": s.lambda_balance,
        }
        scale = run.batch_size / RELEASE_BATCH * RELEASE_EPOCHS / run.settings.epochs
        self.rates = s.lr_u * scale, s.lr_v * scale
        self.u, self.v = (
            nn.Parameter(FIRST_TERMS * torch.randn(n, width, generator=run.generator, device=run.device))
            for width in (1, run.n_classes)
        )

    def optimizers(self) -> dict[str, Optimizer]:
        """Plain gradient descent on u and v, with constant learning rates."""
        return {"u": SGD([self.u], self.rates[0]), "v": SGD([self.v], self.rates[1])}

    def terms(self, index: Tensor, given: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One-hot labels (0 if unlabeled), and U and V of some samples, each (B, K)."""
        labeled = (given >= 0).unsqueeze(1)
        y = one_hot(given.clamp(min=0), self.v.shape[1]).to(self.v.dtype) * labeled
        u = (self.u[index].square() * y).clamp(max=1)
        v = (self.v[index].square() * (1 - y)).clamp(max=1)
        return y, u, v

    def losses(self, run: TrainerContext, batch: Batch) -> dict[str, Tensor]:
        """Two losses of labeled samples, which learn u and v, and consistency and balance of all samples."""
        s = self.settings
        plus = s.lambda_consistency > 0 or s.lambda_balance > 0
        views = run.views(batch.inputs).chunk(2) if plus else [run.weak_view(batch.inputs)]
        weak, *strong = (out.logits.float().log_softmax(1) for out in run.forward(*views))
        y, u, v = self.terms(batch.index, batch.given)
        labeled = batch.given >= 0
        log_q = (weak.exp() + u - v.detach()).clamp(min=LEAST_PROBABILITY).log().log_softmax(1)
        hard = one_hot(weak.argmax(1), weak.shape[1])
        found = {
            "ce": labeled_mean(given_losses(log_q, batch.given), labeled),
            "error": labeled_mean((hard + u - v - y).square().sum(1), labeled),
        }
        if strong:
            target = weak.detach()
            divergence = (target.exp() * (target - strong[0])).sum(1)
            found |= {"consistency": divergence.mean(), "balance": divergence_from_uniform(log_q)}
        return found

    def selection(self, run: TrainerContext) -> Selection:
        """A given label is kept unless u has explained it away; v is largest for the predicted class."""
        with torch.no_grad():
            _, u, v = self.terms(torch.arange(len(run.given), device=run.device), run.given)
        right = (run.given >= 0) & (u.amax(1) < 0.5)
        return Selected(torch.where(right, run.given.clamp(min=0), v.argmax(1)), right)

    def conclude(self, run: TrainerContext, z: Tensor, logits: Tensor) -> Selection:  # noqa: ARG002
        """The same, with the final predictions for the other samples."""
        selected = self.selection(run).selected
        return Selected(torch.where(selected, run.given.clamp(min=0), logits.argmax(1)), selected)
