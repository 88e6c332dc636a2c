"""Eq. 8 and 9 of the paper: class prototypes, how far a sample is from all of them, and where to reject."""

from .prototypes import class_prototypes, prototype_similarity
from .settings import OodSettings
from .thresholds import Threshold, find_threshold

__all__ = ["OodSettings", "Threshold", "class_prototypes", "find_threshold", "prototype_similarity"]
