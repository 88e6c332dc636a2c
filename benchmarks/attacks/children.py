"""Run commands of graphclean in forked children, which start immediately and can be killed at any point."""

import contextlib
import errno
import importlib
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

from graphclean._files import LOCK, is_passing
from graphclean.cli.app import NO_OUTPUT, main

PATIENCE = 120.0
"""Seconds after which a command counts as hung."""
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
"""Audit events that change the file system, besides opening for writing."""
HIDDEN = re.compile(r"/\.[^/\s]+\.[0-9a-f]{8}/")
WITH_THREADS = {"onnxruntime"}
"""Packages that start threads when they are imported, which processes to fork from should not have."""
ESCAPED = 99
"""Exit code of a child if an exception escapes the command line."""


@dataclass(frozen=True)
class Ended:
    """How a command ended; the code is None after a hang, and negative for a signal."""

    code: int | None
    out: str
    err: str
    seconds: float
    peak_mib: float = 0.0

    @property
    def wrong(self) -> str | None:
        """What no command may do, however it is called: hang, print more than one line of error, or expose a
        bug.
        """
        return self.wrong_unless(0, 2)

    def wrong_unless(self, *codes: int) -> str | None:
        """The same with other expected exit codes."""
        last = self.err.strip().splitlines()[-1:] or [""]
        if self.code is None:
            return "hang"
        # Output goes where there is room, so that such a message is of a file, which it should name.
        unexpected = any(text in self.err for text in ("unexpected error", "Traceback", NO_OUTPUT))
        if self.code not in codes or unexpected:
            return f"exit code {self.code}: {last[0][:300]}"
        if self.code > 0 and (self.err.count("\n") != 1 or not self.err.startswith("graphclean: ")):
            return f"not one line: {self.err[:300]!r}"
        return f"a hidden folder is named: {last[0][:300]}" if HIDDEN.search(self.err) else None


class Counter:
    """Counts the changes that Python makes to a folder in a child, and can act at one of them."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 8)

    @property
    def count(self) -> int:
        """The number of changes made so far by the child."""
        return int.from_bytes(self._memory[:8], "little")

    def watch(self, folder: Path, at: int = -1, act: Callable[[], None] | None = None) -> None:
        """Start counting, in the child; `act` is called before the change with number `at`."""
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


def note_imports(file: Path) -> Callable[[], None]:
    """In a child, write the name of every module that it imports to a file."""

    def prepare() -> None:
        to = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            if event == "import":
                os.write(to, f"{arguments[0]}\n".encode())

        sys.addaudithook(hook)

    return prepare


def import_noted(file: Path) -> None:
    """Import what a child imported, so that the next children start with it."""
    for name in dict.fromkeys(file.read_text().split()):
        if name.partition(".")[0] not in WITH_THREADS:
            with contextlib.suppress(Exception):  # optional, and missing for the child as well
                importlib.import_module(name)


def die() -> None:
    """End like a process killed by the kernel for lack of memory."""
    os.kill(os.getpid(), signal.SIGKILL)


def fill_up() -> None:
    """Raise the error that the system reports when the disk is full."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def fork(work: Callable[[], None]) -> int:
    """Work in a child process."""
    sys.stdout.flush()
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def join(processes: Sequence[int]) -> None:
    """Wait for the children of `fork`, which all have to succeed."""
    codes = [os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) for process in processes]
    if any(codes):
        raise RuntimeError(f"a process of the attack ended with {next(code for code in codes if code)}")


def start(
    words: Sequence[str], folder: Path, prepare: Callable[[], None] = lambda: None, number: int = 0
) -> int:
    """Run a command in a folder in a child, with its output in files next to the folder, by `number`."""
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
        # What Python knows about the old streams, such as whether they are seekable, may no longer hold.
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
    """The output file of a command run in a folder."""
    return folder.with_name(f"{folder.name}-{name}-{number}")


def wait(process: int, folder: Path, *, kill_after: float | None = None, number: int = 0) -> Ended:
    """Wait until a child ends; kill it after the given time, or if it hangs."""
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
    text = file.read_text(errors="replace") if file.exists() else ""  # missing if killed early
    file.unlink(missing_ok=True)
    return text


def run(
    words: Sequence[str],
    folder: Path,
    prepare: Callable[[], None] = lambda: None,
    *,
    kill_after: float | None = None,
) -> Ended:
    """Run a command to its end."""
    return wait(start(words, folder, prepare), folder, kill_after=kill_after)


def small_files(most: int) -> Callable[[], None]:
    """Limit the size of files in a child, as on a disk that is nearly full."""

    def prepare() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))

    return prepare


def left_over(folder: Path) -> list[str]:
    """Locks and drafts that remain in a folder."""
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob(".*")
        if is_passing(path.name) or path.name == LOCK
    )
