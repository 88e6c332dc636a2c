"""Detectors for a trained network: whether they can be used, and what they are fitted to."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ..config import Config
from ..ood.detector import Detector, Needs, Outputs
from ..ood.detectors import check_needs, load_detector, unusable
from .batches import Inputs
from .inference import INFERENCE_BATCH, evaluating, map_outputs, run_network
from .method import Method
from .outcome import Trained
from .predictors import Predictor
from .views import scale

DETECTOR_FOLDS = 5
"""Number of folds of the selected samples; each is scored by a detector fitted to the others."""
PROBE_INPUTS = 16
"""Number of training inputs used to check whether features can be negative."""


def choose_detector(config: Config, method: Method) -> type[Detector]:
    """The configured detector, or the method's default."""
    name = config.ood.detector
    return check_needs(load_detector(method.detector if name == "auto" else name), method.info.name)


def check_usable(made: type[Detector], method: Method, inputs: Inputs) -> None:
    """Before training, refuse a detector that needs outputs that the method's network doesn't have."""
    check_needs(made, method.info.name)
    network = method.predictor()
    if made.needs not in ("features", "layers"):
        return
    if not isinstance(network, Predictor):
        raise unusable(made, f"it needs {made.needs}, which the network of {method.info.name} doesn't give")
    if made.needs_relu:
        rows = torch.arange(min(PROBE_INPUTS, len(inputs)), device=inputs.device)
        ((_, out),) = run_network(network, inputs.stream(rows[None]), "features")
        if out.features is not None and bool((out.features < 0).any()):
            raise unusable(
                made, "it needs features after a ReLU, and those of this network also fall below 0"
            )


@dataclass(frozen=True)
class TrainingOutputs:
    """What detectors are fitted to: a network, its training inputs, and its outputs for them."""

    network: nn.Module
    inputs: Inputs
    outputs: Outputs
    labels: Tensor
    """Labels of the samples selected as clean; −1 for all others."""
    n_classes: int

    def read(self, rows: Tensor) -> Iterator[Tensor]:
        """Yield the inputs of some rows, as the network takes them."""
        for part in torch.split(rows, INFERENCE_BATCH):
            yield from map(scale, self.inputs.stream(part[None]))


@torch.no_grad()
def gather_outputs(
    trained: Trained, inputs: Inputs, made: Sequence[type[Detector]], n_classes: int
) -> TrainingOutputs:
    """The outputs that some detectors need; one more pass if any needs more than logits and z."""
    chosen = trained.selection
    labels = torch.where(chosen.selected, chosen.labels, -1)
    outputs, wanted = Outputs(trained.logits, trained.z), {one.needs for one in made}
    if wanted & {"features", "layers"}:
        rows = torch.split(torch.arange(len(inputs), device=inputs.device), INFERENCE_BATCH)
        batches = (batch for part in rows for batch in inputs.stream(part[None]))
        needs: Needs = "layers" if "layers" in wanted else "features"
        found = [out for _, out in run_network(trained.network, batches, needs)]
        features = torch.cat([out.features for out in found if out.features is not None])
        layers = tuple(map(torch.cat, zip(*(out.layers for out in found), strict=True)))
        outputs = outputs._replace(features=features, layers=layers)
    return TrainingOutputs(trained.network, inputs, outputs, labels, n_classes)


@torch.no_grad()
def fit_detector(
    made: type[Detector], method: Method, source: TrainingOutputs
) -> tuple[Detector, npt.NDArray[np.float64]]:
    """Fit a detector to the samples selected as clean; also returns all scores, for finding its threshold.

    A detector that scores its own training samples as nearer than others (`cross_fit`) is cross-fitted: each
    selected sample is scored by a detector fitted to the other four fifths.
    """
    detector = _fit(made, method, source, source.labels)
    if made.needs == "inputs":
        with evaluating(source.network):
            everything = source.read(torch.arange(len(source.labels), device=source.labels.device))
            scores = [detector.predict_inputs(source.network, batch) for batch in everything]
        return detector, torch.cat(scores).double().cpu().numpy()
    score = _score(detector, source.outputs)
    for fold in _folds(source.labels) if made.cross_fit else ():
        others = source.labels.clone()
        others[fold] = -1
        score[fold] = _score(_fit(made, method, source, others), _rows(source.outputs, fold))
    return detector, score.double().cpu().numpy()


def _fit(made: type[Detector], method: Method, source: TrainingOutputs, labels: Tensor) -> Detector:
    network, outputs = source.network, source.outputs
    read = outputs.z if made.needs == "z" else outputs.features
    width = read.shape[1] if read is not None else getattr(network, "feature_dim", 0)
    detector = made(source.n_classes, width).to(outputs.z.device)
    if made.needs_head:
        assert isinstance(network, Predictor)
        detector.take_head(*(part.detach().float() for part in network.linear_head()))
    method.equip(detector)
    if made.needs == "inputs":
        with evaluating(network):
            return detector.fit_inputs(network, source.read, labels)
    return detector.fit(outputs, labels)


def _folds(labels: Tensor) -> list[Tensor]:
    """The rows of the selected samples in folds stratified by class."""
    rows = (labels >= 0).nonzero()[:, 0]
    rows = rows[labels[rows].argsort(stable=True)]
    count = min(DETECTOR_FOLDS, len(rows))
    return [rows[part::count] for part in range(count)] if count > 1 else []


def _score(detector: Detector, outputs: Outputs) -> Tensor:
    """Scores computed in batches, as for new data."""
    pieces = torch.split(torch.arange(len(outputs.z), device=outputs.z.device), INFERENCE_BATCH)
    return torch.cat([detector(_rows(outputs, rows)) for rows in pieces])


def _rows(outputs: Outputs, rows: Tensor) -> Outputs:
    return map_outputs(lambda tensor: tensor[rows], outputs)
