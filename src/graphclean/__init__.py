"""Verdicts for labels you can't trust: keep, relabel, or out of distribution."""

from ._version import __version__
from .audit import AuditSettings, clean_embeddings
from .graph import GraphCleaner, GraphSettings

__all__ = ["AuditSettings", "GraphCleaner", "GraphSettings", "__version__", "clean_embeddings"]
