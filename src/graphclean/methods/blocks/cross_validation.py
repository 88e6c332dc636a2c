"""Noisy cross-validation: select labels that a network predicts without having been trained on them."""

import torch
from torch import Generator, Tensor, nn

from .noise_rate import rate_of_agreement
from .small_loss import smallest_losses
from .supervised import given_losses, labeled_mean

MOST_REMOVED = 2.0
"""Maximum number of samples removed per selected one."""


class CrossValidation(nn.Module):
    """The chosen and the remaining samples, and which half each remaining sample is in.

    Each of two networks trains on the chosen samples and one half of the remaining ones, and judges the other
    half.
    """

    chosen: Tensor
    left: Tensor
    second_half: Tensor
    agrees: Tensor
    loss: Tensor
    best: Tensor
    rate: Tensor

    def __init__(self, given: Tensor, n_classes: int, rate: float | None) -> None:
        """If `rate`, the noise rate, is None, it is estimated when samples are first chosen."""
        super().__init__()
        self.n_classes, self.estimated = n_classes, rate is None
        labeled, scalar = given >= 0, torch.zeros((), device=given.device)
        self.register_buffer("chosen", torch.zeros_like(labeled))
        self.register_buffer("left", labeled)
        self.register_buffer("second_half", torch.zeros_like(labeled))
        self.register_buffer("agrees", torch.zeros_like(labeled))
        self.register_buffer("loss", scalar.repeat(len(given)))
        self.register_buffer("best", scalar.repeat(2))
        self.register_buffer("rate", scalar + (rate or 0.0))

    def halve(self, generator: Generator) -> None:
        """Split the remaining samples at random, and reset what is known about them."""
        keys = torch.rand(len(self.left), generator=generator, device=self.left.device)
        self.second_half = smallest_losses(keys, self.left, self.left.sum() // 2)
        self.agrees, self.best = torch.zeros_like(self.agrees), torch.full_like(self.best, -1)

    def members(self) -> tuple[Tensor, Tensor]:
        """Masks of the samples that each network trains on."""
        return self.chosen | (self.left & ~self.second_half), self.chosen | (self.left & self.second_half)

    def judge(self, logits: tuple[Tensor, Tensor], given: Tensor, *, last: bool) -> None:
        """Compare predictions (N, K) of both networks with the labels of the half held out from each.

        The epoch since `halve` that predicts most labels counts, or the last one if `last`.
        """
        for place, half in enumerate((self.second_half, ~self.second_half)):
            held, agrees = self.left & half, logits[place].argmax(1) == given
            agreement = labeled_mean(agrees.float(), held)
            better = held & ((agreement > self.best[place]) | last)
            self.agrees = torch.where(better, agrees, self.agrees)
            self.loss = torch.where(better, given_losses(logits[place], given), self.loss)
            self.best[place] = torch.maximum(agreement, self.best[place])

    def choose(self, *, remove: bool) -> None:
        """Choose samples predicted as labeled; with `remove`, drop some others by the largest losses."""
        agreeing = self.left & self.agrees
        if self.estimated and not bool(self.chosen.any()):
            self.rate = rate_of_agreement(labeled_mean(agreeing.float(), self.left), self.n_classes)
        self.chosen, self.left = self.chosen | agreeing, self.left & ~agreeing
        if remove:
            ratio = (self.rate / (1 - self.rate)).clamp(max=MOST_REMOVED)
            self.left = self.left & ~smallest_losses(-self.loss, self.left, (ratio * agreeing.sum()).floor())


def draw_batches(members: Tensor, steps: int, size: int, generator: Generator) -> Tensor:
    """Indices (steps, size) of a mask's samples, in one random order after another; 0 if there are none."""
    places = members.nonzero().squeeze(1)
    if not len(places):
        return torch.zeros(steps, size, dtype=torch.long, device=members.device)
    rounds = -(-steps * size // len(places))
    keys = torch.rand(rounds, len(places), generator=generator, device=members.device)
    return places[keys.argsort(1)].flatten()[: steps * size].view(steps, size)
