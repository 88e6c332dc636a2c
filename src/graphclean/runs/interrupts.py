"""How a run ends early, by a signal or an error in training: always with a one-line message."""

import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import torch

from ..config import Config
from ..distributed.group import LostProcessError, current
from ..embed import EmbeddingCache
from ..errors import RunStopped
from ..graph.votes import MOST
from ..training import DivergedError, InterruptedRun
from ..training.fit import Prepared
from .callbacks import Watcher

SIGNALS = (signal.SIGINT, signal.SIGTERM)
ONCE = 2.0
"""Seconds within which several signals to a group of processes count as one."""


class StopSignals:
    """Within the block, in the main thread: SIGINT or SIGTERM calls `stop`; a second one stops at once."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self.stop = stop
        self.number: int | None = None
        """The first signal received."""
        self.heard = 0.0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread() and current().leads:
            self._before = {number: signal.signal(number, self._hear) for number in SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _hear(self, number: int, _: FrameType | None) -> None:
        now, before = time.monotonic(), self.heard
        self.heard = now
        if self.number is not None and current().several and now - before < ONCE:
            return  # a scheduler and torchrun both pass the same signal on
        if self.number is not None:
            if number == signal.SIGTERM:
                sys.exit(128 + number)
            raise KeyboardInterrupt
        self.number = number
        self.stop()


def interrupt() -> NoReturn:
    """Interrupt work that can stop anywhere; while modules are being imported, the exception may get lost."""
    raise KeyboardInterrupt


def has_checkpoint(folder: Path) -> bool:
    """Whether there is a checkpoint to resume from."""
    return any(folder.glob("epoch-*"))


@contextmanager
def one_line_errors(config: Config, checkpoint: Path, *, again: str = "") -> Iterator[None]:
    """Turn errors of training into one line with advice; `again` is how to restart."""
    training = config.training
    try:
        yield
    except RunStopped:
        raise
    except DivergedError as error:
        kept = (
            "the last good checkpoint is kept" if has_checkpoint(checkpoint) else "there is no checkpoint yet"
        )
        raise RunStopped(
            f"{error}; {kept}; starting again with a learning rate lower than training.lr={training.lr:g} "
            "usually helps",
            1,
        ) from error
    except torch.OutOfMemoryError as error:
        # The graph's memory grows with its edges, all other memory with the batch.
        k = config.graph.k if config.graph.k != "auto" else MOST
        name, value = ("graph.k", k) if _in_graph(error) else ("training.batch_size", training.batch_size)
        raise RunStopped(
            f"the GPU's memory is too small: lower {name}, which is {value}, "
            f"as with {name}={max(value // 2, 2)}{again}",
            1,
        ) from error
    except RuntimeError as error:
        if "DefaultCPUAllocator" not in str(error):
            raise
        raise RunStopped(
            f"this machine's memory is too small; a training.batch_size lower than {training.batch_size} "
            f"needs less",
            1,
        ) from error


def _in_graph(error: BaseException) -> bool:
    """Whether the error was raised in the graph step."""
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_globals.get("__name__", "").startswith("graphclean.graph.") for frame, _ in frames)


@contextmanager
def stoppable(prepared: Prepared, again: str, watcher: Watcher) -> Iterator[None]:
    """During training, the first signal saves a checkpoint and stops; a second one stops at once."""

    def ask() -> None:
        prepared.trainer.request_stop()
        watcher.say("stopping after a checkpoint is saved; interrupt again to stop at once")

    with interruptible(again), StopSignals(ask) as stop, warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: watcher.say(f"warning: {message}")
        # A signal may come too late for the trainer to act on it; the run then still ends here.
        try:
            yield
        except InterruptedRun:
            current().follow_only()
        except LostProcessError as error:
            raise RunStopped(f"{error}; {again}", error.code) from error
        if stop.number is not None:
            done = f"{prepared.trainer.epoch} of {prepared.config.training.epochs} epochs are done"
            raise RunStopped(f"stopped; {done}; {again}", 128 + stop.number)


@contextmanager
def interruptible(again: str) -> Iterator[None]:
    """Turn a signal, which stops at once, into a one-line message."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as error:
        raise RunStopped(f"stopped at once; {again}", _code(error)) from error


def telling_what_is_kept(cache: EmbeddingCache) -> AbstractContextManager[None]:
    """`telling_what_is_left` of embeddings."""
    return telling_what_is_left(lambda: f"the embeddings of {cache.kept:,} photos" if cache.kept else None)


@contextmanager
def telling_what_is_left(left: Callable[[], str | None]) -> Iterator[None]:
    """Turn a signal before there is a run into a one-line message, if work is `left` for the next time."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as error:
        kept = left()
        if kept is None:
            raise
        raise RunStopped(
            f"stopped; {kept} are kept, and the same command continues from there", _code(error)
        ) from error


def _code(stopped: BaseException) -> int:
    return 128 + (signal.SIGINT if isinstance(stopped, KeyboardInterrupt) else signal.SIGTERM)
