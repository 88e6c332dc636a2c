"""Verdicts for labels you can't trust: keep, relabel, or out of distribution."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:
    from .api import Run, clean, train
    from .cleaning import clean_embeddings
    from .config import CleaningSettings, GraphSettings
    from .estimator import NoisyGraphClassifier
    from .graph import GraphCleaner

__all__ = [
    "CleaningSettings",
    "GraphCleaner",
    "GraphSettings",
    "NoisyGraphClassifier",
    "Run",
    "__version__",
    "clean",
    "clean_embeddings",
    "train",
]

_ROOMS = {
    "CleaningSettings": ".config",
    "GraphCleaner": ".graph",
    "GraphSettings": ".config",
    "NoisyGraphClassifier": ".estimator",
    "Run": ".api",
    "clean": ".api",
    "clean_embeddings": ".cleaning",
    "train": ".api",
}


def __dir__() -> list[str]:
    """The names that `help` and completion show, whether loaded or not."""
    return sorted({*globals(), *__all__})


if not TYPE_CHECKING:  # for type checkers, every name would exist

    def __getattr__(name: str) -> Any:
        """Load a name on first use: importing torch takes seconds, during which Ctrl-C should work."""
        if name in _ROOMS:
            return getattr(import_module(_ROOMS[name], __package__), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
