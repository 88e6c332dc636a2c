"""Python's front door: what every command does, with runs as objects."""

from .jobs import clean, train
from .run import Run

__all__ = ["Run", "clean", "train"]
