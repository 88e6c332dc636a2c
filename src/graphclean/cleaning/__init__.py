"""From embeddings and labels to verdicts, without training."""

from .class_means import Panel
from .knn_model import KnnModel
from .pipeline import Audit, audit_embeddings, clean_embeddings
from .verdicts import Summary, with_unreadable

__all__ = [
    "Audit",
    "KnnModel",
    "Panel",
    "Summary",
    "audit_embeddings",
    "clean_embeddings",
    "with_unreadable",
]
