"""C2D: DivideMix with self-supervised pre-training."""

from dataclasses import dataclass

from torch import Tensor

from ..training.method import Batch, MethodInfo, TrainerContext
from ..training.self_supervised import SelfSupervisedStart
from .dividemix import DIVIDEMIX_FOLLOWS, DivideMix, DivideMixSettings


@dataclass(frozen=True)
class C2DSettings(DivideMixSettings):
    """DivideMix's settings, and the length of pre-training."""

    start_fraction: float = 0.33
    """Fraction of the epochs for pre-training; ignored if training.self_supervised_epochs is set."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.start_fraction < 1:
            raise ValueError("start_fraction must be at least 0 and less than 1")


class C2D(DivideMix):
    """Pre-train both networks by contrasting two views of every sample; half the warm-up then suffices."""

    info = MethodInfo(
        name="c2d",
        title="Contrast to Divide (C2D): DivideMix with self-supervised pre-training",
        kind="semi-supervised",
        paper="Zheltonozhskii et al., Contrast to Divide: Self-Supervised Pre-Training for Learning with "
        "Noisy Labels, WACV 2022",
        networks=2,
        cost=5.8,
        follows="the paper, but with separate pre-trained weights for each network, pre-training within "
        "the run's epochs and the views of training.self_supervised_crop, and without gradient clipping in "
        f"warm-up; its DivideMix follows {DIVIDEMIX_FOLLOWS}",
    )
    Settings = C2DSettings
    settings: C2DSettings
    longest_warmup = 5
    em_iterations = 200
    start_epochs = 0

    def setup(self, run: TrainerContext) -> None:
        """Set up DivideMix and the pre-training."""
        super().setup(run)
        self.weights = {**self.weights, "inst": 1.0}
        self.start = SelfSupervisedStart(self.members)
        if not run.settings.self_supervised_epochs:
            self.start_epochs = round(self.settings.start_fraction * run.settings.epochs)

    def phases(self, epochs: int) -> tuple[int, ...]:
        """Pre-training, then DivideMix."""
        return (0, self.start_epochs) if 0 < self.start_epochs < epochs else (0,)

    def parts(self, epoch: int) -> int:
        """In pre-training, both networks are trained on the same batches."""
        return 1 if epoch < self.start_epochs else super().parts(epoch)

    def begin_epoch(self, run: TrainerContext) -> tuple[Tensor, ...]:
        """All samples in pre-training; then DivideMix's batches."""
        return self.start.begin_epoch(run) if run.epoch < self.start_epochs else super().begin_epoch(run)

    def losses(self, run: TrainerContext, *batches: Batch) -> dict[str, Tensor]:
        """The contrastive loss in pre-training; then DivideMix's losses."""
        if run.epoch < self.start_epochs:
            return self.start.losses(run, *batches)
        return super().losses(run, *batches)
