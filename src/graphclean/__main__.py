"""`python -m graphclean`, and the command `graphclean`."""

import os
import signal
import sys
from types import FrameType
from typing import NoReturn


def _stop(*_: int | FrameType | None) -> NoReturn:
    """End at once: an exception raised while torch is being loaded would abort the process."""
    print("graphclean: interrupted; nothing was written", file=sys.stderr, flush=True)
    os._exit(130)


def main() -> NoReturn:
    """Run the command line; an interrupt is heard even while torch is still being loaded."""
    before = signal.signal(signal.SIGINT, _stop)
    from .cli import main as run

    signal.signal(signal.SIGINT, before)
    run()


if __name__ == "__main__":
    main()
