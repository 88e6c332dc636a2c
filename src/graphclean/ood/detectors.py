"""Detectors by name: ours, and those that other packages register."""

from importlib.metadata import entry_points
from typing import Any

import torch
from torch import Tensor

from ..errors import InputError, suggest
from .detector import Detector
from .prototypes import class_prototypes, prototype_similarity

ENTRY_POINTS = "graphclean.detectors"
NO_DETECTOR = "not one sample was selected as clean: there is no detector, and nothing is rejected"


class Prototypes(Detector):
    """1 − s(x): how far z lies from the nearest class prototype (Eq. 8-9)."""

    name = "prototypes"
    needs = "features"
    title = "1 − largest cosine with a class prototype"
    paper = "Wu et al., NGC: A Unified Framework for Learning with Open-World Noisy Data, ICCV 2021"
    prototypes: Tensor

    def __init__(self, n_classes: int, width: int) -> None:
        super().__init__()
        self.register_buffer("prototypes", torch.zeros(n_classes, width))

    def fit_features(self, features: Tensor, labels: Tensor) -> "Prototypes":
        """One prototype a class, of zeros for a class without a sample."""
        self.prototypes = class_prototypes(features, labels, labels >= 0, len(self.prototypes))
        return self

    def predict_features(self, features: Tensor) -> Tensor:
        """1 − s(x)."""
        return 1 - prototype_similarity(features, self.prototypes).amax(1)

    def notes(self) -> list[str]:
        """Without any prototype nothing can be rejected."""
        return [] if bool(self.prototypes.any()) else [NO_DETECTOR]


class MaxSoftmax(Detector):
    """1 − the probability of the most probable class."""

    name = "max_softmax"
    needs = "logits"
    title = "1 − largest softmax probability"
    paper = "Hendrycks and Gimpel, A Baseline for Detecting Misclassified and OOD Examples, ICLR 2017"

    def __init__(self, n_classes: int, width: int) -> None:  # noqa: ARG002
        super().__init__()

    def predict_logits(self, logits: Tensor) -> Tensor:
        """1 − max p."""
        return 1 - logits.softmax(1).amax(1)


BUILT_IN: dict[str, type[Any]] = {made.name: made for made in (Prototypes, MaxSoftmax)}


def detector_names() -> list[str]:
    """All that there are: ours, then those of other packages."""
    return [*BUILT_IN, *sorted(entry_points(group=ENTRY_POINTS).names - BUILT_IN.keys())]


def load_detector(name: str) -> type[Detector]:
    """The class of a detector; it is made with the number of classes and the width of z."""
    found: Any = BUILT_IN.get(name)
    if found is None:
        theirs = entry_points(group=ENTRY_POINTS, name=name)
        if not theirs:
            raise InputError(f"ood.detector={name}: no such detector; {suggest(name, detector_names())}")
        found = next(iter(theirs)).load()
    loaded: type[Detector] = found
    return loaded
