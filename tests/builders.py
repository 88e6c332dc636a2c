"""What tests of several rooms build on: the types of shared fixtures, and small data sets."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

import torch


@dataclass(frozen=True)
class Done:
    """How a command ended: its exit code, and what it printed."""

    code: int
    out: str
    err: str


class Cli(Protocol):
    """Run the command line in an empty folder."""

    def __call__(self, *arguments: str) -> Done: ...


class Refuse(Protocol):
    """Check that a command is refused in one line, and leaves everything as it was."""

    def __call__(self, command: str | Sequence[str], message: str = "") -> None: ...


def assert_same_tensors(a: Any, b: Any) -> None:
    """Two dataclasses of tensors are equal to the bit, sparse ones too; what is None is so in both."""
    assert type(a) is type(b)
    for field in fields(a):
        ours, theirs = getattr(a, field.name), getattr(b, field.name)
        if ours is None or ours.layout != torch.sparse_csr:
            assert ours is theirs or torch.equal(ours, theirs), field.name
            continue
        assert ours.shape == theirs.shape, field.name
        for part in ("crow_indices", "col_indices", "values"):
            assert torch.equal(getattr(ours, part)(), getattr(theirs, part)()), f"{field.name}: {part}"
