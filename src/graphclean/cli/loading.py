"""Loading what does the work: torch and the like take seconds, and are loaded once there is work to do."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

SAID = {signal.SIGINT: "interrupted; nothing was written", signal.SIGTERM: "terminated"}


def _stop(number: int, _: FrameType | None) -> NoReturn:
    """End at once: an exception raised while torch is being loaded would abort the process."""
    print(f"graphclean: {SAID[signal.Signals(number)]}", file=sys.stderr, flush=True)
    os._exit(128 + number)


@contextmanager
def loading() -> Iterator[None]:
    """Around imports: signals are heard even while torch is still being loaded."""
    before = {number: signal.signal(number, _stop) for number in SAID}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
