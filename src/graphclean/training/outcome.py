"""What training tells: of an epoch, at its end, and why it ended early."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor, nn

from .method import Selection


class DivergedError(RuntimeError):
    """A loss is NaN or infinite; the message says which. The last checkpoint is from before.

    Or the network itself is, where no loss was yet.
    """


class InterruptedRun(Exception):  # noqa: N818 - not an error
    """Training stopped because it was asked to."""

    def __init__(self, epoch: int, *, saved: bool) -> None:
        super().__init__(f"interrupted in epoch {epoch}")
        self.epoch = epoch
        self.saved = saved
        """There is a checkpoint to continue from."""


@dataclass(frozen=True)
class EpochReport:
    """What one epoch did."""

    epoch: int
    """Counted from 1."""
    losses: dict[str, float]
    loss: float
    """Their weighted sum."""
    lr: float
    selected: int
    relabeled: int
    """Selected under another label than the given one."""
    empty_classes: int
    """Classes of which nothing was selected."""
    seconds: float
    """Those of the start without labels are the first epoch's."""
    clean_seconds: float
    """Of them, for what the method did before the first step."""
    own: dict[str, Any] = field(default_factory=dict)
    """Metrics that only this method has."""

    def to_dict(self) -> dict[str, Any]:
        """All of it on one level."""
        values = asdict(self)
        return {**values.pop("own"), **values}


@dataclass(frozen=True)
class Trained:
    """The result: the last epoch's network, and one more pass of it over the training set."""

    network: nn.Module
    z: Tensor
    logits: Tensor
    selection: Selection
    prototypes: Tensor
    notes: list[str]


OnEpoch = Callable[[EpochReport, Selection], None]
OnSelection = Callable[[int, Selection], None]
OnStart = Callable[[int, int], None]
"""Told how many epochs of the start without labels are done, and of how many."""
