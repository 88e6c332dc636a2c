"""From embeddings and labels to verdicts, without training."""

from .embeddings import Audit, audit_embeddings, clean_embeddings
from .predictor import Predictor
from .settings import AuditSettings
from .verdicts import Summary, with_unreadable

__all__ = [
    "Audit",
    "AuditSettings",
    "Predictor",
    "Summary",
    "audit_embeddings",
    "clean_embeddings",
    "with_unreadable",
]
