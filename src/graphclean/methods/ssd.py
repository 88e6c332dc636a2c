"""SSD and SSD+: contrastive features, without or with labels, scored by distance to the training set."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from ..training.method import Batch, MethodInfo, TrainerContext
from .blocks.layer_heads import WithoutClassifier
from .blocks.simclr import simclr_views, supervised_contrast

HEAD_WIDTH = 128
"""Output width of the head, for the loss only; scores use the trunk's features."""
SSD_PAPER = "Sehwag et al., SSD: A Unified Framework for Self-Supervised Outlier Detection, ICLR 2021"
DEVIATIONS = (
    "the paper, with network, epochs, optimizer and schedule of the training settings instead of ResNet-50 "
    "and 500 epochs; the loss is the published one, which the release multiplies by 7, and hue is jittered "
    "after all other color properties"
)


@dataclass(frozen=True)
class SsdSettings:
    """The defaults are the release's."""

    temperature: float = 0.5
    """Temperature of the contrastive loss."""
    smallest_crop: float = 0.2
    """Minimum area of a view, as a fraction of the image."""

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError("temperature must be above 0")
        if not 0 < self.smallest_crop <= 1:
            raise ValueError("smallest_crop must be above 0 and at most 1")


class SSD(WithoutClassifier):
    """Contrast samples by two views of each, without labels; samples far from the training set are OOD."""

    info = MethodInfo(
        name="ssd",
        title="Self-Supervised outlier Detection with SimCLR (SSD)",
        kind="ood",
        paper=SSD_PAPER,
        cost=2.0,
        follows=DEVIATIONS,
    )
    Settings = SsdSettings
    detector = "ssd"
    settings: SsdSettings

    def setup(self, run: TrainerContext) -> None:
        """Create the network, and a head on its features."""
        super().setup(run)
        self.weights = {"contrast": 1.0}
        width = self.networks["main"].feature_dim
        assert isinstance(width, int)
        layers = nn.Linear(width, width), nn.ReLU(), nn.Linear(width, HEAD_WIDTH)
        self.heads["projector"] = nn.Sequential(*layers).to(run.device)

    def begin_epoch(self, run: TrainerContext) -> tuple[Tensor, ...]:
        """All samples in random order, without distinguishing labeled and unlabeled ones."""
        return (run.shuffle(torch.ones_like(run.given, dtype=torch.bool)),)

    def labels(self, batch: Batch) -> Tensor:
        """The labels that the loss may use: none."""
        return torch.full_like(batch.given, -1)

    def losses(self, run: TrainerContext, batch: Batch) -> dict[str, Tensor]:
        """The contrastive loss of two views of each sample."""
        (out,) = run.forward(simclr_views(run, batch.inputs, self.settings.smallest_crop))
        assert out.features is not None
        first, second = normalize(self.heads["projector"](out.features.float()), dim=1).chunk(2)
        return {"contrast": supervised_contrast(first, second, self.labels(batch), self.settings.temperature)}


class SSDPlus(SSD):
    """SSD with a supervised contrastive loss, in which views with the same given label are positives."""

    info = MethodInfo(
        name="ssd-plus",
        title="Outlier detection with supervised contrastive learning (SSD+)",
        kind="ood",
        paper=SSD_PAPER,
        cost=2.0,
        follows=DEVIATIONS + "; the only positive of an unlabeled sample is its own other view",
    )

    def labels(self, batch: Batch) -> Tensor:
        """The given labels."""
        return batch.given
