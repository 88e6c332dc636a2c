"""The Python API: the commands as functions, and runs as objects."""

from .jobs import clean, train
from .run import Run

__all__ = ["Run", "clean", "train"]
