"""Detectors by name, loaded on demand: our own, and those registered by other packages."""

from typing import get_args

from ...config.plugins import Plugins
from ...errors import InputError
from ..detector import Detector, Needs

OWN_DETECTORS = {
    "prototypes": "graphclean.ood.detectors.prototypes:Prototypes",
    "msp": "graphclean.ood.detectors.logits:MaxSoftmax",
    "odin": "graphclean.ood.detectors.inputs:ODIN",
    "mahalanobis": "graphclean.ood.detectors.features:Mahalanobis",
    "mahalanobis-layers": "graphclean.ood.detectors.layers:MahalanobisLayers",
    "energy": "graphclean.ood.detectors.logits:Energy",
    "max-logit": "graphclean.ood.detectors.logits:MaxLogit",
    "entropy": "graphclean.ood.detectors.logits:Entropy",
    "gen": "graphclean.ood.detectors.logits:GEN",
    "kl-matching": "graphclean.ood.detectors.logits:KLMatching",
    "knn": "graphclean.ood.detectors.features:NearestNeighbors",
    "rmd": "graphclean.ood.detectors.features:RelativeMahalanobis",
    "vim": "graphclean.ood.detectors.head:ViM",
    "fdbd": "graphclean.ood.detectors.head:FDBD",
    "she": "graphclean.ood.detectors.head:SHE",
    "nnguide": "graphclean.ood.detectors.head:NNGuide",
    "react": "graphclean.ood.detectors.activations:ReAct",
    "ash": "graphclean.ood.detectors.activations:ASH",
    "scale": "graphclean.ood.detectors.activations:SCALE",
    "rot": "graphclean.ood.detectors.transformations:TransformationScore",
    "rot-plus": "graphclean.ood.detectors.transformations:RotationScore",
    "ssd": "graphclean.ood.detectors.ssd:ClusterDistance",
}
DETECTORS = Plugins("graphclean.detectors", OWN_DETECTORS, "ood.detector={name}: no such detector")
ANYWHERE = "energy"
"""A detector that works with every network."""


def detector_names() -> list[str]:
    """All names: our own, then those of other packages."""
    return DETECTORS.names()


def load_detector(name: str) -> type[Detector]:
    """The class of a detector; its arguments are the number of classes and the width of z or features."""
    loaded: type[Detector] = DETECTORS.load(name, Detector)
    return check_needs(loaded)


def check_needs(made: type[Detector], method: str | None = None) -> type[Detector]:
    """Refuse a detector that needs what no model has, or what only other methods train."""
    if made.needs not in get_args(Needs):
        raise unusable(made, f"it needs {made.needs}, but models have only {', '.join(get_args(Needs))}")
    if made.methods and method is not None and method not in made.methods:
        raise unusable(made, f"it needs a network trained by {' or '.join(made.methods)}, not by {method}")
    return made


def list_needs(made: type[Detector]) -> list[str]:
    """What a detector reads and its other requirements, for display."""
    return [
        made.needs,
        *(["the classifier's weights"] if made.needs_head else []),
        *(["a ReLU at the end of the trunk"] if made.needs_relu else []),
        *([f"a network trained by {' or '.join(made.methods)}"] if made.methods else []),
    ]


def unusable(made: type[Detector], why: str) -> InputError:
    """An error for a detector that can't be used here, with the name of one that can."""
    return InputError(f"ood.detector={made.name}: {why}; use another one, such as {ANYWHERE}")
