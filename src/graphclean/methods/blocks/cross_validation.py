"""Noisy cross-validation: labels that a network predicts without having learned from them are chosen."""

import torch
from torch import Generator, Tensor, nn

from .noise_rate import rate_of_agreement
from .small_loss import smallest_losses
from .supervised import given_losses, labeled_mean

MOST_REMOVED = 2.0
"""Samples that are removed for each one that is chosen, at most."""


class CrossValidation(nn.Module):
    """What is chosen of a set, what is still left, and in which half of it each sample is.

    Two networks learn from what is chosen and from a half of what is left each, and judge the other half.
    """

    chosen: Tensor
    left: Tensor
    second_half: Tensor
    agrees: Tensor
    loss: Tensor
    best: Tensor
    rate: Tensor

    def __init__(self, given: Tensor, n_classes: int, rate: float | None) -> None:
        """Without a noise `rate` it is estimated when samples are first chosen."""
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
        """Divide what is left at random; nothing is known of it yet."""
        keys = torch.rand(len(self.left), generator=generator, device=self.left.device)
        self.second_half = smallest_losses(keys, self.left, self.left.sum() // 2)
        self.agrees, self.best = torch.zeros_like(self.agrees), torch.full_like(self.best, -1)

    def members(self) -> tuple[Tensor, Tensor]:
        """What each network learns from."""
        return self.chosen | (self.left & ~self.second_half), self.chosen | (self.left & self.second_half)

    def judge(self, logits: tuple[Tensor, Tensor], given: Tensor, *, last: bool) -> None:
        """Compare predictions (N, K) of both networks with labels of the half that each did not see.

        Of the epochs since `halve` that counts which predicts most labels, or with `last` the last one.
        """
        for place, half in enumerate((self.second_half, ~self.second_half)):
            held, agrees = self.left & half, logits[place].argmax(1) == given
            agreement = labeled_mean(agrees.float(), held)
            better = held & ((agreement > self.best[place]) | last)
            self.agrees = torch.where(better, agrees, self.agrees)
            self.loss = torch.where(better, given_losses(logits[place], given), self.loss)
            self.best[place] = torch.maximum(agreement, self.best[place])

    def choose(self, *, remove: bool) -> None:
        """Choose what was predicted as labeled; `remove` a part of the rest, by the largest losses."""
        agreeing = self.left & self.agrees
        if self.estimated and not bool(self.chosen.any()):
            self.rate = rate_of_agreement(labeled_mean(agreeing.float(), self.left), self.n_classes)
        self.chosen, self.left = self.chosen | agreeing, self.left & ~agreeing
        if remove:
            ratio = (self.rate / (1 - self.rate)).clamp(max=MOST_REMOVED)
            self.left = self.left & ~smallest_losses(-self.loss, self.left, (ratio * agreeing.sum()).floor())


def draw_batches(members: Tensor, steps: int, size: int, generator: Generator) -> Tensor:
    """Indices of a mask's samples in (steps, size), one random order after another; 0 if there are none."""
    places = members.nonzero().squeeze(1)
    if not len(places):
        return torch.zeros(steps, size, dtype=torch.long, device=members.device)
    rounds = -(-steps * size // len(places))
    keys = torch.rand(rounds, len(places), generator=generator, device=members.device)
    return places[keys.argsort(1)].flatten()[: steps * size].view(steps, size)
