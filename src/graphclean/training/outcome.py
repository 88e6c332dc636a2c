"""Results of training: epoch reports, the final result, and the exceptions that end it early."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from .method import Selection


class DivergedError(RuntimeError):
    """A loss, weight or output of the network is NaN or infinite, as named in the message.

    The last checkpoint is from before.
    """


def check_finite(where: str, totals: Mapping[str, float], weights: Iterable[Tensor]) -> None:
    """Raise DivergedError if the sum of a loss or a weight is not finite."""
    bad = [name for name, total in totals.items() if not math.isfinite(total)]
    if bad:
        raise DivergedError(f"the loss is no longer a number in {where}: {', '.join(bad)}")
    if not bool(torch.stack([each.isfinite().all() for each in weights]).all()):
        raise DivergedError(f"the network's weights are no longer numbers in {where}")


class InterruptedRun(Exception):  # noqa: N818 - not an error
    """Training was stopped on request."""

    def __init__(self, epoch: int, *, saved: bool) -> None:
        super().__init__(f"interrupted in epoch {epoch}")
        self.epoch = epoch
        self.saved = saved
        """Whether there is a checkpoint to continue from."""


@dataclass(frozen=True)
class EpochReport:
    """The results of one epoch."""

    epoch: int
    """Counted from 1."""
    losses: dict[str, float]
    loss: float
    """The weighted sum of the losses."""
    lr: float
    selected: int
    relabeled: int
    """Number of samples selected under a label other than the given one."""
    empty_classes: int
    """Number of classes without selected samples."""
    seconds: float
    """The first epoch includes the self-supervised epochs."""
    clean_seconds: float
    """The part of `seconds` spent in `begin_epoch`."""
    own: dict[str, Any] = field(default_factory=dict)
    """Metrics specific to the method."""

    def to_dict(self) -> dict[str, Any]:
        """All values in one flat dictionary."""
        values = asdict(self)
        return {**values.pop("own"), **values}


@dataclass(frozen=True)
class Trained:
    """The last epoch's network, and its outputs in one more pass over the training set."""

    network: nn.Module
    z: Tensor
    logits: Tensor
    selection: Selection
    prototypes: Tensor
    notes: list[str]


OnEpoch = Callable[[EpochReport, Selection], None]
OnSelection = Callable[[int, Selection], None]
OnStart = Callable[[int, int], None]
"""Called with the number of completed self-supervised epochs and their total."""
