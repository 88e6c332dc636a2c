"""Progress on the terminal, for work that takes over two seconds and for training."""

import re
import threading
import time
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

DELAY = 2.0
"""Seconds before anything is shown, so that quick work shows nothing."""
BETWEEN_LINES = 15.0
"""Seconds between lines for one stage if the output is not a terminal, as in a log."""

NAME_COLUMN = TextColumn("{task.description}")
STAGE = (NAME_COLUMN, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
TRAINING_COLUMNS = (NAME_COLUMN,)
"""Columns for training: the numbers of an epoch leave no room for a bar."""
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters, and marks that reverse the direction of the following text."""


def printable(text: str) -> str:
    """Text without control characters: `\\x1b` in place of an escape character."""
    return CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def open_console(*, stderr: bool = False) -> Console:
    """A console that prints text unchanged: no color for numbers, and no emoji for `:train:`."""
    return Console(stderr=stderr, highlight=False, emoji=False)


class StageProgress:
    """One bar per stage on stderr, shown after a delay; occasional plain lines if it is not a terminal."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.console = open_console(stderr=True)
        self.quiet = quiet
        self.started = time.monotonic()
        self.stage = ""
        self.stage_began = self.last_line = self.started
        self.done_before = 0
        """Progress of the stage when it was first reported."""
        self.bar: Progress | None = None
        self.task = TaskID(0)
        self.first_epoch: int | None = None
        """The first epoch trained by this process; a resumed run has earlier ones."""
        self.epochs_since = self.started
        self.early: tuple[str, int, int] | None = None
        """The last report received before anything is shown."""
        self.lock = threading.RLock()
        self.timer = threading.Timer(DELAY, self._show_early)
        self.timer.daemon = True

    def __enter__(self) -> "StageProgress":
        if not self.quiet:
            self.timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.timer.cancel()
        with self.lock:
            self.early = None
            self.close()

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Report progress; called by the running job."""
        with self.lock:
            early = time.monotonic() - self.started < DELAY
            self.early = (stage, done, total) if early else None
            if not self.quiet and not early:
                self._show(stage, done, total)

    def _show_early(self) -> None:
        """Show a stage that began before the delay ended and has not reported since, such as a single long
        step.
        """
        with self.lock:
            if self.early is not None:
                self._show(*self.early)

    def _show(self, stage: str, done: int, total: int) -> None:
        if not self.console.is_terminal:
            self._tell(stage, done, total)
            return
        self._draw(stage, STAGE).update(self.task, completed=done, total=total)

    def _tell(self, stage: str, done: int, total: int) -> None:
        """Print a line when a stage begins, and now and then one with the remaining time."""
        now = time.monotonic()
        if stage != self.stage:
            self.console.print(f"{stage} …")
            self.stage, self.stage_began, self.last_line, self.done_before = stage, now, now, done
        elif now - self.last_line >= BETWEEN_LINES and self.done_before < done < total:
            left = (now - self.stage_began) / (done - self.done_before) * (total - done)
            self.say(f"{stage}: {done:,} of {total:,}, {describe_seconds(left)} left")
            self.last_line = now

    def _draw(self, stage: str, columns: tuple[ProgressColumn, ...]) -> Progress:
        """The live line of this stage, which replaces that of an earlier one."""
        if stage != self.stage or self.bar is None:
            self.close()
            self.bar, self.stage = Progress(*columns, console=self.console, transient=True), stage
            self.bar.start()
            self.task = self.bar.add_task(stage)
        return self.bar

    def close(self) -> None:
        """Remove the live line."""
        if self.bar is not None:
            self.bar.stop()
        self.bar = None

    def say(self, line: str) -> None:
        """Print a line immediately."""
        if not self.quiet:
            self.console.print(printable(line), markup=False, soft_wrap=True)

    def epoch(self, metrics: dict[str, Any], total: int) -> None:
        """Show an epoch of training: as a live line on a terminal, otherwise as an occasional plain one."""
        if self.quiet:
            return
        with self.lock:
            self.early = None
        done = int(metrics["epoch"])
        if self.first_epoch is None:
            self.first_epoch, self.epochs_since = done, time.monotonic() - float(metrics["seconds"])
        spent = (time.monotonic() - self.epochs_since) / (done - self.first_epoch + 1)
        text = describe_epoch(metrics, total, spent * (total - done))
        if self.console.is_terminal:
            self._draw("training", TRAINING_COLUMNS).update(self.task, description=text, refresh=True)
        elif done in (self.first_epoch, total) or done % max(total // 10, 1) == 0:
            self.say(text)


def describe_epoch(metrics: dict[str, Any], total: int, seconds_left: float) -> str:
    """The main metrics of an epoch as text."""
    parts = [f"epoch {metrics['epoch']} of {total}"]
    if metrics["epoch"] < total:
        parts.append(f"{describe_seconds(seconds_left)} left")
    if "validation_accuracy" in metrics:
        parts.append(f"validation {100 * metrics['validation_accuracy']:.1f} %")
    parts += [
        f"loss {metrics['loss']:.3f}",
        f"{metrics['selected']:,} of {metrics['samples']:,} selected",
        f"{100 * metrics['estimated_noise']:.1f} % of labels not trusted",
    ]
    if metrics["empty_classes"]:
        count = metrics["empty_classes"]
        parts.append(f"nothing selected of {count} {'class' if count == 1 else 'classes'}")
    return ", ".join(parts)


def describe_seconds(seconds: float) -> str:
    """A human-readable duration."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
