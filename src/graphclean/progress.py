"""Progress on the terminal, for work that takes over two seconds."""

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

DELAY = 2.0
"""Seconds before anything is shown: quick work stays quiet."""


class StageProgress:
    """A bar a stage on stderr, shown late; one plain line a stage where stderr is not a terminal."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.console = Console(stderr=True)
        self.quiet = quiet
        self.started = time.monotonic()
        self.stage = ""
        self.bar: Progress | None = None
        self.task: TaskID | None = None

    def __enter__(self) -> "StageProgress":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.bar is not None:
            self.bar.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Called by the work as it goes."""
        if self.quiet or time.monotonic() - self.started < DELAY:
            return
        if not self.console.is_terminal:
            if stage != self.stage:
                self.console.print(f"{stage} …", highlight=False)
            self.stage = stage
            return
        if self.bar is None:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
            )
            self.bar = Progress(*columns, console=self.console, transient=True)
            self.bar.start()
        if stage != self.stage or self.task is None:
            if self.task is not None:
                self.bar.remove_task(self.task)
            self.task, self.stage = self.bar.add_task(stage, total=total), stage
        self.bar.update(self.task, completed=done, total=total)
