"""The trainer, the seam for methods, and what a training run makes of arrays."""

from .outcome import DivergedError, EpochReport, InterruptedRun, Trained
from .trainer import Trainer

__all__ = ["DivergedError", "EpochReport", "InterruptedRun", "Trained", "Trainer"]
