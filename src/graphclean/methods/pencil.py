"""PENCIL: every sample's label is a distribution, learned jointly with the network by the same gradients."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ..training.method import Batch, Method, MethodInfo, Selected, Selection, TrainerContext
from .blocks.supervised import given_losses, labeled_mean

GIVEN_LOGIT = 10.0
"""Initial label logit of the given class, with 0 for all others: probability 0.9996."""


@dataclass(frozen=True)
class PencilSettings:
    """The defaults are the paper's for CIFAR-10, as fractions of its 320 epochs and per class."""

    classify_until: float = 0.22
    """Fraction of the epochs that train on the given labels, before they are memorized: 70 of 320."""
    correct_until: float = 0.63
    """Fraction of the epochs after which labels are final and the learning rate restarts: 200 of 320."""
    label_lr: float = 60.0
    """Learning rate of the label logits, summed over all epochs that learn them, per unit of gradient of a
    sample's own loss: 130 epochs at 600/(128 · 10) in the release. A shorter run takes larger steps in each
    epoch.
    """
    alpha: float = 1.0
    """Weight of the compatibility loss with the given label, in units of 1/K like the other losses: 0.1 at
    ten classes in the paper. Much above 1 no label changes, as with the release's default, 4.
    """
    beta: float = 0.4
    """Weight of the entropy of predictions, which keeps labels and predictions from settling in between."""

    def __post_init__(self) -> None:
        if not 0 <= self.classify_until <= self.correct_until <= 1:
            raise ValueError("classify_until and correct_until must be from 0 to 1, in this order")
        for name in ("label_lr", "alpha", "beta"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be at least 0")


class Pencil(Method):
    """Train on the given labels; then learn labels and network jointly; then train on the learned labels."""

    info = MethodInfo(
        name="pencil",
        title="Probabilistic end-to-end noise correction (PENCIL)",
        kind="relabel",
        paper="Yi & Wu, Probabilistic End-to-end Noise Correction for Learning with Noisy Labels, CVPR 2019",
        cost=1.0,
        follows="the paper, with the release's compatibility loss, a cross-entropy of the softmax of label "
        "probabilities: with the paper's −log no label could leave its class; without the release's learning "
        "rate of 0 at the end; its stages are fractions of the epochs, the first two with one cosine "
        "schedule of the learning rate and the third with another",
    )
    Settings = PencilSettings
    detector = "msp"
    settings: PencilSettings
    label_logits: Tensor

    def setup(self, run: TrainerContext) -> None:
        """Create the network, and label logits for every sample."""
        super().setup(run)
        s, k = self.settings, run.n_classes
        self.weights = {"ce": 1.0, "kl": 1 / k, "compatibility": s.alpha / k, "entropy": s.beta / k}
        given = one_hot(run.given.clamp(min=0), k) * (run.given >= 0).unsqueeze(1)
        self.register_buffer("label_logits", GIVEN_LOGIT * given)
        self._rows: Tensor | None = None

    def _stages(self, epochs: int) -> tuple[int, int]:
        """The first epoch that learns labels, and the first after it; training before takes an epoch or more,
        if any.
        """
        s = self.settings
        first = max(round(s.classify_until * epochs), int(s.classify_until > 0))
        return first, max(round(s.correct_until * epochs), first)

    def phases(self, epochs: int) -> tuple[int, ...]:
        """Two phases: until labels are final, and after that."""
        return tuple(sorted({0, self._stages(epochs)[1]}))

    def losses(self, run: TrainerContext, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy; then KL divergence of predictions from labels, plus two terms while labels are
        learned.
        """
        (out,) = run.forward(run.weak_view(batch.inputs))
        labeled = batch.given >= 0
        first, final = self._stages(run.settings.epochs)
        if run.epoch < first:
            return {"ce": labeled_mean(given_losses(out.logits, batch.given), labeled)}
        rows = self.label_logits[batch.index]
        if run.epoch < final:
            self._rows = rows.requires_grad_()
        log_p, log_label = out.logits.float().log_softmax(1), rows.log_softmax(1)
        kl = labeled_mean((log_p.exp() * (log_p - log_label)).sum(1), labeled)
        if run.epoch >= final:
            return {"kl": kl}
        kept = labeled_mean(given_losses(log_label.exp(), batch.given), labeled)
        entropy = labeled_mean(-(log_p.exp() * log_p).sum(1), labeled)
        return {"kl": kl, "compatibility": kept, "entropy": entropy}

    @torch.no_grad()
    def after_step(self, run: TrainerContext, batch: Batch) -> None:
        """Update the batch's label logits by the same gradient, independently of batch size and K."""
        rows, self._rows = self._rows, None
        if rows is None:
            return
        assert rows.grad is not None
        first, final = self._stages(run.settings.epochs)
        rate = self.settings.label_lr / (final - first)
        own = rows.grad * (batch.given >= 0).sum() * run.n_classes
        self.label_logits[batch.index] = rows - rate * own

    def selection(self, run: TrainerContext) -> Selection:
        """Every labeled sample, with its most probable label."""
        return Selected(self.label_logits.argmax(1), run.given >= 0)

    def notes(self, run: TrainerContext) -> list[str]:
        """Report if no epoch learned labels."""
        first, final = self._stages(run.settings.epochs)
        if first < min(final, run.settings.epochs):
            return []
        return ["no epoch learned labels: there are too few, or the settings leave none"]
