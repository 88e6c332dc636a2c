"""torch.compile where it pays off, and plain PyTorch where it fails."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ..errors import DataWarning

SHAPES = 64
"""Shapes that a function may be compiled for, one by one: dynamic shapes were no faster than eager mode."""


class Compiled:
    """A function of tensors, compiled on its first call; if that fails, it warns and runs uncompiled.

    With `graphs`, kernels are replayed as CUDA graphs. Later calls then overwrite its results, except those
    whose gradients are still pending. A network is compiled as a whole: compiling it by blocks would save
    little, since seven of the eight blocks of PreAct ResNet-18 differ, and would prevent one CUDA graph over
    all of it.
    """

    def __init__(self, plain: Callable[..., Any], *, graphs: bool = False) -> None:
        self.plain = plain
        options: dict[str, Any] = {"options": {"triton.cudagraphs": True}} if graphs else {}
        self._fast: Callable[..., Any] | None = torch.compile(plain, dynamic=False, **options)

    def __call__(self, *args: Any) -> Any:
        if self._fast is not None:
            # Patched for every call, which may have a new shape: microseconds out of a step's milliseconds.
            limit = max(torch._dynamo.config.recompile_limit, SHAPES)
            try:
                with torch._dynamo.config.patch(recompile_limit=limit):
                    return self._fast(*args)
            except torch._dynamo.exc.TorchDynamoException as error:
                reason = " ".join(str(error).split())[:200]
                warnings.warn(f"training runs uncompiled, and slower: {reason}", DataWarning, stacklevel=2)
                self._fast = None
        return self.plain(*args)


@contextmanager
def trying_convolutions(wanted: bool) -> Iterator[None]:
    """If `wanted`, cuDNN benchmarks its convolutions for each shape within the context.

    This pays off for few shapes, and only from the first step on: an algorithm chosen without a benchmark is
    kept.
    """
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = before or wanted
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
