"""From embeddings and labels to verdicts, without training."""

from .embeddings import Audit, audit_embeddings, clean_embeddings
from .panel import Panel
from .predictor import Predictor
from .settings import AuditSettings
from .verdicts import Summary, with_unreadable

__all__ = [
    "Audit",
    "AuditSettings",
    "Panel",
    "Predictor",
    "Summary",
    "audit_embeddings",
    "clean_embeddings",
    "with_unreadable",
]
