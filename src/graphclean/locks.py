"""What one process at a time works with."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import InUseError

try:
    import fcntl
except ImportError:  # not on Windows: there two processes that write to the same place are not noticed
    fcntl = None  # type: ignore[assignment]


def lock(file: int, busy: str, *, wait: Callable[[str], None] | None = None) -> None:
    """Keep an open file to this process until it is closed; what another one keeps is refused as `busy`.

    With `wait`, that is told `busy` instead, and the other one is waited for.
    """
    if fcntl is None:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        if wait is None:
            raise InUseError(busy) from error
        wait(busy)
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError:  # a file system without locks
        return


@contextmanager
def lock_folder(folder: Path, busy: str, *, wait: Callable[[str], None] | None = None) -> Iterator[None]:
    """The same of a folder, for a while.

    One that its keeper has just removed is refused too, or with `wait` made again.
    """
    if fcntl is None:
        yield
        return
    while True:
        if wait is not None:
            folder.mkdir(parents=True, exist_ok=True)
        try:
            file = os.open(folder, os.O_RDONLY)
        except FileNotFoundError as error:
            if wait is not None:
                continue
            raise InUseError(busy) from error
        try:
            lock(file, busy, wait=wait)
            if _is_still(file, folder):
                yield
                return
        finally:
            os.close(file)
        if wait is None:
            raise InUseError(busy)


def _is_still(file: int, folder: Path) -> bool:
    """Whether a folder is the one that was opened."""
    try:
        return os.path.samestat(os.fstat(file), folder.stat())
    except FileNotFoundError:
        return False
