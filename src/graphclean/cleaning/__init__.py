"""From embeddings and labels to verdicts, without training."""

from .class_means import KnnClassMeans
from .knn_model import KnnModel
from .pipeline import CleaningResult, clean_embeddings, infer_verdicts
from .verdicts import Summary, with_unreadable

__all__ = [
    "CleaningResult",
    "KnnClassMeans",
    "KnnModel",
    "Summary",
    "clean_embeddings",
    "infer_verdicts",
    "with_unreadable",
]
