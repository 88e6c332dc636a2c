"""Callbacks that report on a job."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..data.progress import Progress

Metrics = dict[str, Any]


@dataclass(frozen=True)
class Watcher:
    """Callbacks that report on training."""

    say: Callable[[str], None] = lambda _: None
    """Called with a line about the next step."""
    epoch: Callable[[Metrics, int], None] = lambda *_: None
    """Called with the metrics of an epoch and the number of epochs."""
    stage: Progress = lambda *_: None
    """Called with the progress of everything else."""
