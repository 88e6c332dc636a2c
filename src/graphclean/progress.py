"""Progress on the terminal, for work that takes over two seconds, and for training."""

import time
from types import TracebackType
from typing import Any

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
        self.first_epoch: int | None = None
        """The first that was trained here; a resumed run has earlier ones."""
        self.epochs_since = self.started

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

    def say(self, line: str) -> None:
        """A line of its own, at once."""
        if not self.quiet:
            self.console.print(line, highlight=False, markup=False, soft_wrap=True)

    def epoch(self, metrics: dict[str, Any], total: int) -> None:
        """An epoch of training: a live bar, or now and then a plain line."""
        if self.quiet:
            return
        done = int(metrics["epoch"])
        if self.first_epoch is None:
            self.first_epoch, self.epochs_since = done, time.monotonic() - float(metrics["seconds"])
        text = describe_epoch(metrics, total)
        if self.console.is_terminal:
            self.started = min(self.started, time.monotonic() - DELAY)
            self("training", done, total)
            if self.bar is not None and self.task is not None:
                self.bar.update(self.task, description=text, refresh=True)
            return
        tenth = max(total // 10, 1)
        if done in (self.first_epoch, total) or done % tenth == 0:
            spent = (time.monotonic() - self.epochs_since) / (done - self.first_epoch + 1)
            left = f", {describe_seconds(spent * (total - done))} left" if done < total else ""
            self.say(text + left)


def describe_epoch(metrics: dict[str, Any], total: int) -> str:
    """The numbers of an epoch that a person watches."""
    parts = [
        f"epoch {metrics['epoch']} of {total}",
        f"loss {metrics['loss']:.3f}",
        f"{metrics['selected']:,} of {metrics['samples']:,} selected",
        f"{100 * metrics['estimated_noise']:.1f} % of labels wrong",
    ]
    if "trusted_accuracy" in metrics:
        parts.append(f"trusted {100 * metrics['trusted_accuracy']:.1f} %")
    return ", ".join(parts)


def describe_seconds(seconds: float) -> str:
    """A time as a person says it."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
