"""The interface of OOD detectors, as in pytorch-ood: larger scores are more OOD, labels below 0 are OOD."""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Literal, NamedTuple, Self

import torch
from torch import Tensor, nn

Needs = Literal["logits", "z", "features", "layers", "inputs"]

ReadInputs = Callable[[Tensor], Iterator[Tensor]]
"""Maps rows of the training set to their inputs as the network takes them, in batches on its device."""


class Outputs(NamedTuple):
    """Outputs of a network that detectors may read."""

    logits: Tensor
    """(N, K), before the softmax."""
    z: Tensor
    """(N, embedding_dim), the projector's output, of unit length; entries can be negative."""
    features: Tensor | None = None
    """(N, d), the trunk's output, from which the classifier computes the logits; None if not requested."""
    layers: tuple[Tensor, ...] = ()
    """Features of several depths, the trunk's last; empty if not requested."""


class LearnedBuffers(nn.Module):
    """A module whose empty buffers take the shape of what is loaded into them."""

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
    """Per input, beyond one pass: multiplications (d features, N stored samples), or more passes."""
    choices: ClassVar[str] = ""
    """Its hyperparameters, and how they are chosen without OOD data."""
    needs_head: ClassVar[bool] = False
    """Whether it gets the classifier's weights, through `take_head`, before it is fitted."""
    needs_relu: ClassVar[bool] = False
    """Whether features must be nonnegative, as after a ReLU."""
    methods: ClassVar[tuple[str, ...]] = ()
    """The methods that train what it reads; empty if any network is suitable."""
    cross_fit: ClassVar[bool] = False
    """Whether samples it was fitted to get lower scores than new ones, and so need cross-fitting."""

    def __init__(self, n_classes: int, width: int) -> None:  # noqa: ARG002
        super().__init__()

    def take_head(self, weight: Tensor, bias: Tensor) -> None:
        """Store the classifier's weights: logits are `features @ weight.T + bias`."""

    def fit_features(self, features: Tensor, labels: Tensor) -> Self:
        """Fit to features (N, d) with labels; samples with labels below 0 are left out."""
        raise NotImplementedError

    def predict_features(self, features: Tensor) -> Tensor:
        """The score of each row."""
        raise NotImplementedError

    def fit_logits(self, logits: Tensor, labels: Tensor) -> Self:  # noqa: ARG002
        """Fit to logits (N, K); most detectors have nothing to fit."""
        return self

    def predict_logits(self, logits: Tensor) -> Tensor:
        """The score of each row."""
        raise NotImplementedError

    def fit_layers(self, layers: tuple[Tensor, ...], labels: Tensor) -> Self:
        """Fit to features of several depths."""
        raise NotImplementedError

    def predict_layers(self, layers: tuple[Tensor, ...]) -> Tensor:
        """The score of each row."""
        raise NotImplementedError

    def fit_inputs(self, network: nn.Module, read: ReadInputs, labels: Tensor) -> Self:  # noqa: ARG002
        """Fit to the training inputs; `network` is in evaluation mode, and returns logits and z for them."""
        return self

    def predict_inputs(self, network: nn.Module, inputs: Tensor) -> Tensor:
        """Scores of inputs as the network takes them, on its device."""
        raise NotImplementedError

    def fit(self, outputs: Outputs, labels: Tensor) -> Self:
        """Fit to the outputs that the detector needs."""
        if self.needs == "logits":
            return self.fit_logits(outputs.logits, labels)
        if self.needs == "layers":
            return self.fit_layers(outputs.layers, labels)
        return self.fit_features(self._features(outputs), labels)

    def forward(self, outputs: Outputs) -> Tensor:
        """Scores from the outputs that the detector needs."""
        if self.needs == "logits":
            return self.predict_logits(outputs.logits)
        if self.needs == "layers":
            return self.predict_layers(outputs.layers)
        return self.predict_features(self._features(outputs))

    def notes(self) -> list[str]:
        """Caveats that a user should know."""
        return []

    def _features(self, outputs: Outputs) -> Tensor:
        found = outputs.z if self.needs == "z" else outputs.features
        assert found is not None
        return found
