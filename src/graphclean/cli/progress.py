"""Progress on the terminal, for work that takes over two seconds, and for training."""

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
"""Seconds before anything is shown: quick work stays quiet."""
BETWEEN_LINES = 15.0
"""Seconds between lines on one stage where there is no terminal, as in a log."""

NAME_COLUMN = TextColumn("{task.description}")
STAGE = (NAME_COLUMN, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
TRAINING_COLUMNS = (NAME_COLUMN,)
"""The numbers of an epoch leave no room for a bar."""
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Commands to a terminal, and marks that turn round what stands after them."""


def printable(text: str) -> str:
    """Text in which nothing is a command to the terminal: `\\x1b` where there was an escape character."""
    return CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def open_console(*, stderr: bool = False) -> Console:
    """A terminal that shows text as it is: numbers without color, and no picture for `:train:`."""
    return Console(stderr=stderr, highlight=False, emoji=False)


class StageProgress:
    """A bar a stage on stderr, shown late; plain lines now and then where stderr is not a terminal."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.console = open_console(stderr=True)
        self.quiet = quiet
        self.started = time.monotonic()
        self.stage = ""
        self.stage_began = self.last_line = self.started
        self.done_before = 0
        """How much of the stage was done when it was first told of."""
        self.bar: Progress | None = None
        self.task = TaskID(0)
        self.first_epoch: int | None = None
        """The first that was trained here; a resumed run has earlier ones."""
        self.epochs_since = self.started
        self.early: tuple[str, int, int] | None = None
        """The last that was told before anything is shown."""
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
        """Called by the work as it goes."""
        with self.lock:
            early = time.monotonic() - self.started < DELAY
            self.early = (stage, done, total) if early else None
            if not self.quiet and not early:
                self._show(stage, done, total)

    def _show_early(self) -> None:
        """A stage that began early and has not told more since, such as one that is a single long step."""
        with self.lock:
            if self.early is not None:
                self._show(*self.early)

    def _show(self, stage: str, done: int, total: int) -> None:
        if not self.console.is_terminal:
            self._tell(stage, done, total)
            return
        self._draw(stage, STAGE).update(self.task, completed=done, total=total)

    def _tell(self, stage: str, done: int, total: int) -> None:
        """A line as a stage begins, and then one now and then with how long it will take."""
        now = time.monotonic()
        if stage != self.stage:
            self.console.print(f"{stage} …")
            self.stage, self.stage_began, self.last_line, self.done_before = stage, now, now, done
        elif now - self.last_line >= BETWEEN_LINES and self.done_before < done < total:
            left = (now - self.stage_began) / (done - self.done_before) * (total - done)
            self.say(f"{stage}: {done:,} of {total:,}, {describe_seconds(left)} left")
            self.last_line = now

    def _draw(self, stage: str, columns: tuple[ProgressColumn, ...]) -> Progress:
        """One live line: of this stage, in place of an earlier one's."""
        if stage != self.stage or self.bar is None:
            self.close()
            self.bar, self.stage = Progress(*columns, console=self.console, transient=True), stage
            self.bar.start()
            self.task = self.bar.add_task(stage)
        return self.bar

    def close(self) -> None:
        """Take the live line away."""
        if self.bar is not None:
            self.bar.stop()
        self.bar = None

    def say(self, line: str) -> None:
        """A line of its own, at once."""
        if not self.quiet:
            self.console.print(printable(line), markup=False, soft_wrap=True)

    def epoch(self, metrics: dict[str, Any], total: int) -> None:
        """An epoch of training: a live line on a terminal, else a plain one now and then."""
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
    """The numbers of an epoch that a person watches."""
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
    """A time as a person says it."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
