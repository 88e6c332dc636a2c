"""Exponential moving averages of network weights, which replace the weights for evaluation."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from .method import join_state, split_state


class WeightAverage:
    """The moving average of all weights and batch statistics of some networks.

    For evaluation the average temporarily replaces the weights in place, so that compiled code serves both.
    Running statistics of batch norm are averaged like weights, so that they match the averaged weights;
    counters are copied.
    """

    def __init__(self, networks: nn.Module, decay: float) -> None:
        self.decay = decay
        self.updates = 0
        self._live = {name: value.detach() for name, value in networks.state_dict(keep_vars=True).items()}
        self._average = {name: value.clone() for name, value in self._live.items()}

    def restart(self) -> None:
        """Reset the average to the current weights."""
        self.updates = 0
        _copy(self._average, self._live)

    @torch.no_grad()
    def update(self) -> None:
        """Include the weights after a step; a faster decay at first lets the initial weights fade."""
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
        """Use the average as weights within the context."""
        weights = {name: value.clone() for name, value in self._live.items()}
        _copy(self._live, self._average)
        try:
            yield
        finally:
            _copy(self._live, weights)

    def settle(self) -> None:
        """Permanently replace the networks' weights with the average."""
        _copy(self._live, self._average)

    def save_state(self) -> dict[str, Tensor]:
        """The state for a checkpoint."""
        return {**self._average, "updates": torch.tensor(self.updates)}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore the state from `save_state`."""
        self.updates = int(state["updates"])
        _copy(self._average, {name: state[name] for name in self._average})


class NetworkAverages(dict[str, WeightAverage]):
    """An average for each trained network, by name; none at decay 0."""

    def __init__(self, networks: Mapping[str, nn.Module], decay: float) -> None:
        super().__init__((name, WeightAverage(networks[name], decay)) for name in networks if decay)
        self._networks = networks

    def of_step(self) -> list[WeightAverage]:
        """The averages of the networks that have gradients in this step; call it before the update."""
        return [average for name, average in self.items() if _learns(self._networks[name])]

    @contextmanager
    def judging(self) -> Iterator[None]:
        """Use the averages as weights of all networks within the context."""
        with ExitStack() as stack:
            for average in self.values():
                stack.enter_context(average.judging())
            yield

    def save_state(self) -> dict[str, Tensor]:
        """The state for a checkpoint."""
        return join_state({name: average.save_state() for name, average in self.items()})

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore the state from `save_state`."""
        parts = split_state(state)
        for name, average in self.items():
            average.load_state(parts[name])


def _learns(network: nn.Module) -> bool:
    return any(weights.grad is not None for weights in network.parameters())


@torch.no_grad()
def _copy(to: dict[str, Tensor], source: dict[str, Tensor]) -> None:
    if to:
        torch._foreach_copy_(list(to.values()), [source[name] for name in to])
