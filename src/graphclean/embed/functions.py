"""A user's Python function as an embedder."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..errors import InputError
from .photos import Embedder, Picture

FUNCTION_PREFIX = "function:"
PROBED = 8
"""Random pictures used to identify a function."""
STEADY, ALIKE = 0.05, 1e-3
"""Tolerances: how much features of a picture may depend on the rest of its batch, relative to the differences
between pictures; and how much they may differ between machines, relative to the largest.
"""

EmbeddingFunction: TypeAlias = Callable[[Picture], Any]


class FunctionEmbedder(Embedder):
    """An embedder defined by a function from uint8 (n, size, size, 3) RGB to an array or tensor (n, d).

    n varies, and each row of the result must depend on its picture alone. Features are cached between runs
    only under a `name`, and reused only for a function that gives the same features.
    """

    def __init__(self, function: EmbeddingFunction, name: str | None = None, size: int = 224) -> None:
        super().__init__()
        if isinstance(function, type | nn.Module) or not callable(function):
            raise InputError(
                f"{_called(function)}: an embedder in Python is a function from uint8 pictures "
                "(n, size, size, 3) to features (n, d), or an object of a subclass of Embedder"
            )
        if size < 1:
            raise InputError(f"an embedder takes pictures of 1 pixel a side or more, not {size}")
        self.function, self.size, self.kept = function, size, name is not None
        self.name = FUNCTION_PREFIX + (name if name is not None else _called(function))
        self._probe: list[float] | None = None

    def forward(self, batch: Tensor) -> Tensor:
        """(N, d) float32 features of an (N, 3, size, size) uint8 batch."""
        features = self._features(batch.permute(0, 2, 3, 1).contiguous().numpy())
        if features.shape[1] != self.probe()[0]:
            raise InputError(f"{self.name}: gave {self.probe()[0]:.0f} features, then {features.shape[1]}")
        return torch.from_numpy(features)

    def probe(self) -> list[float]:
        """A fingerprint of the function: the number of features, and their weighted sum for some pictures.

        Functions whose features depend on the rest of the batch are refused, because copies of a photo would
        get different features.
        """
        # Not a property: an AttributeError raised in the function would be taken for one of this class.
        if self._probe is None:
            features = self._check_steadiness()
            weights = np.linspace(-1, 1, features.shape[1] + 1)[1:] / np.sqrt(features.shape[1])
            self._probe = [float(features.shape[1]), *(features.astype(np.float64) @ weights).tolist()]
        return self._probe

    def embeds_like(self, probe: list[float]) -> bool:
        """Whether a function with this fingerprint gives the same features up to rounding."""
        ours, theirs = np.array(self.probe()), np.array(probe, dtype=np.float64)
        if len(ours) != len(theirs) or ours[0] != theirs[0]:
            return False
        return bool(np.abs(ours - theirs)[1:].max() <= ALIKE * np.abs(ours[1:]).max())

    def _check_steadiness(self) -> npt.NDArray[np.float32]:
        half = PROBED // 2
        shape = (PROBED, self.size, self.size, 3)
        pictures = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
        pictures[half:] //= np.arange(1, half + 1, dtype=np.uint8)[:, None, None, None]
        others = pictures[::-1].copy()
        others[half:] = 0
        with torch.inference_mode():
            features, again = self._features(pictures), self._features(others)
        moved = float("inf")
        if features.shape == again.shape:
            moved = float(np.abs(features[::-1][:half] - again[:half]).max())
        if moved > STEADY * float(features.std(0).max()):
            raise InputError(
                f"{self.name}: a picture has other features in another batch; is a network in training mode?"
            )
        return features

    def _features(self, pictures: Picture) -> npt.NDArray[np.float32]:
        found = self.function(pictures)
        array = np.asarray(found.detach().cpu().float() if isinstance(found, Tensor) else found)
        shaped = array.ndim == 2 and len(array) == len(pictures) and array.shape[1] > 0
        if not shaped or array.dtype.kind not in "fiu":
            raise InputError(
                f"{self.name}: {len(pictures)} pictures gave {array.dtype} of shape {array.shape}; "
                f"features are numbers of shape ({len(pictures)}, d)"
            )
        features = array.astype(np.float32)
        if not np.isfinite(features).all():
            raise InputError(f"{self.name}: gave features that are NaN or infinite")
        return features


def as_embedder(given: str | Embedder | EmbeddingFunction) -> str | Embedder:
    """A name or an `Embedder` unchanged; a function as an embedder that is not cached."""
    return given if isinstance(given, str | Embedder) else FunctionEmbedder(given)


def _called(given: Any) -> str:
    name = getattr(given, "__name__", None)
    return str(name) if name is not None else type(given).__name__
