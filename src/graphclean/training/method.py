"""The seam for methods: what a method decides, and what the trainer lends it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ..config import GraphSettings, TrainingSettings
from ..ood.detector import Detector
from .batches import Inputs
from .networks import Network, Output

MethodKind = Literal["baseline", "loss", "selection", "relabel", "semi-supervised", "contrastive", "ood"]


@dataclass(frozen=True)
class MethodInfo:
    """What a reader wants to know of a method before running it."""

    name: str
    title: str
    kind: MethodKind
    paper: str = ""
    networks: int = 1
    cost: float = 1.0
    """Training passes a sample and epoch; an evaluation pass counts a third."""
    needs: tuple[str, ...] = ()
    """Beyond inputs and labels: `images`, `verdicts` (on features), `noise rate`, `trusted samples`."""
    follows: str = ""
    """Where it follows its paper, and where its release."""


@dataclass(frozen=True)
class Batch:
    """The samples of one step."""

    index: Tensor
    """Rows of the training set."""
    inputs: Tensor
    """uint8 images or float features, not yet augmented."""
    given: Tensor
    """Given labels, −1 where there is none."""


class Selection(Protocol):
    """What a method takes the training samples for."""

    @property
    def labels(self) -> Tensor: ...
    @property
    def selected(self) -> Tensor: ...


@dataclass(frozen=True)
class Selected:
    """The plain `Selection`: a label for every sample, and whether it counts as clean."""

    labels: Tensor
    selected: Tensor


@dataclass(frozen=True)
class Prior:
    """Verdicts on the features, from before training."""

    posterior: Tensor
    """(N, K + 1): the probability of every class, then of OOD."""
    selected: Tensor


@dataclass(frozen=True)
class Trusted:
    """Samples whose labels are known to be right; none of them is trained on."""

    inputs: Inputs
    labels: Tensor


class TrainerContext(Protocol):
    """What the trainer lends a method."""

    @property
    def epoch(self) -> int:
        """The number of epochs that are done."""

    @property
    def part(self) -> int:
        """The number of parts of this epoch that are done."""

    @property
    def step(self) -> int:
        """The number of steps of this part of the epoch that are done."""

    @property
    def batch_size(self) -> int: ...
    @property
    def given(self) -> Tensor:
        """The given labels, or what people said instead; −1 where there is none."""

    @property
    def decided(self) -> Tensor | None:
        """What people found samples to be, a class or OOD (`n_classes`), −1 elsewhere; None: no review."""

    @property
    def n_classes(self) -> int: ...
    @property
    def device(self) -> torch.device: ...
    @property
    def settings(self) -> TrainingSettings: ...
    @property
    def generator(self) -> torch.Generator: ...
    @property
    def compiled(self) -> bool:
        """Whether networks are compiled, so that few shapes are better than many."""

    @property
    def prior(self) -> Prior | None: ...
    @property
    def trusted(self) -> Trusted | None:
        """For a method that needs them."""

    def new_network(self) -> Network:
        """A network as the settings ask for, with weights of its own."""

    def shuffle(self, even: Tensor | None = None) -> Tensor:
        """All samples in a random order as batches (steps, size); those of the mask `even` spread evenly."""

    def embed(
        self,
        network: str | Callable[[Tensor], Output] | None = None,
        *,
        weak: bool = False,
        features: bool = False,
        inputs: Inputs | None = None,
        rows: Tensor | None = None,
    ) -> Output:
        """z and logits of the whole training set in evaluation mode; costs a pass, so ask only if needed.

        `network` names one of the method's networks, or is any function from a batch to an output; the
        default is the network that predicts. The pass takes the inputs as they are, or a `weak` view of each,
        of other `inputs` such as trusted ones if given, or only of some `rows`, which costs less. The trunk's
        `features` are returned only on request, as they are large.
        """

    def views(self, inputs: Tensor, *, strong: bool = True, smallest: float = 1) -> Tensor:
        """A weak and then a strong view of each input, as one tensor of twice the length.

        Without `strong` both are weak: for a method that says when strong views would harm. With `smallest`
        under 1 they show parts of an image, of at least that fraction, in place of shifted ones.
        """

    def weak_view(self, inputs: Tensor) -> Tensor:
        """One weakly augmented view of each input."""

    def forward(self, *batches: Tensor, network: str = "main") -> Sequence[Output]:
        """The network on each batch in turn, at the run's precision.

        A network that no loss of a step depends on stays as it is: neither weight decay nor momentum move it.
        """


class Method(nn.Module):
    """Decisions and losses; everything else is the trainer's.

    Networks go into `networks`, per-sample stores and scalars are buffers, own parameters are parameters:
    what is registered moves with the method and is saved by the trainer, so that an interrupted run
    continues exactly. State of another form goes through `save_state` and `load_state`.
    """

    info: ClassVar[MethodInfo]
    Settings: ClassVar[type[Any]]
    """A frozen dataclass: the method's own settings, each with its reason."""

    detector: ClassVar[str] = "prototypes"
    """What tells OOD inputs by its network, unless the user asks for another."""

    networks: nn.ModuleDict
    heads: nn.ModuleDict
    """Layers of its own beside the networks, trained as these are: at the same rate, which changes alike."""
    weights: Mapping[str, float]
    """The weight of each loss in the total, by name."""

    def __init__(self, settings: Any = None, graph: GraphSettings | None = None) -> None:
        """`graph` is for methods that build one."""
        super().__init__()
        self.settings = settings if settings is not None else self.Settings()
        self.graph = graph if graph is not None else GraphSettings()
        self.heads = nn.ModuleDict()

    def setup(self, run: TrainerContext) -> None:
        """Declare networks, stores and the weights of the losses; called once, before anything else."""
        self.networks = nn.ModuleDict({"main": run.new_network()})
        self.weights = {"ce": 1.0}

    def optimizers(self) -> dict[str, Optimizer]:
        """Optimizers of parameters that belong to no network; the trainer steps and saves them."""
        return {}

    def parts(self, epoch: int) -> int:  # noqa: ARG002
        """How many parts an epoch has, each begun by `begin_epoch`."""
        return 1

    def phases(self, epochs: int) -> tuple[int, ...]:  # noqa: ARG002
        """The first epoch of each phase, of which there may be several.

        In each the learning rate runs its whole course. Momentum and the average of weights begin again with
        a phase, after its `begin_epoch`, which may give the networks other weights.
        """
        return (0,)

    def begin_epoch(self, run: TrainerContext) -> tuple[Tensor, ...]:
        """Decide what is trained on; returns one or more streams of sample indices (steps, size)."""
        return (run.shuffle(),)

    def losses(self, run: TrainerContext, *batches: Any) -> dict[str, Tensor]:
        """The losses of a step by name, given a `Batch` of each stream."""
        raise NotImplementedError

    def after_step(self, run: TrainerContext, *batches: Any) -> None:
        """After the update: moving averages, rows back into stores."""

    def selection(self, run: TrainerContext) -> Selection:
        """What the samples are taken for now; the given labels unless the method decides otherwise."""
        return Selected(run.given.clamp(min=0), run.given >= 0)

    def fit_predictor(self, run: TrainerContext) -> None:
        """After the last epoch, fit what predicts beside the weights of the networks, if anything."""

    def conclude(self, run: TrainerContext, z: Tensor, logits: Tensor) -> Selection:  # noqa: ARG002
        """The same after the last epoch, given one more pass over the training set."""
        return self.selection(run)

    def predictor(self) -> nn.Module:
        """The network that predicts: one of `networks`, or an `Ensemble` or `LayerHeads` of them."""
        return self.networks["main"]

    def equip(self, detector: Detector) -> None:
        """Give a detector, before it is fitted, what only the method has, such as a head of its own."""

    def metrics(self, run: TrainerContext) -> dict[str, Any]:  # noqa: ARG002
        """Numbers of the epoch that only this method has."""
        return {}

    def notes(self, run: TrainerContext) -> list[str]:  # noqa: ARG002
        """What a user should know about how training went."""
        return []

    def describe(self) -> dict[str, Any]:
        """All settings by name, as a checkpoint must agree with them."""
        own = {"method.name": self.info.name}
        own |= {f"method.{name}": value for name, value in asdict(self.settings).items()}
        return own | {f"graph.{name}": value for name, value in asdict(self.graph).items()}

    def save_state(self) -> dict[str, Tensor]:
        """Everything that the next step depends on."""
        return dict(self.state_dict())

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Continue from what `save_state` returned."""
        self.load_state_dict(state)


def hold_decided(selection: Selection, decided: Tensor | None, n_classes: int) -> Selection:
    """A selection in which every sample that people decided on is what they said."""
    if decided is None:
        return selection
    held, sure = decided >= 0, (decided >= 0) & (decided < n_classes)
    labels = torch.where(sure, decided, selection.labels)
    return Selected(labels, torch.where(held, sure, selection.selected))


def join_state(parts: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Tensors of several parts as one dictionary of `part.name`."""
    return {f"{part}.{name}": value for part, values in parts.items() for name, value in values.items()}


def split_state(state: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """The reverse, by the first part of each name."""
    parts: dict[str, dict[str, Tensor]] = {}
    for full, value in state.items():
        part, _, name = full.partition(".")
        parts.setdefault(part, {})[name] = value
    return parts
