"""Training inputs by index with one interface: on the device if they fit, otherwise streamed by threads."""

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import torch
from torch import Tensor

from ..data.photo_stream import PhotoStream
from ..distributed.group import Group
from ..errors import InputError

AHEAD = 4
"""Number of batches read ahead."""
ROOM = 0.5
"""Fraction of a GPU's free memory that inputs may use."""

LOADED = 1024
"""Photos copied to a GPU at a time."""


class Inputs(Protocol):
    """A set of N inputs of the same shape and type, delivered in batches on one device."""

    shape: tuple[int, ...]
    """Shape of one input."""
    device: torch.device

    def __len__(self) -> int: ...

    def stream(self, batches: Tensor) -> Iterator[Tensor]:
        """Yield the inputs selected by each row of `batches` (indices), in order."""


class ResidentInputs:
    """Inputs kept on the device in their original form (uint8 images, float features) and indexed there."""

    def __init__(self, inputs: Tensor) -> None:
        self.inputs = inputs
        self.shape = tuple(inputs.shape[1:])
        self.device = inputs.device

    def __len__(self) -> int:
        return len(self.inputs)

    def stream(self, batches: Tensor) -> Iterator[Tensor]:
        """Gather each batch on the device, without a copy from the host."""
        for indices in batches:
            yield self.inputs[indices]


class StreamedInputs:
    """Inputs on the host, read by threads a few batches ahead."""

    def __init__(
        self, read: Callable[[Tensor], Tensor], n: int, shape: tuple[int, ...], device: torch.device
    ) -> None:
        self.read = read
        """Returns the inputs at the given indices; called from several threads at once."""
        self.n = n
        self.shape = shape
        self.device = device

    def __len__(self) -> int:
        return self.n

    def stream(self, batches: Tensor) -> Iterator[Tensor]:
        """Yield batches in order, reading ahead."""
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
    """A subset of other inputs, in the given order of rows."""

    def __init__(self, inputs: Inputs, rows: Tensor) -> None:
        self.inputs, self.rows = inputs, rows
        self.shape, self.device = inputs.shape, inputs.device

    def __len__(self) -> int:
        return len(self.rows)

    def stream(self, batches: Tensor) -> Iterator[Tensor]:
        """Yield the inputs selected by each row of `batches`, as positions in the subset."""
        return self.inputs.stream(self.rows[batches])


class SharedInputs:
    """The training set of a group: each process reads its part of a batch, if reading takes time."""

    def __init__(self, inputs: Inputs, group: Group) -> None:
        self.inputs, self.group = inputs, group

    def stream(self, batches: Tensor) -> Iterator[Tensor]:
        """Yield whole batches."""
        group, size = self.group, batches.shape[1]
        read = not isinstance(self.inputs, ResidentInputs)  # of the leading process, if memory differs
        if not group.several or not group.agree(read):
            yield from self.inputs.stream(batches)
            return
        for part in self.inputs.stream(batches[:, group.part(size)]):
            yield group.gather(part, size)


def check_division(size: int, group: Group) -> None:
    """Refuse more processes than a batch has samples."""
    if size < group.size:
        raise InputError(
            f"a batch of {size} samples can't be divided among {group.size} processes; start fewer, or raise "
            "training.batch_size"
        )


def place_inputs(inputs: Tensor | PhotoStream, device: torch.device) -> Inputs:
    """Place inputs on the device if that leaves enough memory for training, else stream from the host.

    Photos that are streamed go to a GPU as a whole if they are on the disk and fit; otherwise batch by batch.
    """
    size, shape = inputs.nbytes, tuple(inputs.shape[1:])
    fits = device.type != "cuda" or size <= ROOM * torch.cuda.mem_get_info(device)[0]
    if isinstance(inputs, PhotoStream):
        if device.type != "cpu" and fits and inputs.packed:
            return ResidentInputs(_load(inputs, device))
        return StreamedInputs(inputs.read, len(inputs), shape, device)
    if not fits:
        return StreamedInputs(lambda rows: inputs[rows], len(inputs), shape, device)
    return ResidentInputs(inputs.to(device))


def _load(photos: PhotoStream, device: torch.device) -> Tensor:
    """All photos on the device, copied in pieces."""
    whole = torch.empty(photos.shape, dtype=torch.uint8, device=device)
    for rows in torch.arange(len(photos)).split(LOADED):  # type: ignore[no-untyped-call]
        whole[rows[0] : rows[-1] + 1] = photos.read(rows)
    return whole


def shuffled_batches(n: int, size: int, generator: torch.Generator, even: Tensor) -> Tensor:
    """All n samples in random order in rows of `size`; remaining places repeat samples from the front.

    Samples in the mask `even` are spread evenly: rows contain nearly the same number of them. If n ≥ `size`,
    no row contains a sample twice, which the losses would treat as two samples of the same class.
    """
    order = torch.randperm(n, generator=generator, device=generator.device)
    order = order[even[order].to(torch.uint8).argsort(descending=True, stable=True)]
    count = -(-n // size)
    # Without the shift, each filler would land in the row that already contains it.
    again = order.roll(-1) if n % count == 0 else order
    filled = torch.cat([order, again.repeat(count * size // n)])
    return filled[: count * size].view(size, count).T


def ordered_batches(n: int, size: int, device: torch.device) -> Tensor:
    """0 to n − 1 in rows of `size`; the last row is padded with n − 1."""
    count = -(-n // size)
    return torch.arange(count * size, device=device).clamp_(max=n - 1).view(count, size)
