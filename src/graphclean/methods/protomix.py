"""ProtoMix, or RRL: prototypical contrastive learning with mixup, and label cleaning by neighbors in z."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss, one_hot

from ..ood import class_prototypes
from ..training.losses import contrastive_losses
from ..training.method import (
    Batch,
    Method,
    MethodInfo,
    Selected,
    Selection,
    TrainerContext,
    hold_decided,
    join_state,
    split_state,
)
from ..training.networks import Output
from .blocks.classification import MixupClassification
from .blocks.neighbors import average_neighbors, fitting_k
from .blocks.supervised import given_losses, labeled_mean


@dataclass(frozen=True)
class ProtoMixSettings:
    """The defaults are the release's for CIFAR-10 with symmetric noise."""

    warmup_steps: int = 100
    """Steps of cross-entropy and reconstruction before the first prototypes; at most one epoch."""
    neighbors_from: float = 0.025
    """Fraction of the epochs after which labels are cleaned, at least one epoch; 0.075 for CIFAR-100."""
    k: int = 200
    """Neighbors whose soft labels are averaged."""
    low: float = 0.1
    """Probability above which a given label is kept; 0.4 for asymmetric noise, 0.02 for CIFAR-100."""
    high: float = 0.9
    """Probability above which a sample counts as clean, whatever its label."""
    tau: float = 0.3
    """Temperature of both contrastive losses and of the neighbors' weights."""
    mixup_alpha: float = 8.0
    """λ ~ Beta(alpha, alpha) per batch, for the mixed images of the prototypical contrastive loss."""
    lambda_inst: float = 1.0
    """Weight of the instance contrastive loss."""
    lambda_proto: float = 5.0
    """Weight of the prototypical contrastive loss."""
    proto_ramp: float = 0.0
    """Fraction of the epochs over which that weight grows from 1; 0.2 for CIFAR-100 and asymmetric noise."""
    lambda_recon: float = 1.0
    """Weight of the reconstruction loss of the trunk's features from z."""

    def __post_init__(self) -> None:
        for name in ("neighbors_from", "low", "high", "proto_ramp"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be from 0 to 1")
        for name in ("warmup_steps", "mixup_alpha", "lambda_inst", "lambda_proto", "lambda_recon"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be at least 0")
        if self.k < 1:
            raise ValueError("k must be at least 1")
        if not self.tau > 0:
            raise ValueError("tau must be above 0")


class ProtoMix(Method):
    """Soft labels from network and neighbors in z; clean samples are classified and drawn to prototypes."""

    info = MethodInfo(
        name="protomix",
        title="Robust Representation Learning with prototypes and mixup (RRL, ProtoMix)",
        kind="contrastive",
        paper="Li et al., Learning from Noisy Data with Robust Representation Learning, ICCV 2021",
        cost=4.0,
        follows="the paper and its release, except that phases are fractions of the epochs instead of 5, 15 "
        "and 40 of 200; z is as wide as for all methods, not 50; k is at most half of an average class; the "
        "decoder is linear, without the release's clipping at 0; a class without clean samples has no "
        "prototype; network, optimizer and schedule are those of the training settings",
    )
    Settings = ProtoMixSettings
    settings: ProtoMixSettings
    soft: Tensor
    labels: Tensor
    selected: Tensor
    prototypes: Tensor

    def setup(self, run: TrainerContext) -> None:
        """Create the network, a decoder, and each sample's soft label, hard label and whether it is clean."""
        super().setup(run)
        s, main = self.settings, self.networks["main"]
        self.weights = {
            "ce": 1.0,
            "inst": s.lambda_inst,
            "proto": s.lambda_proto,
            "recon": s.lambda_recon,
        }
        width, features = main.embedding_dim, main.feature_dim
        assert isinstance(width, int)
        assert isinstance(features, int)
        self.heads["decoder"] = nn.Linear(width, features).to(run.device)
        self.mixup = MixupClassification(s.mixup_alpha)
        self.register_buffer("soft", torch.zeros(len(run.given), run.n_classes, device=run.device))
        self.register_buffer("labels", run.given.clamp(min=0))
        self.register_buffer("selected", run.given >= 0)
        self.register_buffer("prototypes", torch.zeros(run.n_classes, width, device=run.device))

    def parts(self, epoch: int) -> int:
        """The warm-up is a separate part of the first epoch."""
        return 2 if epoch == 0 and self.settings.warmup_steps else 1

    def _warming_up(self, run: TrainerContext) -> bool:
        return run.part + 1 < self.parts(run.epoch)

    def begin_epoch(self, run: TrainerContext) -> tuple[Tensor, ...]:
        """Clean the labels, compute prototypes of the clean samples, and shuffle."""
        if self._warming_up(run):
            return (run.shuffle()[: self.settings.warmup_steps],)
        out = run.embed()
        start = max(1, round(self.settings.neighbors_from * run.settings.epochs))
        if run.epoch >= start:
            decision = self.clean(run, out, first=run.epoch == start)
            self.labels, self.selected = decision.labels, decision.selected
        self.prototypes = class_prototypes(out.z, self.labels, self.selected, run.n_classes)
        batches = run.shuffle(self.selected)
        self.mixup.begin_epoch(run, self.selected[batches])
        return (batches,)

    def clean(self, run: TrainerContext, out: Output, *, first: bool) -> Selection:
        """Average the predictions and the neighbors' previous soft labels, and select confident samples."""
        s, p = self.settings, out.logits.softmax(1)
        before = self.trust_given(p, run.given) if first else self.soft
        near = average_neighbors(out.z, before, fitting_k(s.k, len(p), run.n_classes), s.tau)
        self.soft = self.trust_given((near + p) / 2, run.given)
        probability, labels = self.soft.max(1)
        return hold_decided(Selected(labels, probability > s.high), run.decided, run.n_classes)

    def trust_given(self, soft: Tensor, given: Tensor) -> Tensor:
        """Soft labels in which a given label with a probability above `low` is certain."""
        known = given.clamp(min=0)
        stands = (given >= 0) & (soft.gather(1, known.unsqueeze(1)).squeeze(1) > self.settings.low)
        return torch.where(stands.unsqueeze(1), one_hot(known, soft.shape[1]).to(soft.dtype), soft)

    def losses(self, run: TrainerContext, batch: Batch) -> dict[str, Tensor]:
        """Classify weak views, contrast instances, contrast mixed views with prototypes, and reconstruct."""
        labels, selected = self.labels[batch.index], self.selected[batch.index]
        if self._warming_up(run):
            (weak,) = run.forward(run.weak_view(batch.inputs))
            ce = labeled_mean(given_losses(weak.logits, labels), selected)
            return {"ce": ce, "recon": self.reconstruction(weak)}
        views = run.views(batch.inputs)
        mix = self.mixup.mix(run, views, labels, selected)
        weak, strong, *mixed = run.forward(*views.chunk(2), *([mix.images] if mix is not None else []))
        none = torch.zeros_like(labels)
        tau = self.settings.tau
        found = contrastive_losses(weak.z, strong.z, none, none, tau_inst=tau, positives="paper")
        losses = {
            "ce": labeled_mean(given_losses(weak.logits, labels), selected),
            "inst": found.inst,
            "recon": self.reconstruction(weak) + self.reconstruction(strong),
        }
        if mix is not None:
            losses["proto"] = self._ramp(run) * mix.loss(mixed[0].z @ self.prototypes.T / tau)
        return losses

    def reconstruction(self, out: Output) -> Tensor:
        """The mean squared error of the features decoded from z before it is normalized."""
        assert out.features is not None
        features = out.features.float()
        projector = self.networks["main"].projector
        assert isinstance(projector, nn.Module)
        return mse_loss(self.heads["decoder"](projector(features)), features)

    def _ramp(self, run: TrainerContext) -> float:
        """The fraction of the prototypical loss's weight that is reached."""
        full, epochs = self.settings.lambda_proto, self.settings.proto_ramp * run.settings.epochs
        if not epochs or full <= 1:
            return 1.0
        return min(1.0, (1 + (full - 1) * run.epoch / epochs) / full)

    def selection(self, run: TrainerContext) -> Selection:  # noqa: ARG002
        """The last decision."""
        return Selected(self.labels, self.selected)

    def save_state(self) -> dict[str, Tensor]:
        """Networks, stores, and the batch shapes of this epoch."""
        return super().save_state() | join_state({"mixup": self.mixup.save_state()})

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore the saved state."""
        parts = split_state(state)
        self.mixup.load_state(parts.pop("mixup"))
        super().load_state({name: value for name, value in state.items() if not name.startswith("mixup.")})
