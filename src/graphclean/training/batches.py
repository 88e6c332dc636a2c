"""Training inputs by index: on the device where they fit, from workers where they don't. One interface."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import torch
from torch import Tensor

AHEAD = 4
"""Batches that are being read while one is used."""
ROOM = 0.5
"""Share of a GPU's free memory that inputs may take."""


class Inputs(Protocol):
    """A set of N inputs, all of one shape and type, that comes in batches on one device."""

    shape: tuple[int, ...]
    """Of one input."""
    device: torch.device

    def __len__(self) -> int: ...

    def stream(self, batches: Tensor) -> Iterator[Tensor]:
        """The inputs that each row of `batches` (indices) names, in order."""


class ResidentInputs:
    """Inputs that live on the device as they are (uint8 images, float features) and are indexed there."""

    def __init__(self, inputs: Tensor) -> None:
        self.inputs = inputs
        self.shape = tuple(inputs.shape[1:])
        self.device = inputs.device

    def __len__(self) -> int:
        return len(self.inputs)

    def stream(self, batches: Tensor) -> Iterator[Tensor]:
        """One gather a batch, no copy from the host."""
        for indices in batches:
            yield self.inputs[indices]


class StreamedInputs:
    """Inputs that stay on the host, read batch by batch by threads that keep a few batches ahead."""

    def __init__(
        self, read: Callable[[Tensor], Tensor], n: int, shape: tuple[int, ...], device: torch.device
    ) -> None:
        self.read = read
        """The inputs that some indices name; called from several threads at once."""
        self.n = n
        self.shape = shape
        self.device = device

    def __len__(self) -> int:
        return self.n

    def stream(self, batches: Tensor) -> Iterator[Tensor]:
        """Batches in order, each read ahead of its use."""
        with ThreadPoolExecutor(AHEAD) as pool:
            waiting: deque[Future[Tensor]] = deque()
            for indices in batches.cpu():
                waiting.append(pool.submit(self._read, indices))
                if len(waiting) > AHEAD:
                    yield self._send(waiting.popleft())
            while waiting:
                yield self._send(waiting.popleft())

    def _read(self, indices: Tensor) -> Tensor:
        batch = self.read(indices)
        return batch.pin_memory() if self.device.type == "cuda" else batch

    def _send(self, batch: Future[Tensor]) -> Tensor:
        return batch.result().to(self.device, non_blocking=True)


class SomeInputs:
    """Some rows of other inputs, in the order in which they are named."""

    def __init__(self, inputs: Inputs, rows: Tensor) -> None:
        self.inputs, self.rows = inputs, rows
        self.shape, self.device = inputs.shape, inputs.device

    def __len__(self) -> int:
        return len(self.rows)

    def stream(self, batches: Tensor) -> Iterator[Tensor]:
        """As of all inputs."""
        return self.inputs.stream(self.rows[batches])


def place_inputs(inputs: Tensor, device: torch.device) -> Inputs:
    """On the device where they leave enough of it to training, else streamed from the host's memory."""
    if device.type == "cuda" and inputs.nbytes > ROOM * torch.cuda.mem_get_info(device)[0]:
        return StreamedInputs(lambda rows: inputs[rows], len(inputs), tuple(inputs.shape[1:]), device)
    return ResidentInputs(inputs.to(device))


def shuffled_batches(n: int, size: int, generator: torch.Generator, even: Tensor) -> Tensor:
    """A random order of all n, in rows of `size`; the last places are filled up from the front of the order.

    Samples where the mask `even` is set are dealt out evenly: all rows have the same number, give or take.
    With n ≥ `size` no row holds a sample twice, which the losses would take for two of a kind.
    """
    order = torch.randperm(n, generator=generator, device=generator.device)
    order = order[even[order].to(torch.uint8).argsort(descending=True, stable=True)]
    count = -(-n // size)
    # Dealt on from where the order began, each of these would come to the row that it is in.
    again = order.roll(-1) if n % count == 0 else order
    filled = torch.cat([order, again.repeat(count * size // n)])
    return filled[: count * size].view(size, count).T


def ordered_batches(n: int, size: int, device: torch.device) -> Tensor:
    """0 to n − 1 in rows of `size`; the last row is filled up with n − 1."""
    count = -(-n // size)
    return torch.arange(count * size, device=device).clamp_(max=n - 1).view(count, size)
