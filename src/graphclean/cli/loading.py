"""Import heavy packages such as torch, which take seconds, only when they are needed."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

SAID = {signal.SIGINT: "interrupted; nothing was written", signal.SIGTERM: "terminated"}


def _stop(number: int, _: FrameType | None) -> NoReturn:
    """Exit at once: an exception raised during the import of torch would abort the process."""
    print(f"graphclean: {SAID[signal.Signals(number)]}", file=sys.stderr, flush=True)
    os._exit(128 + number)


@contextmanager
def loading() -> Iterator[None]:
    """Wrap imports, so that signals are handled even during the import of torch."""
    before = {number: signal.signal(number, _stop) for number in SAID}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
