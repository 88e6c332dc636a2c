"""torch.compile where it pays, and plain PyTorch where it can't work."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ..errors import DataWarning

SHAPES = 64
"""Shapes a function may be compiled for, one by one: code for any shape turned out no faster than none."""


class Compiled:
    """A function of tensors, compiled when first called; where that fails, it warns and stays as it was.

    With `graphs` its kernels are replayed as CUDA graphs. Later calls then write over its results, unless
    their gradients are still to come. A network is compiled whole: block by block there would be hardly less
    to compile, as seven of the eight blocks of PreAct ResNet-18 are unlike, and no CUDA graph over all of it.
    """

    def __init__(self, plain: Callable[..., Any], *, graphs: bool = False) -> None:
        self.plain = plain
        options: dict[str, Any] = {"options": {"triton.cudagraphs": True}} if graphs else {}
        self._fast: Callable[..., Any] | None = torch.compile(plain, dynamic=False, **options)

    def __call__(self, *args: Any) -> Any:
        if self._fast is not None:
            # Around every call, which may meet a new shape: microseconds of a step that takes milliseconds.
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
    """Where wanted, cuDNN tries its convolutions for each shape and keeps the fastest, until the end of it.

    That pays where shapes are few, and from the first step on: what was taken for a shape without a trial is
    kept for good.
    """
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = before or wanted
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before
