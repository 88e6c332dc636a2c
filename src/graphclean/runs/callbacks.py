"""Who is told what, as a job goes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..data.progress import Progress

Metrics = dict[str, Any]


@dataclass(frozen=True)
class Watcher:
    """Who is told what, as training goes."""

    say: Callable[[str], None] = lambda _: None
    """A line on what is about to happen."""
    epoch: Callable[[Metrics, int], None] = lambda *_: None
    """The metrics of an epoch, and how many epochs there are."""
    stage: Progress = lambda *_: None
    """All other work."""
