"""Verdicts for labels you can't trust."""

from ._version import __version__

__all__ = ["__version__"]
