"""Detectors by name: ours, and those that other packages register."""

from typing import get_args

import torch
from torch import Tensor

from ..config.plugins import Plugins
from ..errors import InputError
from .detector import Detector, Needs
from .prototypes import class_prototypes, prototype_similarity

NO_DETECTOR = "not one sample was selected as clean: there is no detector, and nothing is rejected"


class Prototypes(Detector):
    """1 − s(x): how far z lies from the nearest class prototype (Eq. 8-9)."""

    name = "prototypes"
    needs = "features"
    title = "1 − largest cosine with a class prototype"
    paper = "Wu et al., NGC: A Unified Framework for Learning with Open-World Noisy Data, ICCV 2021"
    prototypes: Tensor

    def __init__(self, n_classes: int, width: int) -> None:
        super().__init__(n_classes, width)
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

    name = "msp"
    needs = "logits"
    title = "1 − largest softmax probability"
    paper = "Hendrycks and Gimpel, A Baseline for Detecting Misclassified and OOD Examples, ICLR 2017"

    def predict_logits(self, logits: Tensor) -> Tensor:
        """1 − max p."""
        return 1 - logits.softmax(1).amax(1)


OWN_DETECTORS = {made.name: f"{made.__module__}:{made.__name__}" for made in (Prototypes, MaxSoftmax)}
DETECTORS = Plugins("graphclean.detectors", OWN_DETECTORS, "ood.detector={name}: no such detector")


def detector_names() -> list[str]:
    """All that there are: ours, then those of other packages."""
    return DETECTORS.names()


def load_detector(name: str) -> type[Detector]:
    """The class of a detector; it is made with the number of classes and the width of z."""
    loaded: type[Detector] = DETECTORS.load(name, Detector)
    return check_needs(loaded)


def check_needs(made: type[Detector]) -> type[Detector]:
    """Refuse a detector that needs what no model here gives."""
    gives = get_args(Needs)
    if made.needs not in gives:
        raise InputError(
            f"ood.detector={made.name}: it needs {made.needs}, and a model has {' and '.join(gives)} alone; "
            f"take one of {', '.join(OWN_DETECTORS)}"
        )
    return made
