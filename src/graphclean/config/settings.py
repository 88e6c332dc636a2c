"""Every setting that a user can choose, by section, each with its reason."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from numbers import Integral
from typing import Any, Literal, SupportsIndex

from ..errors import check_choice

Search = Literal["exact", "approx"]
Classifier = Literal["auto", "knn", "knn+class-means"]
Scaling = Literal["auto", "standardized", "raw"]
Symmetrize = Literal["max", "sum"]
Accept = Literal["uniform", "argmax", "auto"]
Start = Literal["memory", "given"]
Auto = Literal["auto"]
LccEdges = Literal["any", "mutual"]
StrongAugmentation = Literal["augmix", "augmix-last-chain", "autoaugment", "off"]
Compile = Literal["auto", "on", "off"]
PhotoStorage = Literal["auto", "memory", "disk", "encoded", "decode"]
Trunk = Literal["he", "release"]
Normalization = Literal["own", "imagenet"]
SEEDS = 2**32
"""Seeds must be below this, which every generator accepts."""
PLAIN = (
    "method.name=cross-entropy", "training.strong_augmentation=off", "training.prototype_ensemble=false",
    "training.flip_tta=false",
)  # fmt: skip
"""Plain cross-entropy, to be combined with any other settings."""
PER_DATA_SET = ("graph.k", "graph.eta", "method.warmup_epochs")
"""Chosen by the paper for each data set and noise, and left open by the presets `paper` and `release`."""
NOT_NEGATIVE = (
    "min_lr", "lr_warmup_epochs", "weight_decay", "crop_padding", "crop_size",
    "feature_noise_std", "self_supervised_epochs",
)  # fmt: skip
ESTIMATED = ("k", "eta", "accept")
"""Settings of the graph whose value `auto` requires leave-one-out evidence."""
GRAPH_CHOICES = {"symmetrize": Symmetrize, "start": Start, "accept": Accept, "lcc_edges": LccEdges}


@dataclass(frozen=True)
class CleaningSettings:
    """Settings of `clean_embeddings` and `graphclean clean`."""

    k: tuple[int, ...] = (10, 20, 50, 100)
    """Neighbors per sample: the value under which the given labels are most likely is chosen."""
    scaling: Scaling = "auto"
    """Features `standardized` or `raw`; `auto`: whichever makes the given labels more likely."""
    search: Search = "exact"
    """`exact`, or `approx` for very large sets: nearest groups only, with measured recall."""
    near_duplicates: bool = True
    """Near-duplicates count as one sample, as exact copies do; otherwise they vote for each other."""
    classifier: Classifier = "auto"
    """`knn`, `knn+class-means` (k-NN with class means), or `auto`: chosen on held-out labels."""
    certainty: float = 0.6
    """Probability that a given label must have to be kept, or to be doubted; `uncertain` in between."""
    eta: float = 0.8
    """Probability of its class that a sample needs to be selected as clean."""
    signal: float = 5.0
    """Standard errors by which neighbors must agree beyond chance; below, nothing is relabeled."""
    strength: float = 0.6
    """Mean probability that proposals need, or the features count as too weak to relabel; and the fraction of
    proposals on which both halves of the labels must agree is at least its square.
    """

    def __post_init__(self) -> None:
        whole = not isinstance(self.k, Integral) and all(isinstance(k, Integral) for k in self.k)
        if not whole or not self.k or min(self.k) < 1:
            raise ValueError("k must be whole numbers of at least 1, such as (10, 20)")
        check_choice("scaling", self.scaling, Scaling)
        check_choice("search", self.search, Search)
        check_choice("classifier", self.classifier, Classifier)
        if not 0.5 <= self.certainty < 1:
            raise ValueError("certainty must be from 0.5 to under 1")
        if not 0 < self.eta < 1:
            raise ValueError("eta must be between 0 and 1")
        if not 0 <= self.strength <= 1:
            raise ValueError("strength must be from 0 to 1")
        if not self.signal >= 0:
            raise ValueError("signal must be a number of at least 0")


@dataclass(frozen=True)
class GraphSettings:
    """The settings of the graph step. The defaults follow the authors' release; the paper's are named."""

    k: int | Auto = 30
    """Neighbors per sample; 30 suits CIFAR-10, 200 CIFAR-100, where a neighborhood holds fewer samples per
    class.

    `auto`: from 30 to 200, before every epoch, as the noise estimated from leave-one-out evidence requires,
    but at most a fifth of an average class.
    """
    gamma: float = 3.0
    """Exponent of the similarity in Eq. 1; the paper has 1, the release 3."""
    symmetrize: Symmetrize = "sum"
    """`sum`: mutual edges count twice (release); `max`: an undirected graph (paper)."""
    alpha: float = 0.5
    """Weight of the neighbors in Eq. 2, against a sample's own label."""
    class_balance: bool = True
    """Divide each class's labels by their sum before propagation (release)."""
    leave_one_out: bool = False
    """Judge a sample by the other samples, without its own label; off: Eq. 2 as published."""
    class_dependent_noise: bool = False
    """Correct the evidence for class-dependent noise, as when many trucks are called cars."""
    start: Start = "memory"
    """What is propagated: last epoch's ŷ where selected and the ensemble's p elsewhere (`memory`), or the
    labels as `given`, which carry no mistakes of earlier epochs over, but nothing learned since, either.
    """
    accept: Accept = "uniform"
    """A given label is accepted if its evidence exceeds 1/K (`uniform`, Eq. 3), or only as the `argmax`.

    `auto`: Eq. 3, except where a class that is often mistaken for the label is more likely, by noise
    estimated from leave-one-out evidence before every epoch. Under random noise this equals Eq. 3.
    """
    eta: float | Auto = 0.8
    """Confidence η that a pseudo-label other than the given one must exceed (Eq. 3).

    `auto`: its probability must exceed 0.8, by noise and OOD rate estimated before every epoch.
    """
    lcc_edges: LccEdges = "mutual"
    """Edges that connect a component: `mutual` neighbors (release), or `any` (paper)."""
    ensemble: float = 0.6
    """Weight of the past in the temporal ensemble of logits."""
    correct: bool = True
    """Noise correction (Eq. 2); without it Y itself is judged, and nothing is propagated."""
    confidence: bool = True
    """Confidence selection (Eq. 3); without it every node counts as confident, with the same label as
    otherwise.
    """
    geometry: bool = True
    """Geometry selection (Eq. 4); without it all confident nodes are selected."""
    tolerance: float = 1e-6
    """Relative error allowed in the solution of Eq. 2."""

    def __post_init__(self) -> None:
        for name, kind in GRAPH_CHOICES.items():
            check_choice(name, getattr(self, name), kind)
        if self.k != "auto" and (not isinstance(self.k, SupportsIndex) or self.k < 1):
            raise ValueError("k must be auto, or a whole number of at least 1")
        if self.eta != "auto" and not 0 <= self.eta <= 1:
            raise ValueError("eta must be from 0 to 1, or auto")
        if not self.gamma > 0:
            raise ValueError("gamma must be above 0")
        if self.class_dependent_noise and not self.correct:
            raise ValueError("class_dependent_noise needs correct: without it no label is propagated")
        for name in ESTIMATED:
            if getattr(self, name) == "auto" and not self.correct:
                raise ValueError(f"{name}=auto needs correct: without it no label is propagated")
        if not 0 < self.tolerance < 1:
            raise ValueError("tolerance must be between 0 and 1")
        for name in ("alpha", "ensemble"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 0 and less than 1")


@dataclass(frozen=True)
class TrainingSettings:
    """Training settings shared by all methods. The defaults are those for CIFAR-10."""

    network: str = "preact-resnet18"
    """A name from `training.networks`, or `timm:NAME` (extra timm)."""
    pretrained: bool = True
    """Start a timm network from its published weights; other networks have none."""
    normalization: Normalization = "own"
    """Scale the pixels for a timm network as its `own` published weights need, or by the statistics of
    `imagenet`, as papers do that train it from scratch; other networks have one scaling.
    """
    image_size: int = 64
    """Side in pixels of the center squares that photos are resized to; arrays of images keep their size."""
    photo_storage: PhotoStorage = "auto"
    """Where these squares are during training: in `memory`; packed on the `disk`, in the user's cache; or
    made again in every epoch, from files in memory (`encoded`) or on the disk (`decode`). `auto`: the first
    of these that has room.
    """
    epochs: int = 300
    """The last epoch is the result; none is chosen on a test set."""
    batch_size: int = 512
    """Samples per step; the contrastive losses see twice as many views."""
    lr: float = 0.15
    """Highest learning rate, as in the paper."""
    min_lr: float = 2e-4
    """Learning rate at the end of the cosine schedule."""
    lr_warmup_epochs: float = 1.0
    """Epochs of linear increase at the start: without it lr 0.15 can diverge in the first steps."""
    momentum: float = 0.9
    """Momentum of SGD, without Nesterov."""
    weight_decay: float = 5e-4
    """As in the paper."""
    crop_padding: int = 4
    """Zero pixels around an image before a random crop of its size; 0: no random crops."""
    crop_scale: float = 1.0
    """Smallest area, as a fraction of the image, of random resized crops, as is usual for photos (0.08 to
    0.4). 1: crops that are not resized, but shifted, by `crop_padding`.
    """
    crop_size: int = 0
    """Side in pixels of the crops to train on; predictions use the center of that size. 0: all of the image.
    """
    horizontal_flip: bool = True
    """Flip images horizontally at random; off for digits and letters."""
    strong_augmentation: StrongAugmentation = "augmix"
    """Augmentation of the strong view, in the gradient step only: `augmix` as published; `augmix-last-chain`,
    the slip in the authors' release; `autoaugment`, the CIFAR-10 policy, which others found to help where
    most labels are wrong; or `off`.
    """
    feature_noise_std: float = 0.0
    """Standard deviation of Gaussian noise on both views of features; images are augmented instead."""
    self_supervised_epochs: int = 0
    """Epochs of self-supervised training (Eq. 5 alone) before all others: they help where most labels are
    wrong; with little or class-dependent noise, others found that they don't.
    """
    self_supervised_crop: float = 0.2
    """Smallest area, as a fraction of the image, of the resized crops in these epochs, as in SimCLR. 1: crops
    as in all other epochs, for digits and letters.
    """
    ema_decay: float = 0.0
    """Decay of an exponential moving average of the weights, used to judge the training set and to predict.
    It averages about 1 / (1 − decay) steps: less noisy than the last weights, and lagging behind them. 0:
    off.
    """
    trunk: Trunk = "he"
    """Variant of preact-resnet18: `he`, with identity shortcuts and a final BN-ReLU, or `release`, the
    authors'.
    """
    prototype_ensemble: bool = False
    """Average the predictions of classifier and class prototypes; off: the classifier alone (paper)."""
    flip_tta: bool = False
    """Test-time augmentation: average over an image and its mirror image; slightly better at twice the cost.
    """
    compile: Compile = "auto"
    """torch.compile: `on`, `off`, or `auto`: on a GPU if the run is long enough to pay for it."""
    seed: int = 0
    """Seed of all randomness."""

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch_size < 2:
            raise ValueError("epochs must be at least 1 and batch_size at least 2")
        if not self.lr > 0:
            raise ValueError("lr must be above 0")
        for name in NOT_NEGATIVE:
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be at least 0")
        for name in ("momentum", "ema_decay"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 0 and less than 1")
        for name in ("crop_scale", "self_supervised_crop"):
            if not 0 < getattr(self, name) <= 1:
                raise ValueError(f"{name} must be above 0 and at most 1")
        check_choice("photo_storage", self.photo_storage, PhotoStorage)
        if not 0 <= self.seed < SEEDS:
            raise ValueError(f"seed must be from 0 to {SEEDS - 1:,}")
        if self.image_size < 8:
            raise ValueError("image_size must be at least 8")


@dataclass(frozen=True)
class OodSettings:
    """Settings of the OOD detector."""

    detector: str = "auto"
    """For trained networks, one of `graphclean detectors`; `auto` is the one that suits the method."""
    reject: float = 0.05
    """Fraction of good inputs that the detector may reject; 5 % is common, less accepts more OOD."""
    threshold: str = "auto"
    """Inputs with a higher score are rejected (for prototypes 1 − ζ of Eq. 9).

    `auto`: set by `reject`, given good inputs that were not trained on; else between known and OOD training
    samples. `conformal`: set by `reject` also without, on the samples that were selected as clean; as a
    network has learned these, it rejects more of new ones.
    """

    def __post_init__(self) -> None:
        if not 0 < self.reject < 1:
            raise ValueError("reject must be between 0 and 1")
        if self.threshold in ("auto", "conformal"):
            return
        try:
            value = float(self.threshold)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise ValueError("threshold must be auto, conformal or a number")


@dataclass(frozen=True)
class MethodChoice:
    """The name of a method, and its own settings, which it checks when it is loaded."""

    name: str = "ngc"
    """One of `graphclean methods`."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Plain values by name, as in `[method]` of a preset; missing ones have their defaults."""


@dataclass(frozen=True)
class Config:
    """Every setting of a run, by section."""

    cleaning: CleaningSettings = field(default_factory=CleaningSettings)
    """Verdicts."""
    graph: GraphSettings = field(default_factory=GraphSettings)
    """The graph step of training, every epoch."""
    training: TrainingSettings = field(default_factory=TrainingSettings)
    """Training."""
    method: MethodChoice = field(default_factory=MethodChoice)
    """The method of training."""
    ood: OodSettings = field(default_factory=OodSettings)
    """The detector of a training run."""

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        tree = asdict(self)
        return tree | {"method": {"name": self.method.name, **self.method.settings}}
