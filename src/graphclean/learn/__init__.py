"""Eq. 5-7 of the paper and the training loop around them."""

from .engine import DivergedError, EpochReport, InterruptedRun, Trained, Trainer
from .settings import LearnSettings

__all__ = ["DivergedError", "EpochReport", "InterruptedRun", "LearnSettings", "Trained", "Trainer"]
