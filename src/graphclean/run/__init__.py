"""Jobs from a source to a run folder: what the front doors call."""

from ..sources import source_name
from .apply import Applied, apply
from .audit import clean
from .comparison import Demo, demo
from .exporting import Exported, export
from .placing import Form
from .prediction import load_predictor, predict
from .training import TrainingRun, train
from .watcher import Watcher

__all__ = [
    "Applied",
    "Demo",
    "Exported",
    "Form",
    "TrainingRun",
    "Watcher",
    "apply",
    "clean",
    "demo",
    "export",
    "load_predictor",
    "predict",
    "source_name",
    "train",
]
