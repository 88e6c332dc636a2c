"""SSR: keep labels on which the nearest neighbors agree, and relabel where the network is confident."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from ..training.augment import draw_beta, mixup
from ..training.losses import mixup_cross_entropy
from ..training.method import Batch, Method, MethodInfo, Selected, Selection, TrainerContext, hold_decided
from .blocks.balanced import balanced_batches
from .blocks.neighbors import balanced_votes, fitting_k

HIDDEN, PROJECTED = 256, 128
"""Hidden and output width of the two heads of SSR+."""
FOLLOWS = (
    "the paper and its release, except that a sample does not vote on itself, k is at most half of an "
    "average class, and network, optimizer and schedule are those of the training settings; the paper's "
    "strong views are training.strong_augmentation=autoaugment"
)


@dataclass(frozen=True)
class SsrSettings:
    """The defaults are the paper's for CIFAR-10."""

    theta_r: float = 0.9
    """Probability above which the prediction becomes the label; 0.8 for CIFAR-100 from 50 % noise on."""
    theta_s: float = 1.0
    """Fraction of the leading class's votes that a label needs to be selected; 1: it must lead itself."""
    k: int = 200
    """Number of neighbors that vote."""
    mixup_alpha: float = 4.0
    """λ ~ Beta(alpha, alpha) per batch, replaced by 1 − λ if that is larger."""

    def __post_init__(self) -> None:
        if not self.theta_r >= 0:
            raise ValueError("theta_r must be at least 0")
        if not 0 <= self.theta_s <= 1:
            raise ValueError("theta_s must be from 0 to 1")
        if self.k < 1:
            raise ValueError("k must be at least 1")
        if not self.mixup_alpha > 0:
            raise ValueError("mixup_alpha must be above 0")


@dataclass(frozen=True)
class SsrPlusSettings(SsrSettings):
    """SSR's settings, and the weight of the consistency of two views."""

    lambda_consistency: float = 1.0
    """Weight of the consistency loss."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.lambda_consistency >= 0:
            raise ValueError("lambda_consistency must be at least 0")


class SSR(Method):
    """Relabel confident predictions, select by the neighbors' votes, and train with balanced classes.

    Labels and selection are derived from the given labels in every epoch, so that no mistake persists.
    """

    info = MethodInfo(
        name="ssr",
        title="Sample Selection and Relabeling (SSR)",
        kind="relabel",
        paper="Feng et al., SSR: An Efficient and Robust Framework for Learning with Unknown Label Noise, "
        "BMVC 2022",
        cost=2.3,
        follows=FOLLOWS,
    )
    Settings = SsrSettings
    detector = "msp"
    settings: SsrSettings
    labels: Tensor
    selected: Tensor

    def setup(self, run: TrainerContext) -> None:
        """Create the network, and every sample's label and whether it is selected."""
        super().setup(run)
        self.register_buffer("labels", run.given.clamp(min=0))
        self.register_buffer("selected", run.given >= 0)

    def begin_epoch(self, run: TrainerContext) -> tuple[Tensor, ...]:
        """Decide on labels and selection; then class-balanced batches."""
        self.labels, self.selected = self.decide(run)
        everything = run.shuffle()
        if not bool(self.selected.any()):
            return (everything,)
        steps, size = everything.shape
        return (
            balanced_batches(
                self.labels, self.selected, run.n_classes, (steps, size), len(self.labels), run.generator
            ),
        )

    def decide(self, run: TrainerContext) -> tuple[Tensor, Tensor]:
        """Labels and selection from the current network, on weak views."""
        s = self.settings
        out = run.embed(weak=True, features=True)
        assert out.features is not None
        sure, predicted = out.logits.softmax(1).max(1)
        labels = torch.where(sure > s.theta_r, predicted, run.given)
        votes = balanced_votes(
            out.features, labels, run.n_classes, fitting_k(s.k, len(labels), run.n_classes)
        )
        own, most = votes.gather(1, labels.clamp(min=0).unsqueeze(1)).squeeze(1), votes.amax(1)
        selected = (labels >= 0) & (most > 0) & (own >= s.theta_s * most)
        held = hold_decided(Selected(labels.clamp(min=0), selected), run.decided, run.n_classes)
        return held.labels, held.selected

    def losses(self, run: TrainerContext, batch: Batch, *more: Batch) -> dict[str, Tensor]:  # noqa: ARG002
        """Mixup cross-entropy of two strong views of each sample."""
        views = run.views(torch.cat([batch.inputs, batch.inputs])).chunk(2)[1]
        lam = draw_beta(self.settings.mixup_alpha, self.settings.mixup_alpha, run.generator)
        lam = torch.maximum(lam, 1 - lam)
        partner = torch.randperm(len(views), generator=run.generator, device=run.device)
        mixed = mixup(views, self.labels[batch.index].repeat(2), lam, partner)
        (out,) = run.forward(mixed.images)
        weight = self.selected[batch.index].repeat(2)
        return {"ce": mixup_cross_entropy(out.logits, mixed.targets, mixed.partner_targets, lam, weight)}

    def selection(self, run: TrainerContext) -> Selection:  # noqa: ARG002
        """The last decision."""
        return Selected(self.labels, self.selected)


class SSRPlus(SSR):
    """SSR, and the strong view of every sample, selected or not, must predict its weak view."""

    info = MethodInfo(
        name="ssr-plus",
        title="Sample Selection and Relabeling with consistency regularization (SSR+)",
        kind="relabel",
        paper=SSR.info.paper,
        cost=3.7,
        follows=FOLLOWS,
    )
    Settings = SsrPlusSettings
    settings: SsrPlusSettings

    def setup(self, run: TrainerContext) -> None:
        """Set up SSR, with a projector and a predictor on the trunk's features."""
        super().setup(run)
        self.weights = {"ce": 1.0, "consistency": self.settings.lambda_consistency}
        width = self.networks["main"].feature_dim
        assert isinstance(width, int)
        self.heads["projector"] = _head(width).to(run.device)
        self.heads["predictor"] = _head(PROJECTED).to(run.device)

    def begin_epoch(self, run: TrainerContext) -> tuple[Tensor, ...]:
        """SSR's batches, and batches of all samples."""
        return (*super().begin_epoch(run), run.shuffle())

    def losses(self, run: TrainerContext, batch: Batch, *more: Batch) -> dict[str, Tensor]:
        """SSR's loss, and the consistency of the second batch, with the weak view as the target."""
        found = super().losses(run, batch)
        weak, strong = run.views(more[0].inputs).chunk(2)
        with torch.no_grad():
            (target,) = run.forward(weak)
        (out,) = run.forward(strong)
        return found | {"consistency": self.consistency(out.features, target.features)}

    def consistency(self, strong: Tensor | None, weak: Tensor | None) -> Tensor:
        """1 − cosine of the prediction from the strong view and the projection of the weak view."""
        assert strong is not None
        assert weak is not None
        projector, predictor = self.heads["projector"], self.heads["predictor"]
        with torch.no_grad():
            target = projector(weak.float())
        return 1 - cosine_similarity(predictor(projector(strong.float())), target).mean()


def _head(width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(width, HIDDEN), nn.BatchNorm1d(HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, PROJECTED)
    )
