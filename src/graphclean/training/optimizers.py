"""The optimizers of a run: SGD for the networks, and those that the method brings for what is its own."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..config import TrainingSettings
from ..distributed.group import Group
from .method import Method


class Optimizers(dict[str, Optimizer]):
    """Every optimizer by name; `main` trains the method's networks and heads, on the schedule."""

    def __init__(self, method: Method, settings: TrainingSettings, group: Group, *, fused: bool) -> None:
        learned = [*method.networks.parameters(), *method.heads.parameters()]
        trained = [weights for weights in learned if weights.requires_grad]
        self.sgd = torch.optim.SGD(
            trained,
            lr=settings.lr,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
            fused=fused,
        )
        for weights in trained:
            # A step may leave weights without gradients, but the fused optimizer needs all buffers or none.
            self.sgd.state[weights]["momentum_buffer"] = torch.zeros_like(weights)
        super().__init__({"main": self.sgd, **method.optimizers()})
        self.group = group

    @property
    def lr(self) -> float:
        """The learning rate on the schedule."""
        rate: float = self.sgd.param_groups[0]["lr"]
        return rate

    def set_lr(self, lr: float) -> None:
        """Set the learning rate on the schedule."""
        for group in self.sgd.param_groups:
            group["lr"] = lr

    def average_gradients(self) -> None:
        """In a group, make the gradients those of the whole batch; see `Group.join_rows`."""
        self.group.average(list(self._gradients()))

    def step(self) -> None:
        """Update all weights that have gradients, and drop these."""
        for optimizer in self.values():
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def forget(self) -> None:
        """Reset the momentum, as before the first step."""
        for state in self.sgd.state.values():
            state["momentum_buffer"].zero_()

    def _gradients(self) -> Iterator[Tensor]:
        for optimizer in self.values():
            for group in optimizer.param_groups:
                yield from (weights.grad for weights in group["params"] if weights.grad is not None)
