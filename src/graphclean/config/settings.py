"""Every setting a user may choose, by section, each with its reason."""

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
Trunk = Literal["he", "release"]
SEEDS = 2**32
"""Seeds are less than this: what every generator takes."""
PLAIN = (
    "method.name=cross-entropy", "training.strong_augmentation=off", "training.prototype_ensemble=false",
    "training.flip_tta=false",
)  # fmt: skip
"""What plain cross-entropy is, on top of any other settings."""
PER_DATA_SET = ("graph.k", "graph.eta", "method.warmup_epochs")
"""What the paper chose for each data set and noise, and presets of the paper's readings leave open."""
NOT_NEGATIVE = (
    "min_lr", "lr_warmup_epochs", "weight_decay", "crop_padding", "feature_noise_std",
    "self_supervised_epochs",
)  # fmt: skip
ESTIMATED = ("k", "eta", "accept")
"""Of the graph's settings those whose `auto` rests on leave-one-out evidence."""
GRAPH_CHOICES = {"symmetrize": Symmetrize, "start": Start, "accept": Accept, "lcc_edges": LccEdges}


@dataclass(frozen=True)
class CleaningSettings:
    """Settings of `clean_embeddings` and `graphclean clean`."""

    k: tuple[int, ...] = (10, 20, 50, 100)
    """Neighbors a sample: of these, the one under which the given labels are most likely is taken."""
    scaling: Scaling = "auto"
    """Features `standardized` or `raw`, as they are; `auto`: as the given labels are most likely."""
    search: Search = "exact"
    """`exact`, or `approx` for very large sets: faiss, with its recall measured (extra `ann`)."""
    near_duplicates: bool = True
    """Near-duplicates count as one sample, as exact copies do; else they vote for each other."""
    classifier: Classifier = "auto"
    """`knn` alone, `knn+class-means`: k-NN together with class means, or `auto`: as held-out labels say."""
    certainty: float = 0.6
    """How sure it must be that a given label is right, or that it is not; `uncertain` in between."""
    eta: float = 0.8
    """Probability of its class that a sample needs to enter the selected clean set."""
    signal: float = 5.0
    """Standard errors by which neighbors must agree beyond chance; under it nothing is relabeled."""
    strength: float = 0.6
    """How sure proposals must be on average, or the features are too weak to relabel by; and as often as the
    square of it, both halves of the labels must make the same ones.
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
    """Neighbors a sample; 30 suits CIFAR-10, 200 CIFAR-100: with more classes a class is spread wider.

    `auto`: from 30 to 200, before every epoch as many as the noise takes that is estimated from leave-one-out
    evidence, but at most a fifth of an average class.
    """
    gamma: float = 3.0
    """Exponent of the similarity in Eq. 1; the paper says 1, the release uses 3."""
    symmetrize: Symmetrize = "sum"
    """`sum`: mutual edges count twice (release); `max`: an undirected graph (paper)."""
    alpha: float = 0.5
    """Share of the neighbors in Eq. 2, against a sample's own label."""
    class_balance: bool = True
    """Divide each class's labels by their sum before they spread (release)."""
    leave_one_out: bool = False
    """Judge a sample by the others alone, without its own label; off: Eq. 2 as it is."""
    class_dependent_noise: bool = False
    """Correct the evidence for class-dependent noise, as when many trucks are called cars."""
    start: Start = "memory"
    """What spreads: last epoch's ŷ where selected, else the ensemble's p (`memory`), or labels as `given`.

    Labels as given bring no mistakes of earlier epochs along, and nothing that was learned since either.
    """
    accept: Accept = "uniform"
    """A given label stands where it is over 1/K, the `uniform` share (Eq. 3), or only as the `argmax`.

    `auto`: as Eq. 3, but not where a class that is often mistaken for it is likelier, by noise estimated
    from leave-one-out evidence before every epoch. Random noise leaves Eq. 3 as it is.
    """
    eta: float | Auto = 0.8
    """Confidence η that a pseudo-label other than the given one must pass (Eq. 3).

    `auto`: it must be right with a probability over 0.8, by noise and OOD estimated before every epoch.
    """
    lcc_edges: LccEdges = "mutual"
    """Edges that connect a component: `mutual` neighbors (release), or `any` (paper)."""
    ensemble: float = 0.6
    """Weight of the past in the temporal ensemble of logits."""
    correct: bool = True
    """Noise correction (Eq. 2); without it Y itself is judged, and no label spreads."""
    confidence: bool = True
    """Confidence selection (Eq. 3); without it every node is confident, under the label it would have."""
    geometry: bool = True
    """Geometry selection (Eq. 4); without it all that is confident is selected."""
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
            raise ValueError("class_dependent_noise needs correct: without it no label spreads")
        for name in ESTIMATED:
            if getattr(self, name) == "auto" and not self.correct:
                raise ValueError(f"{name}=auto needs correct: without it no label spreads")
        if not 0 < self.tolerance < 1:
            raise ValueError("tolerance must be between 0 and 1")
        for name in ("alpha", "ensemble"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 0 and less than 1")


@dataclass(frozen=True)
class TrainingSettings:
    """Settings of training that every method shares. The defaults are CIFAR-10's."""

    network: str = "preact-resnet18"
    """A name from `training.networks`, or `timm:NAME` (extra timm)."""
    pretrained: bool = True
    """Start a network of timm from its published weights; the others have none."""
    image_size: int = 64
    """Pixels a side of the center squares that photos become; arrays of images keep their own size."""
    epochs: int = 300
    """The last epoch is the result; nothing is picked on a test set."""
    batch_size: int = 512
    """Samples a step; the contrastive losses see twice as many views."""
    lr: float = 0.15
    """Highest learning rate, as in the paper."""
    min_lr: float = 2e-4
    """Where the cosine ends."""
    lr_warmup_epochs: float = 1.0
    """Epochs of linear increase at the start: without it lr 0.15 can diverge in the first steps."""
    momentum: float = 0.9
    """Of SGD, without Nesterov."""
    weight_decay: float = 5e-4
    """As in the paper."""
    crop_padding: int = 4
    """Zero pixels around an image before it is cropped back at random; 0 turns that off."""
    horizontal_flip: bool = True
    """Mirror images at random; off for digits and letters."""
    strong_augmentation: StrongAugmentation = "augmix"
    """Of the strong view, in the gradient step alone: `augmix` as published, `augmix-last-chain`, the slip in
    the authors' release, `autoaugment`, CIFAR-10's policy, which others found to help where most labels are
    wrong, or `off`.
    """
    feature_noise_std: float = 0.0
    """Deviation of normal noise on the inputs of both views, for features; images have their own ways."""
    self_supervised_epochs: int = 0
    """Epochs without labels before all others, by Eq. 5 alone: features of their own help where most labels
    are wrong; where few are, or those of similar classes are confused, others found that they don't.
    """
    self_supervised_crop: float = 0.2
    """Smallest fraction of an image that a view of these epochs shows, scaled up, as in SimCLR: its parts are
    to be known as its own. 1: crops as in all other epochs, for digits and letters.
    """
    ema_decay: float = 0.0
    """Judge, and predict in the end, by an exponential moving average of the weights, which is over about
    1 / (1 − decay) steps: less noisy than the last step's weights, and that much behind them. 0: by these.
    """
    trunk: Trunk = "he"
    """Of preact-resnet18: `he`, identity shortcuts and a last BN-ReLU, or `release`, the authors' own."""
    prototype_ensemble: bool = False
    """Average the classifier with the class prototypes; off: the classifier alone (paper)."""
    flip_tta: bool = False
    """Test-time augmentation: average over an image and its mirror image; slightly better, for twice the
    work.
    """
    compile: Compile = "auto"
    """torch.compile: `auto` on a GPU where the run is long enough to pay for it, `on` or `off`."""
    seed: int = 0
    """Of everything random."""

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
        if not 0 < self.self_supervised_crop <= 1:
            raise ValueError("self_supervised_crop must be above 0 and at most 1")
        if not 0 <= self.seed < SEEDS:
            raise ValueError(f"seed must be from 0 to {SEEDS - 1:,}")
        if self.image_size < 8:
            raise ValueError("image_size must be at least 8")


@dataclass(frozen=True)
class OodSettings:
    """Settings of the detector that a run leaves."""

    detector: str = "auto"
    """Of a trained network, one of `graphclean detectors`; `auto` takes the one that suits the method."""
    reject: float = 0.05
    """Share of good inputs that may be lost to the detector; 5 % is usual, less lets more OOD pass."""
    threshold: str = "auto"
    """Inputs that score above it are rejected (for prototypes 1 − ζ of Eq. 9); `auto`: as `reject` has it."""

    def __post_init__(self) -> None:
        if not 0 < self.reject < 1:
            raise ValueError("reject must be between 0 and 1")
        if self.threshold == "auto":
            return
        try:
            value = float(self.threshold)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise ValueError("threshold must be auto or a number")


@dataclass(frozen=True)
class MethodChoice:
    """What trains: the name of a method, and its own settings, which it checks when it is loaded."""

    name: str = "ngc"
    """One of `graphclean methods`."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Plain values by name, as in `[method]` of a preset; those that are left out have their defaults."""


@dataclass(frozen=True)
class Config:
    """Every setting of a run, by section. What each means stands with its section."""

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
