"""Eq. 8 and 9 of the paper: class prototypes, and how far a sample is from all of them."""

from .prototypes import class_prototypes, prototype_similarity

__all__ = ["class_prototypes", "prototype_similarity"]
