"""The trainer, the interface for methods, and training jobs on arrays."""

from .outcome import DivergedError, EpochReport, InterruptedRun, Trained
from .trainer import Trainer

__all__ = ["DivergedError", "EpochReport", "InterruptedRun", "Trained", "Trainer"]
