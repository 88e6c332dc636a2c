"""torch.compile where it pays, and plain PyTorch where it can't work."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..errors import DataWarning


class Compiled:
    """A function of tensors, compiled on its first call; where that fails, it warns and stays as it was.

    With `any_length` one compilation serves every length of the first argument.
    """

    def __init__(self, plain: Callable[..., Any], *, any_length: bool = False) -> None:
        self.plain = plain
        self.any_length = any_length
        self._fast: Callable[..., Any] | None = torch.compile(plain, dynamic=False)

    def __call__(self, first: Tensor, *others: Any) -> Any:
        if self._fast is None:
            return self.plain(first, *others)
        if self.any_length:
            torch._dynamo.mark_dynamic(first, 0)
        try:
            return self._fast(first, *others)
        except torch._dynamo.exc.TorchDynamoException as error:
            reason = str(error).strip().splitlines()[0]
            warnings.warn(f"training runs uncompiled, and slower: {reason}", DataWarning, stacklevel=2)
            self._fast = None
            return self.plain(first, *others)
