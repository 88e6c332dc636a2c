"""The interface between methods and the trainer: what a method decides, and what the trainer provides."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..config import GraphSettings, TrainingSettings
from ..distributed.group import Group
from ..ood.detector import Detector
from .batches import Inputs
from .networks import Network, Output

MethodKind = Literal["baseline", "loss", "selection", "relabel", "semi-supervised", "contrastive", "ood"]


@dataclass(frozen=True)
class MethodInfo:
    """Facts about a method for users who choose one."""

    name: str
    title: str
    kind: MethodKind
    paper: str = ""
    networks: int = 1
    cost: float = 1.0
    """Training passes per sample and epoch; an evaluation pass counts as a third."""
    needs: tuple[str, ...] = ()
    """Beyond inputs and labels: `images`, `verdicts` (on features), `noise rate`, `trusted samples`."""
    follows: str = ""
    """Where it follows its paper, and where the authors' release."""


@dataclass(frozen=True)
class Batch:
    """The samples of one step."""

    index: Tensor
    """Their rows in the training set."""
    inputs: Tensor
    """uint8 images or float features, not yet augmented."""
    given: Tensor
    """Current labels, as in `TrainerContext.given`."""


class Selection(Protocol):
    """A label for every training sample, and a mask of the samples that the method considers clean."""

    @property
    def labels(self) -> Tensor: ...
    @property
    def selected(self) -> Tensor: ...


@dataclass(frozen=True)
class Selected:
    """A plain `Selection`."""

    labels: Tensor
    selected: Tensor


@dataclass(frozen=True)
class Prior:
    """Verdicts inferred from the features before training."""

    posterior: Tensor
    """(N, K + 1): the probability of each class, then of OOD."""
    selected: Tensor
    """Mask of the samples selected as clean."""


@dataclass(frozen=True)
class Trusted:
    """Samples whose labels are known to be correct; they are never trained on."""

    inputs: Inputs
    labels: Tensor


class TrainerContext(Protocol):
    """What the trainer provides to a method."""

    @property
    def epoch(self) -> int:
        """Number of completed epochs."""

    @property
    def part(self) -> int:
        """Number of completed parts of this epoch."""

    @property
    def step(self) -> int:
        """Number of completed steps of this part of the epoch."""

    @property
    def batch_size(self) -> int: ...
    @property
    def given(self) -> Tensor:
        """The current labels: the given ones, replaced by human decisions; −1 if none."""

    @property
    def decided(self) -> Tensor | None:
        """Human decisions: a class, or OOD (`n_classes`); −1 if not reviewed. None without a review."""

    @property
    def n_classes(self) -> int: ...
    @property
    def device(self) -> torch.device: ...
    @property
    def group(self) -> Group:
        """The processes of the run, which all make the same decisions."""

    @property
    def settings(self) -> TrainingSettings: ...
    @property
    def generator(self) -> torch.Generator: ...
    @property
    def compiled(self) -> bool:
        """Whether networks are compiled, which favors few distinct shapes."""

    @property
    def prior(self) -> Prior | None: ...
    @property
    def trusted(self) -> Trusted | None:
        """Trusted samples, for a method that needs them."""

    def new_network(self) -> Network:
        """A network as configured in the settings, with its own initial weights."""

    def shuffle(self, even: Tensor | None = None) -> Tensor:
        """All samples in random order as batches (steps, size); those of the mask `even` spread evenly."""

    def embed(
        self,
        network: str | Callable[[Tensor], Output] | None = None,
        *,
        weak: bool = False,
        features: bool = False,
        inputs: Inputs | None = None,
        rows: Tensor | None = None,
    ) -> Output:
        """z and logits of the whole training set in evaluation mode; costs a pass, so call it only if needed.

        `network` is the name of one of the method's networks, or any function from a batch to an output; the
        default is the predictor. The pass can use a `weak` view of each input instead of the input itself,
        other `inputs` such as trusted samples, or only some `rows`, which is cheaper. The trunk's `features`
        are large, and returned only on request.
        """

    def views(self, inputs: Tensor, *, strong: bool = True, smallest: float = 1) -> Tensor:
        """A weak and a strong view of each input, concatenated into one tensor: all weak views first.

        With `strong=False` both views are weak, for methods that strong augmentation would harm. With
        `smallest` below 1 images are randomly cropped to at least that fraction of their area and resized,
        rather than shifted.
        """

    def weak_view(self, inputs: Tensor) -> Tensor:
        """One weakly augmented view of each input."""

    def forward(self, *batches: Tensor, network: str = "main") -> Sequence[Output]:
        """Apply a network to each batch separately, at the precision of the run.

        A network that no loss of a step depends on is not updated at all, not even by weight decay or
        momentum.
        """


class Method(nn.Module):
    """Base class of methods: decides what to train on and defines the losses; the trainer does the rest.

    The trainer calls `setup` once, `begin_epoch` before every part of an epoch, `losses` and `after_step` in
    every step, and `fit_predictor` and `conclude` after the last epoch.

    Networks belong in `networks`, per-sample stores and scalars in buffers, and the method's own trainable
    tensors in parameters. Everything registered moves with the method and is saved by the trainer, so that an
    interrupted run resumes exactly. Other state goes through `save_state` and `load_state`.

    In a group of processes, each calls all of this with the same whole batches and passes. That needs no line
    in a method whose random numbers come from the trainer's generator.
    """

    info: ClassVar[MethodInfo]
    Settings: ClassVar[type[Any]]
    """A frozen dataclass of the method's settings, each documented with its reason."""

    detector: ClassVar[str] = "prototypes"
    """Name of the default OOD detector for networks trained by this method."""

    networks: nn.ModuleDict
    heads: nn.ModuleDict
    """Additional layers outside the networks, trained by the same optimizer and learning rate schedule."""
    weights: Mapping[str, float]
    """The weight of each loss in the total, by name."""

    def __init__(self, settings: Any = None, graph: GraphSettings | None = None) -> None:
        """`graph` holds the settings of the graph, for methods that build one."""
        super().__init__()
        self.settings = settings if settings is not None else self.Settings()
        self.graph = graph if graph is not None else GraphSettings()
        self.heads = nn.ModuleDict()

    def setup(self, run: TrainerContext) -> None:
        """Create networks and stores, and set the loss weights; called once, before anything else."""
        self.networks = nn.ModuleDict({"main": run.new_network()})
        self.weights = {"ce": 1.0}

    def optimizers(self) -> dict[str, Optimizer]:
        """Optimizers of parameters that belong to no network; the trainer steps and saves them."""
        return {}

    def parts(self, epoch: int) -> int:  # noqa: ARG002
        """Number of parts of an epoch; `begin_epoch` is called before each."""
        return 1

    def phases(self, epochs: int) -> tuple[int, ...]:  # noqa: ARG002
        """The first epoch of each phase of training.

        Every phase runs through the whole learning rate schedule. Momentum and the weight averages are reset
        at the start of a phase, after its `begin_epoch`, which may replace the networks' weights.
        """
        return (0,)

    def begin_epoch(self, run: TrainerContext) -> tuple[Tensor, ...]:
        """Decide what to train on; returns one or more streams of sample indices (steps, size)."""
        return (run.shuffle(),)

    def losses(self, run: TrainerContext, *batches: Any) -> dict[str, Tensor]:
        """The losses of a step by name, given one `Batch` per stream."""
        raise NotImplementedError

    def after_step(self, run: TrainerContext, *batches: Any) -> None:
        """Called after the update, e.g. to update moving averages or per-sample stores."""

    def selection(self, run: TrainerContext) -> Selection:
        """The current selection; by default the given labels, with all labeled samples selected."""
        return Selected(run.given.clamp(min=0), run.given >= 0)

    def fit_predictor(self, run: TrainerContext) -> None:
        """After the last epoch, fit whatever the predictor uses beyond the trained networks, if anything."""

    def conclude(self, run: TrainerContext, z: Tensor, logits: Tensor) -> Selection:  # noqa: ARG002
        """The final selection, given the outputs of one more pass over the training set."""
        return self.selection(run)

    def predictor(self) -> nn.Module:
        """The network that predicts: one of `networks`, or an `Ensemble` or `LayerHeads` made from them."""
        return self.networks["main"]

    def equip(self, detector: Detector) -> None:
        """Before a detector is fitted, give it what only the method has, such as a head trained for it."""

    def metrics(self, run: TrainerContext) -> dict[str, Any]:  # noqa: ARG002
        """Metrics of the epoch specific to this method."""
        return {}

    def notes(self, run: TrainerContext) -> list[str]:  # noqa: ARG002
        """What a user should know about how training went."""
        return []

    def describe(self) -> dict[str, Any]:
        """All settings by name; a run can only be resumed with the same ones."""
        own = {"method.name": self.info.name}
        own |= {f"method.{name}": value for name, value in asdict(self.settings).items()}
        return own | {f"graph.{name}": value for name, value in asdict(self.graph).items()}

    def save_state(self) -> dict[str, Tensor]:
        """All state that the next step depends on."""
        return dict(self.state_dict())

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore what `save_state` returned."""
        self.load_state_dict(state)


def hold_decided(selection: Selection, decided: Tensor | None, n_classes: int) -> Selection:
    """Apply human decisions to a selection: samples with a decided class are selected, OOD is excluded."""
    if decided is None:
        return selection
    held, sure = decided >= 0, (decided >= 0) & (decided < n_classes)
    labels = torch.where(sure, decided, selection.labels)
    return Selected(labels, torch.where(held, sure, selection.selected))


def join_state(parts: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Flatten the tensors of several parts into one dictionary with keys `part.name`."""
    return {f"{part}.{name}": value for part, values in parts.items() for name, value in values.items()}


def split_state(state: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """The inverse of `join_state`: group by the first component of each name."""
    parts: dict[str, dict[str, Tensor]] = {}
    for full, value in state.items():
        part, _, name = full.partition(".")
        parts.setdefault(part, {})[name] = value
    return parts
