"""Jobs from a source to a run folder: what the front doors call."""

from .audit import clean
from .comparison import Demo, demo
from .exporting import Exported, export
from .prediction import load_predictor, predict
from .training import TrainingRun, train
from .watcher import Watcher

__all__ = [
    "Demo",
    "Exported",
    "TrainingRun",
    "Watcher",
    "clean",
    "demo",
    "export",
    "load_predictor",
    "predict",
    "train",
]
