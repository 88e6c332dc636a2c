"""Detectors that get the inputs and the network itself."""

from typing import Self

import torch
from torch import Tensor, nn

from ..detector import Detector, ReadInputs

ODIN_SAMPLES = 1000
"""Selected samples used to choose the step size."""


class ODIN(Detector):
    """− the largest softmax probability at a high temperature, after a small step that increases it.

    Computed in double precision: at temperature 1000 all probabilities are close to 1/K.
    """

    name = "odin"
    needs = "inputs"
    title = "− largest softmax probability at temperature 1000, after a step of the input that increases it"
    paper = "Liang et al., Enhancing The Reliability of Out-of-distribution Image Detection, ICLR 2018"
    cost = "2 passes"
    choices = (
        "temperature 1000; a step of 0, 0.0014 or 0.0028 of the pixel range, whichever maximizes the "
        "probability of selected samples, as in Generalized ODIN"
    )
    temperature = 1000.0
    steps = (0.0, 0.0056, 0.0112)
    """In units of the network's inputs, where pixels range from −2 to 2."""
    step: Tensor

    def __init__(self, n_classes: int, width: int) -> None:
        super().__init__(n_classes, width)
        self.register_buffer("step", torch.zeros(()))

    def fit_inputs(self, network: nn.Module, read: ReadInputs, labels: Tensor) -> Self:
        """Choose the step size on evenly spaced selected samples."""
        rows = (labels >= 0).nonzero()[:, 0]
        some = rows[:: -(-len(rows) // ODIN_SAMPLES)] if len(rows) else rows
        total = torch.zeros(len(self.steps), dtype=torch.double)
        for inputs in read(some) if len(some) else ():
            direction = self._direction(network, inputs)
            for place, step in enumerate(self.steps):
                total[place] += self._largest(network, inputs - step * direction).sum().cpu()
        self.step.fill_(self.steps[int(total.argmax())])
        return self

    def predict_inputs(self, network: nn.Module, inputs: Tensor) -> Tensor:
        """− max softmax(l(x') / T), with x' = x − ε sign(∇ − log max softmax(l(x) / T))."""
        return -self._largest(network, inputs - self.step * self._direction(network, inputs))

    def _direction(self, network: nn.Module, inputs: Tensor) -> Tensor:
        """The sign of the gradient of the predicted class's cross-entropy."""
        with torch.enable_grad():
            x = inputs.detach().clone().requires_grad_()
            log_p = (network(x).logits.double() / self.temperature).log_softmax(1)
            (gradient,) = torch.autograd.grad(-log_p.amax(1).sum(), x)
        return gradient.sign()

    @torch.no_grad()
    def _largest(self, network: nn.Module, inputs: Tensor) -> Tensor:
        logits: Tensor = network(inputs).logits
        return (logits.double() / self.temperature).softmax(1).amax(1)
