"""The seam for OOD detectors, in pytorch-ood's conventions: larger is more OOD, labels under 0 are OOD."""

from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

Needs = Literal["logits", "features"]


class Detector(nn.Module):
    """Scores how far an input is from everything known; what it learns is in its buffers.

    A detector reads a network's `logits` or its `features` (z), whichever it `needs`, and has the two methods
    of that name; it moves, saves and exports with the model. It is made with the number of classes and the
    width of z, as a loaded one is; a buffer that is empty then takes the shape of what was saved.
    """

    name: ClassVar[str]
    needs: ClassVar[Needs]
    title: ClassVar[str]
    paper: ClassVar[str] = ""

    def __init__(self, n_classes: int, width: int) -> None:  # noqa: ARG002
        super().__init__()

    def fit_features(self, features: Tensor, labels: Tensor) -> Self:
        """Learn from features (N, d) of samples with labels, under 0 for those that are left out."""
        raise NotImplementedError

    def predict_features(self, features: Tensor) -> Tensor:
        """The score of each row."""
        raise NotImplementedError

    def fit_logits(self, logits: Tensor, labels: Tensor) -> Self:  # noqa: ARG002
        """Learn from logits (N, K); most have nothing to learn."""
        return self

    def predict_logits(self, logits: Tensor) -> Tensor:
        """The score of each row."""
        raise NotImplementedError

    def fit(self, features: Tensor, logits: Tensor, labels: Tensor) -> Self:
        """Learn from whichever it needs."""
        if self.needs == "logits":
            return self.fit_logits(logits, labels)
        return self.fit_features(features, labels)

    def forward(self, features: Tensor, logits: Tensor) -> Tensor:
        """The score by whichever it needs."""
        return self.predict_logits(logits) if self.needs == "logits" else self.predict_features(features)

    def notes(self) -> list[str]:
        """What a user should know before trusting it."""
        return []

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        for name, buffer in self.named_buffers(recurse=False):
            if buffer.numel() == 0 and prefix + name in state:
                setattr(self, name, torch.empty_like(state[prefix + name], device=buffer.device))
        super()._load_from_state_dict(state, prefix, *rest)
