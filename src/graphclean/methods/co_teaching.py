"""Co-teaching: each network is trained on a batch's samples with the smallest losses for the other one."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..config.settings import Auto
from ..training.method import Batch, Method, MethodInfo, Selected, Selection, TrainerContext
from .blocks.noise_rate import NoiseRate, check_noise_rate
from .blocks.pair import WEIGHTS, Masks, Pair, keep_small, new_pair, see, teach
from .blocks.small_loss import remaining

FOLLOWS_CO_TEACHING = (
    "the paper, except that its epochs are fractions of the run's, and both networks see the same weak view; "
    "network, optimizer and schedule are those of the training settings; losses are means over the kept "
    "samples, which the release divides by their number once more"
)


@dataclass(frozen=True)
class CoTeachingSettings:
    """The defaults are the release's, as fractions of the epochs."""

    noise_rate: float | Auto = "auto"
    """Fraction of wrong labels, which is dropped at the end of the ramp; `auto`: estimated in the first half.

    If labels are resampled from all K classes, a fraction (K − 1) / K of them is wrong.
    """
    ramp: float = 0.05
    """Fraction of the epochs over which the drop rate grows to that: 10 of the paper's 200, 3 of 60."""

    def __post_init__(self) -> None:
        check_noise_rate(self.noise_rate)
        if not 0 <= self.ramp <= 1:
            raise ValueError("ramp must be from 0 to 1")


@dataclass(frozen=True)
class CoTeachingPlusSettings(CoTeachingSettings):
    """Co-teaching's settings, and the epochs before disagreement is used."""

    disagreement_from: float = 0.1
    """Fraction of the epochs after which only disagreements are used: 20 of 200; 0.025 for CIFAR-100."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.disagreement_from <= 1:
            raise ValueError("disagreement_from must be from 0 to 1")


class CoTeaching(Method):
    """Two networks; each drops the largest losses of a batch, and is trained on what the other one keeps."""

    info = MethodInfo(
        name="co-teaching",
        title="Co-teaching",
        kind="selection",
        paper="Han et al., Co-teaching: Robust Training of Deep Neural Networks with Extremely Noisy Labels, "
        "NeurIPS 2018",
        networks=2,
        cost=2.2,
        needs=("noise rate",),
        follows=FOLLOWS_CO_TEACHING,
    )
    Settings = CoTeachingSettings
    detector = "msp"
    settings: CoTeachingSettings
    drop: Tensor
    kept: Tensor
    disagreed: Tensor

    def setup(self, run: TrainerContext) -> None:
        """Create two networks, the noise rate, and the last selection and disagreement of each sample."""
        self.networks, self.weights = new_pair(run), WEIGHTS
        self.noise = NoiseRate(self.settings.noise_rate, run.n_classes, run.device)
        self.register_buffer("drop", torch.zeros((), device=run.device))
        self.register_buffer("kept", run.given >= 0)
        self.register_buffer("disagreed", torch.zeros(len(run.given), dtype=torch.bool, device=run.device))

    def begin_epoch(self, run: TrainerContext) -> tuple[Tensor, ...]:
        """Set the drop rate."""
        ramp = self.settings.ramp * run.settings.epochs
        self.drop = self.noise.begin_epoch(run) * (min(run.epoch / ramp, 1.0) if ramp else 1.0)
        return super().begin_epoch(run)

    def losses(self, run: TrainerContext, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy of each network on the samples that the other one keeps."""
        pair, labeled = see(run, batch.inputs, batch.given), batch.given >= 0
        small = keep_small(pair, labeled, remaining(labeled, self.drop))
        self.kept[batch.index] = small[0] & small[1]
        self.disagreed[batch.index] = pair.disagree
        return teach(pair, self.kept_to_teach(run, pair, labeled, small))

    def kept_to_teach(self, run: TrainerContext, pair: Pair, labeled: Tensor, small: Masks) -> Masks:  # noqa: ARG002
        """The samples that each network passes to the other one, given its small losses."""
        return small

    def selection(self, run: TrainerContext) -> Selection:
        """The given labels; a sample is selected if both networks last found its loss small."""
        return Selected(run.given.clamp(min=0), self.kept)

    def metrics(self, run: TrainerContext) -> dict[str, Any]:  # noqa: ARG002
        """The noise rate, the drop rate, and the fraction of samples on which the networks disagree."""
        return {
            **self.noise.metrics(),
            "drop_rate": float(self.drop),
            "disagreement": float(self.disagreed.float().mean()),
        }

    def notes(self, run: TrainerContext) -> list[str]:
        """Report the source of the noise rate."""
        return self.noise.notes(run)


class CoTeachingPlus(CoTeaching):
    """Co-teaching that, after some epochs, uses only samples on which the networks disagree."""

    info = MethodInfo(
        name="co-teaching-plus",
        title="Co-teaching+ (update by disagreement)",
        kind="selection",
        paper="Yu et al., How does Disagreement Help Generalization against Label Corruption?, ICML 2019",
        networks=2,
        cost=2.2,
        needs=("noise rate",),
        follows=f"{FOLLOWS_CO_TEACHING}; cross-entropy takes logits, in the release probabilities",
    )
    Settings = CoTeachingPlusSettings
    settings: CoTeachingPlusSettings

    def kept_to_teach(self, run: TrainerContext, pair: Pair, labeled: Tensor, small: Masks) -> Masks:
        """The small losses among the samples that the networks disagree on; all samples if there are none."""
        if run.epoch < self.settings.disagreement_from * run.settings.epochs:
            return small
        differ = labeled & pair.disagree
        first, second = keep_small(pair, differ, remaining(differ, self.drop))
        return torch.where(differ.any(), first, labeled), torch.where(differ.any(), second, labeled)
