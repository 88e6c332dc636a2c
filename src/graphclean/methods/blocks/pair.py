"""Two networks with separate weights that see the same batches, and so err on different samples."""

from typing import NamedTuple

from torch import Tensor, nn

from ...training.method import TrainerContext
from .small_loss import smallest_losses
from .supervised import given_losses, labeled_mean

PAIRED = ("main", "second")
"""The first one predicts: papers report each network alone."""
WEIGHTS = {"ce": 1.0, "ce_second": 1.0}
"""Weights of their losses. The networks share no weights, so each learns independently."""
Masks = tuple[Tensor, Tensor]
"""A mask of a batch for each network."""


class Pair(NamedTuple):
    """The outputs of both networks for the same samples."""

    losses: tuple[Tensor, Tensor]
    """−log p of each given label."""
    disagree: Tensor
    """Whether the networks predict different classes."""


def new_pair(run: TrainerContext) -> nn.ModuleDict:
    """Create the two networks."""
    return nn.ModuleDict({name: run.new_network() for name in PAIRED})


def see(run: TrainerContext, inputs: Tensor, given: Tensor) -> Pair:
    """Run both networks on one weak view of each input."""
    view = run.weak_view(inputs)
    first, second = (run.forward(view, network=name)[0].logits for name in PAIRED)
    losses = given_losses(first, given), given_losses(second, given)
    return Pair(losses, first.argmax(1) != second.argmax(1))


def keep_small(pair: Pair, candidates: Tensor, count: Tensor) -> Masks:
    """The `count` candidates with the smallest losses, for each network."""
    first, second = (smallest_losses(losses, candidates, count) for losses in pair.losses)
    return first, second


def teach(pair: Pair, kept: Masks) -> dict[str, Tensor]:
    """The loss of each network on the samples that the other one keeps."""
    return dict(zip(WEIGHTS, map(labeled_mean, pair.losses, reversed(kept)), strict=True))
