"""Labels drawn from what each sample is believed to be, in place of a cleaning of the network's own graph."""

from typing import Any

import torch
from torch import Tensor

from ..errors import InputError
from ..graph import Cleaned

TOLERANCE = 1e-3
"""Beliefs of the same data may differ by so much when they are found again, by the order of sums."""


class DrawnLabels:
    """Stands in for `GraphCleaner` where good features have been judged before training.

    Every step draws a class, or none, for every sample from its beliefs: over the epochs the losses see each
    sample as what it may be, as often as it is likely. A head that cleaned by its own z would instead grow
    around the labels it was first told.
    """

    def __init__(self, beliefs: Tensor, seed: int) -> None:
        """`beliefs` is (N, K + 1): P(class) for each class, then P(none of them)."""
        self.beliefs = beliefs
        self.seed = seed
        self.epoch = 0
        self._drawn: tuple[Tensor, Tensor] | None = None

    def step(self, _z: Tensor, _logits: Tensor) -> Cleaned:
        """The next draw; it depends on the seed and the epoch alone."""
        generator = torch.Generator(self.beliefs.device).manual_seed(1_000_003 * self.seed + self.epoch)
        drawn = torch.multinomial(self.beliefs, 1, generator=generator).squeeze(1)
        selected = drawn < self.beliefs.shape[1] - 1
        labels = torch.where(selected, drawn, self.beliefs[:, :-1].argmax(1))
        self._drawn = labels, selected
        self.epoch += 1
        return Cleaned(selected, labels, self.beliefs[:, :-1], selected, torch.zeros_like(labels))

    def state_dict(self) -> dict[str, Any]:
        """As of `GraphCleaner`: all that the next step depends on, and the last decision."""
        state: dict[str, Any] = {"epoch": self.epoch, "beliefs": self.beliefs}
        if self._drawn is not None:
            state["labels"], state["selected"] = self._drawn
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take up where `state_dict` left off; refuses the state of other beliefs."""
        saved = state["beliefs"].to(self.beliefs.device)
        if saved.shape != self.beliefs.shape or not torch.allclose(saved, self.beliefs, atol=TOLERANCE):
            raise InputError(
                "the checkpoint was made with other verdicts on the features; resume with the same audit "
                "settings, or start anew with --overwrite"
            )
        self.beliefs = saved
        self.epoch = int(state["epoch"])
        if "labels" in state:
            self._drawn = state["labels"].to(saved.device), state["selected"].to(saved.device)
