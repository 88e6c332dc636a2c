"""Commands of graphclean in forked children, which start at once and may be killed at any point."""

import errno
import mmap
import os
import re
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sklearn.decomposition
import sklearn.manifold  # noqa: F401

# Loaded once, before children are forked: most of a short command is loading.
from graphclean._files import LOCK, is_passing
from graphclean.cli.app import main

PATIENCE = 120.0
"""Seconds after which a command is taken for hung."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
CHANGES = {
    "os.mkdir",
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.truncate",
    "os.chmod",
}
"""Audit events by which a file system changes, besides opening for writing."""
HIDDEN = re.compile(r"/\.[^/\s]+\.[0-9a-f]{8}/")
ESCAPED = 99
"""Exit code of a child in which an exception went past the command line."""


@dataclass(frozen=True)
class Ended:
    """How a command ended; without a code where it hung. A negative code is that of a signal."""

    code: int | None
    out: str
    err: str
    seconds: float
    peak_mib: float = 0.0

    @property
    def wrong(self) -> str | None:
        """What a command may not do, however it is called: hang, or end in more than a line, or by a bug."""
        return self.wrong_unless(0, 2)

    def wrong_unless(self, *codes: int) -> str | None:
        """The same where other exit codes are right."""
        last = self.err.strip().splitlines()[-1:] or [""]
        if self.code is None:
            return "hang"
        if self.code not in codes or "unexpected error" in self.err or "Traceback" in self.err:
            return f"exit code {self.code}: {last[0][:300]}"
        if self.code > 0 and (self.err.count("\n") != 1 or not self.err.startswith("graphclean: ")):
            return f"not one line: {self.err[:300]!r}"
        return f"a hidden folder is named: {last[0][:300]}" if HIDDEN.search(self.err) else None


class Counter:
    """Changes to a folder, as Python makes them, in a child; at one of them something may be done."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 8)

    @property
    def count(self) -> int:
        """As far as the child came."""
        return int.from_bytes(self._memory[:8], "little")

    def watch(self, folder: Path, at: int = -1, act: Callable[[], None] | None = None) -> None:
        """In the child: from now on; `act` is called before the change of that number is made."""
        root = os.path.join(os.path.realpath(folder), "")

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            if event not in CHANGES and not (event == "open" and (arguments[2] or 0) & WRITING):
                return
            place = arguments[0]
            if not isinstance(place, str | bytes | os.PathLike):
                return
            if not os.path.abspath(os.fsdecode(place)).startswith(root):
                return
            number = self.count
            self._memory[:8] = (number + 1).to_bytes(8, "little")
            if number == at and act is not None:
                act()

        sys.addaudithook(hook)


def die() -> None:
    """As the kernel ends a process that it has no memory for."""
    os.kill(os.getpid(), signal.SIGKILL)


def fill_up() -> None:
    """What the system says where a disk is full."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def start(
    words: Sequence[str], folder: Path, prepare: Callable[[], None] = lambda: None, number: int = 0
) -> int:
    """A child that runs a command in a folder; what it prints is in files beside that, by its `number`."""
    sys.stdout.flush()
    sys.stderr.flush()
    process = os.fork()
    if process:
        return process
    code = ESCAPED
    try:
        os.chdir(folder)
        for name, place in (("out", 1), ("err", 2)):
            file = os.open(printed(folder, name, number), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(file, place)
        prepare()
        # What Python knows of the old ones, such as that one can seek in them, need not hold any more.
        sys.stdout, sys.stderr = (open(number, "w", buffering=1, closefd=False) for number in (1, 2))  # noqa: SIM115
        main(list(words))
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1 if stop.code else 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def printed(folder: Path, name: str, number: int = 0) -> Path:
    """Where a command in a folder prints to."""
    return folder.with_name(f"{folder.name}-{name}-{number}")


def wait(process: int, folder: Path, *, kill_after: float | None = None, number: int = 0) -> Ended:
    """Until a child ends, or is killed at some time; one that hangs is killed too."""
    begun = time.monotonic()
    hung = False
    killed = False
    while True:
        done, status, used = os.wait4(process, os.WNOHANG)
        spent = time.monotonic() - begun
        if done:
            break
        if kill_after is not None and spent >= kill_after and not killed:
            os.kill(process, signal.SIGKILL)
            killed = True
        elif spent > PATIENCE and not hung:
            os.kill(process, signal.SIGKILL)
            hung = True
        time.sleep(0.002)
    out, err = (_take(printed(folder, name, number)) for name in ("out", "err"))
    code = None if hung else os.waitstatus_to_exitcode(status)
    return Ended(code, out, err, spent, used.ru_maxrss / 1024)


def _take(file: Path) -> str:
    text = file.read_text(errors="replace") if file.exists() else ""  # killed before it was made
    file.unlink(missing_ok=True)
    return text


def run(
    words: Sequence[str],
    folder: Path,
    prepare: Callable[[], None] = lambda: None,
    *,
    kill_after: float | None = None,
) -> Ended:
    """A command from its start to its end."""
    return wait(start(words, folder, prepare), folder, kill_after=kill_after)


def small_files(most: int) -> Callable[[], None]:
    """In a child: no file may become larger than so many bytes, as on a disk that is nearly full."""

    def prepare() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    return prepare


def left_over(folder: Path) -> list[str]:
    """Locks and drafts that are still in a folder."""
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob(".*")
        if is_passing(path.name) or path.name == LOCK
    )
