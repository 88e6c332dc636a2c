"""The seam for OOD detectors, in pytorch-ood's conventions: larger is more OOD, labels under 0 are OOD."""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Literal, NamedTuple, Self

import torch
from torch import Tensor, nn

Needs = Literal["logits", "z", "features", "layers", "inputs"]

ReadInputs = Callable[[Tensor], Iterator[Tensor]]
"""Training inputs of some rows as the network takes them, in batches on its device."""


class Outputs(NamedTuple):
    """What a network gives for some inputs, and a detector may read."""

    logits: Tensor
    """(N, K), before the softmax."""
    z: Tensor
    """(N, embedding_dim), the projector's, of unit length; it has signs."""
    features: Tensor | None = None
    """(N, d), the trunk's, of which the classifier makes the logits; None where they were not asked for."""
    layers: tuple[Tensor, ...] = ()
    """Features of several depths, the trunk's last; empty where they were not asked for."""


class LearnedBuffers(nn.Module):
    """A buffer that is empty takes the shape of what is loaded."""

    def _load_from_state_dict(self, state: dict[str, Any], prefix: str, *rest: Any) -> None:
        for name, buffer in self.named_buffers(recurse=False):
            if buffer.numel() == 0 and prefix + name in state:
                setattr(self, name, torch.empty_like(state[prefix + name], device=buffer.device))
        super()._load_from_state_dict(state, prefix, *rest)


class Detector(LearnedBuffers):
    """Scores how far an input is from everything known; what it learns is in its buffers.

    It reads what it `needs`:

    - `logits`, by `fit_logits` and `predict_logits`;
    - `z`, or the trunk's `features`, by `fit_features` and `predict_features`;
    - `layers`, features of several depths, by `fit_layers` and `predict_layers`;
    - `inputs`, with the network itself, for gradients or several views, by `fit_inputs` and `predict_inputs`.

    It moves, saves and, unless it needs `inputs`, exports with the model. It is made with the number of
    classes and the width of z or features, as a loaded one is; a buffer that is empty then takes the shape of
    what was saved.
    """

    name: ClassVar[str]
    needs: ClassVar[Needs]
    title: ClassVar[str]
    paper: ClassVar[str] = ""
    cost: ClassVar[str] = ""
    """Of each new input beyond a pass of the network: multiplications, with d features and N samples that are
    kept, or further passes.
    """
    choices: ClassVar[str] = ""
    """Its parameters, and how they are chosen without OOD data."""
    needs_head: ClassVar[bool] = False
    """It is given the weights of the classifier, by `take_head`, before it is fitted."""
    needs_relu: ClassVar[bool] = False
    """Features must be at least 0, as after a ReLU."""
    methods: ClassVar[tuple[str, ...]] = ()
    """The methods that train what it reads; none: any network will do."""
    cross_fit: ClassVar[bool] = False
    """It takes samples that it was fitted on for nearer than new ones of their kind, so that their scores are
    found by detectors that were fitted on others.
    """

    def __init__(self, n_classes: int, width: int) -> None:  # noqa: ARG002
        super().__init__()

    def take_head(self, weight: Tensor, bias: Tensor) -> None:
        """Keep the classifier: logits are `features @ weight.T + bias`."""

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

    def fit_layers(self, layers: tuple[Tensor, ...], labels: Tensor) -> Self:
        """Learn from features of several depths."""
        raise NotImplementedError

    def predict_layers(self, layers: tuple[Tensor, ...]) -> Tensor:
        """The score of each row."""
        raise NotImplementedError

    def fit_inputs(self, network: nn.Module, read: ReadInputs, labels: Tensor) -> Self:  # noqa: ARG002
        """Learn from the training inputs; `network` is in evaluation mode, and gives logits and z of them."""
        return self

    def predict_inputs(self, network: nn.Module, inputs: Tensor) -> Tensor:
        """The score of inputs as the network takes them, on its device."""
        raise NotImplementedError

    def fit(self, outputs: Outputs, labels: Tensor) -> Self:
        """Learn from whichever outputs it needs."""
        if self.needs == "logits":
            return self.fit_logits(outputs.logits, labels)
        if self.needs == "layers":
            return self.fit_layers(outputs.layers, labels)
        return self.fit_features(self._features(outputs), labels)

    def forward(self, outputs: Outputs) -> Tensor:
        """The score by whichever outputs it needs."""
        if self.needs == "logits":
            return self.predict_logits(outputs.logits)
        if self.needs == "layers":
            return self.predict_layers(outputs.layers)
        return self.predict_features(self._features(outputs))

    def notes(self) -> list[str]:
        """What a user should know before trusting it."""
        return []

    def _features(self, outputs: Outputs) -> Tensor:
        found = outputs.z if self.needs == "z" else outputs.features
        assert found is not None
        return found
