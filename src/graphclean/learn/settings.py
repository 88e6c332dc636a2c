"""What a user may set about training, each with its reason."""

from dataclasses import dataclass
from typing import Literal

from .losses import Positives

AugMixVariant = Literal["full", "last-chain", "off"]
Method = Literal["ngc", "ce"]
BatchStats = Literal["together", "separate"]
Compile = Literal["auto", "on", "off"]
Trunk = Literal["he", "release"]
LabelsFrom = Literal["graph", "features"]
PredictBy = Literal["classifier", "both"]
SEEDS = 2**32
"""Seeds are less than this: what every generator takes."""
PLAIN = (
    "learn.method=ce", "learn.mixup=0", "learn.augmix=off",
    "learn.predict_by=classifier", "learn.mirrored=false",
)  # fmt: skip
"""What plain cross-entropy is, on top of any other settings."""
NOT_NEGATIVE = (
    "warmup", "lr_end", "ramp", "weight_decay", "mixup", "lambda_inst", "lambda_subgraph", "crop", "noise",
)  # fmt: skip


@dataclass(frozen=True)
class LearnSettings:
    """Settings of the training loop (Eq. 5-7 and the optimiser). The defaults are CIFAR-10's."""

    method: Method = "ngc"
    """`ngc`, or `ce`: cross-entropy on the given labels, to compare with; mixup and AugMix stay as set."""
    network: str = "preact-resnet18"
    """A name from `learn.networks`, or `timm:NAME` (extra timm)."""
    pretrained: bool = True
    """Start a network of timm from its published weights; the others have none."""
    size: int = 64
    """Pixels a side of the centre squares that photos become; arrays of images keep their own size."""
    labels_from: LabelsFrom = "graph"
    """`graph`: cleaned on z at every epoch; `features`: drawn from the verdicts on the features given."""
    gate_from: float = 1.0
    """Share of the epochs after which the lower of two humps of s(x) stays out for good; 1: never (paper)."""
    epochs: int = 300
    """The last epoch is the result; nothing is picked on a test set."""
    warmup: int = 5
    """Epochs of mixup cross-entropy on the given labels before the graph decides what is trained on."""
    batch: int = 512
    """Samples a step; the contrastive losses see twice as many views."""
    lr: float = 0.15
    """Highest learning rate, as in the paper."""
    lr_end: float = 2e-4
    """Where the cosine ends."""
    ramp: float = 1.0
    """Epochs of linear increase at the start: without it lr 0.15 can diverge in the first steps."""
    momentum: float = 0.9
    """Of SGD, without Nesterov."""
    weight_decay: float = 5e-4
    """As in the paper."""
    mixup: float = 8.0
    """λ ~ Beta(mixup, mixup), one a batch; 0 turns mixup off."""
    lambda_inst: float = 1.0
    """λ1 of Eq. 7."""
    lambda_subgraph: float = 1.0
    """λ2 of Eq. 7."""
    tau_inst: float = 0.3
    """τ1 of Eq. 5."""
    tau_subgraph: float = 1.0
    """τ2 of Eq. 6."""
    subgraph_positives: Positives = "release"
    """`release`: the own strong view is always a positive; `paper`: Eq. 6 as written."""
    crop: int = 4
    """Zero pixels around an image before it is cropped back at random; 0 turns that off."""
    flip: bool = True
    """Mirror images at random; off for digits and letters."""
    augmix: AugMixVariant = "full"
    """Of the strong view: AugMix as published, the slip in the authors' release, or none."""
    noise: float = 0.0
    """Deviation of normal noise on the inputs of both views, for features; images have their own ways."""
    batch_stats: BatchStats = "together"
    """Batch norm sees weak and strong views `together`, or each in a pass of its own (release)."""
    trunk: Trunk = "he"
    """Of preact-resnet18: `he`, identity shortcuts and a last BN-ReLU, or `release`, the authors' own."""
    predict_by: PredictBy = "classifier"
    """The class of an input is the `classifier`'s (paper), or that of classifier and prototypes, `both`."""
    mirrored: bool = False
    """After training, judge an image by itself and its mirror image: better by little, for twice the work."""
    compile: Compile = "auto"
    """torch.compile: `auto` on a GPU where the run is long enough to pay for it, `on` or `off`."""
    seed: int = 0
    """Of everything random."""

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch < 2:
            raise ValueError("epochs must be at least 1 and batch at least 2")
        if not 0 <= self.gate_from <= 1:
            raise ValueError("gate_from must be from 0 to 1")
        for name in ("lr", "tau_inst", "tau_subgraph"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0")
        for name in NOT_NEGATIVE:
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be at least 0")
        if not 0 <= self.momentum < 1:
            raise ValueError("momentum must be at least 0 and less than 1")
        if not 0 <= self.seed < SEEDS:
            raise ValueError(f"seed must be from 0 to {SEEDS - 1:,}")
        if self.size < 8:
            raise ValueError("size must be at least 8")
