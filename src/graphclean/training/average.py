"""An exponential moving average of weights, by which networks judge while others of them are trained."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from .method import join_state, split_state


class WeightAverage:
    """The average of all weights and batch statistics of some networks over the steps so far.

    A judging pass puts the average where the weights are, and the weights back after it: code that was
    compiled for a network serves both. Running statistics of batch norm are averaged as the weights are, so
    that they stay those of about the same steps; what counts is copied.
    """

    def __init__(self, networks: nn.Module, decay: float) -> None:
        self.decay = decay
        self.updates = 0
        self._live = {name: value.detach() for name, value in networks.state_dict(keep_vars=True).items()}
        self._average = {name: value.clone() for name, value in self._live.items()}

    def restart(self) -> None:
        """Forget all steps: the average is the weights as they are now."""
        self.updates = 0
        _copy(self._average, self._live)

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights after a step; the first ones decay faster, so that first weights don't last."""
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        self.updates += 1
        averaged = [name for name, value in self._live.items() if value.is_floating_point()]
        torch._foreach_lerp_(
            [self._average[name] for name in averaged], [self._live[name] for name in averaged], 1 - decay
        )
        counted = self._live.keys() - set(averaged)
        _copy({name: self._average[name] for name in counted}, self._live)

    @contextmanager
    def judging(self) -> Iterator[None]:
        """Within it the networks have the average."""
        weights = {name: value.clone() for name, value in self._live.items()}
        _copy(self._live, self._average)
        try:
            yield
        finally:
            _copy(self._live, weights)

    def settle(self) -> None:
        """Give the networks the average for good."""
        _copy(self._live, self._average)

    def save_state(self) -> dict[str, Tensor]:
        """What a checkpoint holds of it."""
        return {**self._average, "updates": torch.tensor(self.updates)}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Continue from there."""
        self.updates = int(state["updates"])
        _copy(self._average, {name: state[name] for name in self._average})


class NetworkAverages(dict[str, WeightAverage]):
    """An average of every network that is trained, by name; at decay 0 none."""

    def __init__(self, networks: Mapping[str, nn.Module], decay: float) -> None:
        super().__init__((name, WeightAverage(networks[name], decay)) for name in networks if decay)
        self._networks = networks

    def of_step(self) -> list[WeightAverage]:
        """Those of the networks that this step has gradients for, before it is made."""
        return [average for name, average in self.items() if _learns(self._networks[name])]

    @contextmanager
    def judging(self) -> Iterator[None]:
        """Within it all networks have their averages."""
        with ExitStack() as stack:
            for average in self.values():
                stack.enter_context(average.judging())
            yield

    def save_state(self) -> dict[str, Tensor]:
        """What a checkpoint holds of them."""
        return join_state({name: average.save_state() for name, average in self.items()})

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Continue from there."""
        parts = split_state(state)
        for name, average in self.items():
            average.load_state(parts[name])


def _learns(network: nn.Module) -> bool:
    return any(weights.grad is not None for weights in network.parameters())


@torch.no_grad()
def _copy(to: dict[str, Tensor], source: dict[str, Tensor]) -> None:
    if to:
        torch._foreach_copy_(list(to.values()), [source[name] for name in to])
