"""Eq. 8 and 9 of the paper: class prototypes, how far a sample is from all of them, and where to reject."""

from .bimodality import lie_apart, ood_by_humps
from .prototypes import class_prototypes, judge_by_both, measure_closeness, prototype_similarity
from .threshold import LEAST, Threshold, find_threshold

__all__ = [
    "LEAST",
    "Threshold",
    "class_prototypes",
    "find_threshold",
    "judge_by_both",
    "lie_apart",
    "measure_closeness",
    "ood_by_humps",
    "prototype_similarity",
]
