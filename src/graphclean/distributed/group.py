"""A group of processes that hold the same state and divide the work: collectives with exact gradients.

Every process makes the same decisions from the same numbers. What costs time, networks above all, is divided
by rows: each process computes its part, and all receive the whole.
"""

import itertools
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import pad

from ..errors import RunStopped

T = TypeVar("T")
GONE = re.compile("peer|connect|timed? ?out|reset|pipe|socket|remote", re.IGNORECASE)
"""What errors of the backends say if another process is gone."""
_turns = itertools.count()

FAILED = "graphclean-failed"
"""Key under which a process that fails leaves its reason to the others."""


class LostProcessError(RunStopped):
    """Another process of the run has ended, so that nothing can be exchanged any more."""

    def __init__(self, message: str) -> None:
        super().__init__(message, 1)


class Followed(Exception):  # noqa: N818 - not an error
    """This process has done its part; the leading one concludes the job."""


@dataclass(frozen=True)
class Group:
    """The processes of a run as seen by one of them."""

    rank: int = 0
    size: int = 1
    forced: bool = False
    """Whether a single process exchanges with itself, too, to measure what that costs."""
    first_here: bool = True
    """Whether this is the first process of its machine."""

    @property
    def several(self) -> bool:
        """Whether work is divided at all."""
        return self.size > 1 or self.forced

    @property
    def leads(self) -> bool:
        """Whether this process writes files, prints and reacts to signals; all others follow it."""
        return self.rank == 0

    def part(self, n: int) -> slice:
        """This process's part of n rows; parts differ in length by at most one."""
        return slice(self.rank * n // self.size, (self.rank + 1) * n // self.size)

    def gather(self, rows: Tensor, n: int) -> Tensor:
        """All n rows, given this process's `part` of them; without gradients."""
        if not self.several:
            return rows
        longest = -(-n // self.size)
        padded = pad(rows.detach(), (0, 0) * (rows.ndim - 1) + (0, longest - len(rows)))
        found = self._all_gather(padded)
        ends = [(rank + 1) * n // self.size - rank * n // self.size for rank in range(self.size)]
        return torch.cat([part[:end] for part, end in zip(found, ends, strict=True)])

    def join_rows(self, rows: Tensor, n: int) -> Tensor:
        """`gather` with exact gradients, for a loss that every process computes from all n rows.

        Each process computes the whole loss, but backpropagates only through its own rows. Their gradient is
        multiplied by the number of processes, so that the mean of all processes' gradients (`average`) is
        that of the loss; a parameter that every process applies to all rows then needs no exception.
        """
        if not self.several:
            return rows
        joined: Tensor = _JoinRows.apply(rows, self, n)  # type: ignore[no-untyped-call]
        return joined

    def exchange(self, value: Tensor) -> Tensor:
        """One such tensor per process, stacked in order; its gradient is summed over the processes."""
        exchanged: Tensor = _Exchange.apply(value, self)  # type: ignore[no-untyped-call]
        return exchanged

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by their means over the processes, with one exchange for each type."""
        if self.several:
            for together in _by_kind(tensors):
                flat = torch.cat([tensor.flatten() for tensor in together])
                self._call(dist.all_reduce, moved := self._outgoing(flat))
                _scatter(moved.to(flat.device) / self.size, together)

    @torch.no_grad()
    def follow(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by those of the leading process."""
        if self.several:
            for together in _by_kind(tensors):
                flat = torch.cat([_as_bytes(tensor).flatten() for tensor in together])
                self._call(dist.broadcast, moved := self._outgoing(flat), 0)
                moved = moved.to(flat.device)
                _scatter(moved.view(torch.bool) if together[0].dtype == torch.bool else moved, together)

    def leader_says(self, value: T) -> T:
        """The leading process's value, a plain object that can be pickled."""
        if not self.several:
            return value
        values = [value if self.leads else None]
        self._call(dist.broadcast_object_list, values, 0)
        return values[0]  # type: ignore[return-value]

    def leader_sends(self, tensors: dict[str, Tensor] | None) -> dict[str, Tensor]:
        """The leading process's tensors by name, on the CPU; the others pass None."""
        kept = tensors if tensors is not None else {}
        kinds = self.leader_says([(name, value.dtype, tuple(value.shape)) for name, value in kept.items()])
        if not self.leads:
            kept = {name: torch.empty(shape, dtype=dtype) for name, dtype, shape in kinds}
        self.follow(list(kept.values()))
        return kept

    def all_say(self, value: T) -> list[T]:
        """The plain object of each process, in order."""
        if not self.several:
            return [value]
        values: list[Any] = [None] * self.size
        self._call(dist.all_gather_object, values, value)
        return values

    @contextmanager
    def one_first(self) -> Iterator[None]:
        """Let one process per machine do the block first: the others find what it left in the caches.

        That may take hours, longer than an exchange may wait.
        """
        if not self.several:
            yield
            return
        store = dist.distributed_c10d._get_default_store()
        key = f"graphclean-first-{os.environ.get('GROUP_RANK', '0')}-{next(_turns)}"
        while not self.first_here and not store.check([key]):
            if (lost := self.lost(only_with_reason=True)) is not None:
                raise lost
            time.sleep(0.1)
        yield
        if self.first_here:
            store.set(key, "done")

    def agree(self, flag: bool) -> bool:
        """The leading process's flag, exchanged on the host, so that no device waits for it."""
        if not self.several:
            return flag
        shared = torch.tensor(flag, dtype=torch.uint8)
        self._call(dist.broadcast, shared, 0)
        return bool(shared)

    def leave_reason(self, reason: str) -> None:
        """Before this process fails alone: let the leading one know why."""
        if self.several and not self.leads:
            dist.distributed_c10d._get_default_store().set(FAILED, f"process {self.rank + 1}: {reason}")

    def _all_gather(self, value: Tensor) -> list[Tensor]:
        sent = self._outgoing(_as_bytes(value).contiguous())
        found = [torch.empty_like(sent) for _ in range(self.size)]
        self._call(dist.all_gather, found, sent)
        home = [each.to(value.device) for each in found]
        return [each.view(torch.bool) for each in home] if value.dtype == torch.bool else home

    def _outgoing(self, value: Tensor) -> Tensor:
        """Where the backend can read it: gloo exchanges what lies on the host."""
        return value.cpu() if value.is_cuda and "nccl" not in dist.get_backend_config() else value

    def _call(self, collective: Callable[..., Any], *arguments: Any) -> None:
        try:
            collective(*arguments)
        except RuntimeError as error:
            lost = self.lost(only_with_reason=not GONE.search(str(error)))
            if lost is None:
                raise
            raise lost from error

    def lost(self, *, only_with_reason: bool = False) -> LostProcessError | None:
        """What to report if an exchange fails; or None without a reason that another process has left."""
        reason = ""
        with suppress(RuntimeError):  # the store may have ended with the process that kept it
            store = dist.distributed_c10d._get_default_store()
            if store.check([FAILED]):
                reason = f": {store.get(FAILED).decode(errors='replace')}"
        if only_with_reason and not reason:
            return None
        return LostProcessError(f"another of the {self.size} processes of this run ended{reason}")

    def follow_only(self) -> None:
        """End the part of a process that does not lead."""
        if not self.leads:
            raise Followed


ALONE = Group()
"""The one process of most runs."""
_current = ALONE


def current() -> Group:
    """The group that this process belongs to."""
    return _current


@contextmanager
def use(group: Group) -> Iterator[Group]:
    """Divide the work of jobs within the context among a group."""
    global _current
    before, _current = _current, group
    try:
        yield group
    finally:
        _current = before


class _JoinRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, group: Group, n: int) -> Tensor:
        ctx.group = group
        return group.gather(rows, n)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gradient[ctx.group.part(len(gradient))] * ctx.group.size, None, None


class _Exchange(torch.autograd.Function):
    """Its gradient is `_Collect`, whose gradient is this again, so that it can be differentiated twice."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, group: Group) -> Tensor:
        ctx.group = group
        return torch.stack(group._all_gather(value.detach()))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _Collect.apply(gradient, ctx.group), None  # type: ignore[no-untyped-call]


class _Collect(torch.autograd.Function):
    """The sum over the processes of what each has for this one."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, group: Group) -> Tensor:
        ctx.group = group
        found = group._all_gather(values.detach())
        return torch.stack([each[group.rank] for each in found]).sum(0)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _Exchange.apply(gradient, ctx.group), None  # type: ignore[no-untyped-call]


def _by_kind(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """Tensors of one type and device together, in order."""
    kinds: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
    for tensor in tensors:
        kinds.setdefault((tensor.dtype, tensor.device), []).append(tensor)
    return list(kinds.values())


def _as_bytes(value: Tensor) -> Tensor:
    """No backend exchanges truth values."""
    return value.to(torch.uint8) if value.dtype == torch.bool else value


@torch.no_grad()
def _scatter(flat: Tensor, to: Sequence[Tensor]) -> None:
    parts = torch.split(flat, [tensor.numel() for tensor in to])
    for tensor, part in zip(to, parts, strict=True):
        tensor.copy_(part.view(tensor.shape))
