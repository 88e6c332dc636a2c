"""Eq. 8 and 9 of the paper: class prototypes, similarity to them, detectors and thresholds."""

from .bimodality import are_separated, bimodal_ood_probability
from .prototypes import (
    class_prototypes,
    ensemble_with_prototypes,
    max_prototype_similarity,
    prototype_similarity,
)
from .threshold import MIN_OOD_RATE, Threshold, find_threshold, holds_ood

__all__ = [
    "MIN_OOD_RATE",
    "Threshold",
    "are_separated",
    "bimodal_ood_probability",
    "class_prototypes",
    "ensemble_with_prototypes",
    "find_threshold",
    "holds_ood",
    "max_prototype_similarity",
    "prototype_similarity",
]
