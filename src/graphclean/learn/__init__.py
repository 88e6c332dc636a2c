"""Eq. 5-7 of the paper and the training loop around them."""

from .engine import DivergedError, EpochReport, Trained, Trainer
from .settings import LearnSettings

__all__ = ["DivergedError", "EpochReport", "LearnSettings", "Trained", "Trainer"]
