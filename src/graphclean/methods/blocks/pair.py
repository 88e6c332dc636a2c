"""Two networks of weights of their own that see the same batches, and so err on different samples."""

from typing import NamedTuple

from torch import Tensor, nn

from ...training.method import TrainerContext
from .small_loss import smallest_losses
from .supervised import given_losses, labeled_mean

PAIRED = ("main", "second")
"""The first one predicts: papers report each network alone."""
WEIGHTS = {"ce": 1.0, "ce_second": 1.0}
"""Of their losses, which share no weights: each network learns as if it were alone."""
Masks = tuple[Tensor, Tensor]
"""Of a batch, by either network."""


class Pair(NamedTuple):
    """What each network makes of the same samples."""

    losses: tuple[Tensor, Tensor]
    """−log p of every given label."""
    disagree: Tensor
    """Whether they predict different classes."""


def new_pair(run: TrainerContext) -> nn.ModuleDict:
    """The two networks."""
    return nn.ModuleDict({name: run.new_network() for name in PAIRED})


def see(run: TrainerContext, inputs: Tensor, given: Tensor) -> Pair:
    """Both networks on one weak view of each input."""
    view = run.weak_view(inputs)
    first, second = (run.forward(view, network=name)[0].logits for name in PAIRED)
    losses = given_losses(first, given), given_losses(second, given)
    return Pair(losses, first.argmax(1) != second.argmax(1))


def keep_small(pair: Pair, candidates: Tensor, count: Tensor) -> Masks:
    """The `count` candidates that each network fits best."""
    first, second = (smallest_losses(losses, candidates, count) for losses in pair.losses)
    return first, second


def teach(pair: Pair, kept: Masks) -> dict[str, Tensor]:
    """The loss of each network, on what the other one keeps."""
    return dict(zip(WEIGHTS, map(labeled_mean, pair.losses, reversed(kept)), strict=True))
