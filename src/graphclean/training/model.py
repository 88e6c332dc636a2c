"""A trained network with its detector: the model for new data, in memory and in a run folder."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, TypedDict

import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate, normalize

from .._files import read_tensors, write_tensors
from .._shapes import JsonObject
from ..cleaning import KnnClassMeans
from ..cleaning.detection import FeatureDetector
from ..cleaning.evidence import Standardizer
from ..cleaning.inputs import check_embeddings
from ..cleaning.knn_model import MODEL, PROTOTYPES, NearestPosterior, Standardize
from ..data.progress import Progress
from ..errors import InputError
from ..ood import Threshold, ensemble_with_prototypes, prototype_similarity
from ..ood.detector import Detector, Outputs
from ..ood.detectors import ANYWHERE, load_detector
from ..ood.model import Judge, Judged, Predictions, RunKind, predict_table
from .inference import map_outputs, read_outputs, rebuild_network, run_network, split_batches
from .state import seeded
from .views import scale


class DetectorRecord(TypedDict):
    """The detector in summary.json, and in the file of the prototypes."""

    threshold: float
    rejected_known: float
    rejected_ood: float | None
    ood_share: float
    calibrated_on: int
    how: str
    promised: float | None


class NetworkRecord(TypedDict, total=False):
    """Describes how to rebuild a network; whether the options are valid is checked on rebuilding."""

    name: str
    options: JsonObject
    flip_tta: bool
    members: int
    """Number of networks in an ensemble."""
    layers: list[int]
    """Widths of the layers with classifiers of their own."""


class TrainedRecord(TypedDict, total=False):
    """Metadata stored with the weights of a training run."""

    network: NetworkRecord
    input_shape: list[int]
    classes: list[int | str]
    prototype_ensemble: bool
    class_means: list[float]
    feature_detector: JsonObject
    detector: str


class NetworkJudge(Judge):
    """A trained network with its detector as one module on raw inputs.

    With class means, class probabilities are the geometric mean of those of the network and of the class
    means, and OOD is detected on the features themselves.
    """

    prototypes: Tensor

    def __init__(self, model: "NetworkModel") -> None:
        super().__init__()
        self.standardize = Standardize(model.standardizer) if model.standardizer is not None else None
        self.network, self.detector, self.class_means = model.network, model.detector, model.class_means
        self.feature_detector = model.feature_detector
        self.register_buffer("prototypes", model.prototypes)
        self.near = None
        if model.class_means is not None:
            self.near = NearestPosterior(model.class_means.nodes, model.class_means.posterior)
        self.input_shape, self.prototype_ensemble = model.input_shape, model.prototype_ensemble
        self.threshold = model.threshold

    def forward(self, inputs: Tensor) -> Judged:
        """Predict for a batch."""
        prepared = inputs if self.standardize is None else self.standardize(inputs)
        scaled = scale(prepared)
        return self.judge(prepared, scaled, read_outputs(self.network, scaled, self.detector.needs))

    def judge(self, prepared: Tensor, scaled: Tensor, out: Outputs) -> Judged:
        """Predict from the network's outputs for inputs before (`prepared`) and after scaling (`scaled`)."""
        if self.class_means is not None and self.near is not None and self.feature_detector is not None:
            unit = normalize(prepared, dim=1)
            near = self.near(unit)
            known = self.class_means.known(unit, near.shares)
            score = self.feature_detector(unit, near.shares[:, -1], near.similarity)
            return Judged(((out.logits.log_softmax(1) + known) / 2).softmax(1), score, score > self.threshold)
        logits = out.logits
        if self.prototype_ensemble:
            logits = ensemble_with_prototypes(logits, prototype_similarity(out.z, self.prototypes))
        if self.detector.needs == "inputs":
            score = self.detector.predict_inputs(self.network, scaled).to(logits.device)
        else:
            score = self.detector(out)
        return Judged(logits.softmax(1), score, score > self.threshold)

    def steady(self, inputs: Tensor) -> Tensor:
        """All inputs, since a network is continuous, except those with tied neighbors."""
        if self.near is None or self.standardize is None:
            return super().steady(inputs)
        return self.near.steady(normalize(self.standardize(inputs), dim=1))

    def examples(self, count: int) -> Tensor:
        """Random inputs of the network: features, or pictures of random patches."""
        if self.standardize is None:
            return random_pictures(count, self.input_shape)
        generator = torch.Generator().manual_seed(0)
        standard = torch.randn(count, *self.input_shape, generator=generator)
        return self.standardize.invert(standard if self.near is None else self.near.approach(standard))


@dataclass(frozen=True)
class NetworkModel:
    """The last epoch's network, the prototypes, and the detector with its threshold."""

    network: nn.Module
    description: dict[str, Any]
    """Name and options of the network."""
    input_shape: tuple[int, ...]
    classes: list[int] | list[str]
    standardizer: Standardizer | None
    """Standardizes features as over the training set; None for images."""
    prototypes: Tensor
    """Class prototypes of z."""
    detector: Detector
    found: Threshold
    """The threshold, and its effect on the training set."""
    prototype_ensemble: bool = False
    """Average classifier and prototypes (`training.prototype_ensemble`); not with class means."""
    class_means: KnnClassMeans | None = None
    """For features with verdicts from before training."""
    feature_detector: FeatureDetector | None = None
    """Replaces the detector if there are class means."""
    kind: ClassVar[RunKind] = "train"

    @property
    def threshold(self) -> float:
        """The OOD score above which an input is rejected."""
        return self.found.threshold

    @property
    def notes(self) -> list[str]:
        """Caveats that a user should know."""
        return self.detector.notes() if self.feature_detector is None else []

    @property
    def obstacle(self) -> str | None:
        """Why it can't be exported; None if it can."""
        if self.feature_detector is not None or self.detector.needs != "inputs":
            return None
        return (
            f"the detector {self.detector.name} runs the network several times or asks for its gradients, "
            f"which ONNX can't hold; train with another detector, such as {ANYWHERE}"
        )

    @property
    def detector_name(self) -> str:
        """Name of the detector in use."""
        return self.detector.name if self.feature_detector is None else self.feature_detector.name

    def describe_score(self) -> str:
        """A description of the score."""
        if self.feature_detector is not None:
            return self.feature_detector.describe_score()
        return self.detector.title

    def module(self) -> NetworkJudge:
        """The whole model as one module."""
        return NetworkJudge(self)

    @torch.no_grad()
    def score(self, inputs: npt.NDArray[Any], progress: Progress | None = None) -> Predictions:
        """Predict for inputs as given before training: raw features, or uint8 images."""
        prepared, judge, parts, done = self.check(inputs), self.module(), [], 0
        batches = split_batches(prepared)
        needs = self.detector.needs
        for batch, (scaled, out) in zip(batches, run_network(self.network, batches, needs), strict=True):
            near = map_outputs(Tensor.cpu, out)
            parts.append(judge.judge(batch.cpu(), scaled, near._replace(logits=near.logits.double())))
            done += len(batch)
            if progress is not None:
                progress("predicting", done, len(prepared))
        return Predictions.gather(parts)

    def predict(
        self, inputs: npt.NDArray[Any], ids: list[str] | None = None, progress: Progress | None = None
    ) -> pd.DataFrame:
        """A row per input: `id`, `predicted_label`, `probability`, `ood_score`, `verdict` (known or ood)."""
        return predict_table(self, inputs, ids, progress)

    def check(self, inputs: npt.NDArray[Any]) -> Tensor:
        """Refuse inputs that can't be scored; returns them as the network takes them."""
        if self.standardizer is None:
            if inputs.shape[1:] != self.input_shape:
                theirs, ours = (" × ".join(map(str, shape)) for shape in (inputs.shape[1:], self.input_shape))
                raise InputError(f"these images are {theirs} (channels first), the run was trained on {ours}")
            return torch.as_tensor(inputs)
        array = check_embeddings(inputs, zeros=True, double=self.standardizer.double)
        if array.shape[1:] != self.input_shape:
            raise InputError(
                f"these embeddings have {array.shape[1]} columns, the run was made with {self.input_shape[0]}"
            )
        return self.standardizer.rescale(array)

    def save(self, folder: Path) -> None:
        """Write the model files of a run folder."""
        tensors = {f"network.{name}": value.cpu() for name, value in self.network.state_dict().items()}
        if self.standardizer is not None:
            tensors["mean"] = torch.as_tensor(self.standardizer.mean)
            tensors["scale"] = torch.as_tensor(self.standardizer.scale)
        facts: dict[str, Any] = {"network": self.description, "input_shape": list(self.input_shape)}
        facts |= {
            "classes": self.classes,
            "prototype_ensemble": self.prototype_ensemble,
            "detector": self.detector.name,
        }
        tensors |= {f"detector.{name}": value.cpu() for name, value in self.detector.state_dict().items()}
        if self.class_means is not None:
            tensors |= {f"class_means.{name}": value for name, value in self.class_means.tensors().items()}
            facts["class_means"] = list(self.class_means.weights)
        if self.feature_detector is not None:
            state = self.feature_detector.state_dict()
            tensors |= {f"feature_detector.{name}": value for name, value in state.items()}
            facts["feature_detector"] = self.feature_detector.facts()
        write_tensors(folder / MODEL, tensors, facts)
        write_tensors(folder / PROTOTYPES, {"prototypes": self.prototypes}, asdict(self.found))


def load_trained(run: Path, device: torch.device) -> NetworkModel:
    """The model of a finished training run."""
    tensors, facts = read_tensors(run / MODEL, TrainedRecord)
    prototypes, border = read_tensors(run / PROTOTYPES, DetectorRecord)
    try:
        check_classes(facts["classes"])
        weights, of_class_means = named(tensors, "network."), named(tensors, "class_means.")
        classes, shape = facts["classes"], tuple(facts["input_shape"])
        standardizer = None
        if len(shape) == 1:
            standardizer = Standardizer(tensors["mean"].numpy(), tensors["scale"].numpy())
        with seeded(0, torch.device("cpu")):  # initial weights use random numbers
            network = rebuild_network(facts["network"], weights, len(classes), shape)
        of_classes = prototypes["prototypes"]
        if of_classes.ndim != 2 or len(of_classes) != len(classes) or not of_classes.is_floating_point():
            raise ValueError("the prototypes are not one for each class")
        made = load_detector(facts["detector"])
        detector = made(len(classes), of_classes.shape[1] if made.needs == "z" else network.feature_dim)
        detector.load_state_dict(named(tensors, "detector."))
        return NetworkModel(
            network=network.to(device),
            description=facts["network"],
            input_shape=shape,
            classes=classes,
            standardizer=standardizer,
            prototypes=of_classes,
            detector=detector.to(device) if made.needs == "inputs" else detector,
            found=Threshold(**border),
            prototype_ensemble=facts.get("prototype_ensemble", False),
            class_means=KnnClassMeans.restore(of_class_means, facts["class_means"])
            if "class_means" in facts
            else None,
            feature_detector=FeatureDetector.restore(
                named(tensors, "feature_detector."), facts["feature_detector"]
            )
            if "class_means" in facts
            else None,
        )
    except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{run}: the model files are not those of a training run: {reason}") from error


def random_pictures(count: int, shape: tuple[int, ...]) -> Tensor:
    """uint8 pictures of soft patches, which differ more from each other than plain noise does."""
    coarse = torch.rand(count, shape[0], 4, 4, generator=torch.Generator().manual_seed(0))
    return (255 * interpolate(coarse, size=shape[1:], mode="bilinear")).round().to(torch.uint8)


def check_classes(classes: Any) -> None:
    """Refuse anything but a list of distinct names or whole numbers."""
    kinds = {type(name) for name in classes} if isinstance(classes, list) else set()
    if kinds not in ({int}, {str}) or len(set(classes)) < len(classes):
        raise ValueError("the classes are not names or numbers, each of them once")


def named(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names have a prefix, by the rest of their names."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
