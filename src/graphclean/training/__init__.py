"""The trainer, the seam for methods, and what a training run makes of arrays."""

from .trainer import DivergedError, EpochReport, InterruptedRun, Trained, Trainer

__all__ = ["DivergedError", "EpochReport", "InterruptedRun", "Trained", "Trainer"]
