"""Processes that decode photos to small squares; they import neither torch nor the user's script."""

import hashlib
import os
import pickle
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import warnings
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from io import FileIO
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import RunStopped
from .images import DECODING, Decoder, Encoded, FilePart, UnreadableImage, decoded_bytes, read_image
from .measures import measure_photo
from .resize import to_array

PIPE_BYTES = 2**20
"""Size of the pipes between processes, where the system lets it be set."""
CRASHED = "it crashes the decoder"
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class PhotoJob:
    """How photos are decoded, and where their pixels go."""

    size: int
    """Side of the squares in pixels."""
    decoder: Decoder
    target: Path | None = None
    """The file of all squares, into which each is written at its row; None: they are returned."""
    discard: bool = False
    """Return no squares, only what becomes known of the photos."""
    measured: bool = True
    """Whether photos are measured, which takes longer than to decode them."""
    limit: int | None = None
    """Memory that one photo may take to decode; larger ones are left undecoded."""


class PhotoOutcome(NamedTuple):
    """What became of one photo."""

    problem: str | None = None
    """Why it can't be read."""
    digest: int = 0
    """The first 64 bits of BLAKE2b of the pixels."""
    measures: tuple[Any, ...] = ()
    """As in `MEASURES`, if it was measured."""
    large: int = 0
    """The memory it needs, if that is more than the limit: it was not decoded."""


class Decoded(NamedTuple):
    """What became of several photos."""

    outcomes: list[PhotoOutcome]
    pixels: npt.NDArray[np.uint8] | None
    """The squares of the readable ones; None if they were written to the target."""
    unwritten: str | None = None
    """Why the target could not take them, if so."""


def digest_of(square: npt.NDArray[np.uint8]) -> int:
    """The digest of one square, by which equal ones are found."""
    return int.from_bytes(hashlib.blake2b(square.tobytes(), digest_size=8).digest(), "little")


def decode_square(photo: Encoded, job: PhotoJob) -> tuple[npt.NDArray[np.uint8], PhotoOutcome]:
    """The center square of one photo, and what is known of it; raises `UnreadableImage`.

    A JPEG is decoded at 1/2, 1/4 or 1/8 of its size, if its shorter side stays at least that of the square.
    """
    opened = read_image(photo, job.size, job.decoder)
    square = np.ascontiguousarray(to_array(opened.image, job.size))
    measures = measure_photo(opened.image, opened.size) if job.measured else ()
    return square, PhotoOutcome(None, digest_of(square), measures)


class PhotoWorkers:
    """Worker processes, each led by one thread. Use as a context, or `close`.

    They start with the first photo, ignore Ctrl-C, and end when this process does, however it ends.
    """

    def __init__(self, count: int) -> None:
        self.count = max(count, 1)
        self.threads = ThreadPoolExecutor(self.count, thread_name_prefix="photos")
        self._own = threading.local()
        self._all: list[subprocess.Popen[bytes]] = []
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - for as long as there are processes
        self._closed = threading.Event()
        self._end = weakref.finalize(self, _end, self._all, self._errors, self._closed)

    def __enter__(self) -> "PhotoWorkers":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes, whatever they are doing."""
        self._end()
        self.threads.shutdown(cancel_futures=True)

    def decode(self, photos: Sequence[Encoded], rows: Sequence[int], job: PhotoJob) -> Decoded:
        """Decode photos in this thread's process; called in one of `threads`.

        Photos that need much memory are decoded one by one, with the whole machine's budget. One that crashes
        its process is unreadable; a process that was killed stops the run.
        """
        found = self._ask(photos, rows, replace(job, limit=DECODING.size // self.count))
        large = [place for place, outcome in enumerate(found.outcomes) if outcome.large]
        for place in large:
            with DECODING.reserved(found.outcomes[place].large):
                one = self._ask([photos[place]], [rows[place]], job)
            outcomes = [*found.outcomes]
            before = sum(out.problem is None and not out.large for out in outcomes[:place])
            outcomes[place] = one.outcomes[0]
            pixels = found.pixels
            if pixels is not None and one.pixels is not None:
                pixels = np.concatenate([pixels[:before], one.pixels, pixels[before:]])
            found = Decoded(outcomes, pixels, found.unwritten or one.unwritten)
        return found

    def _ask(self, photos: Sequence[Encoded], rows: Sequence[int], job: PhotoJob) -> Decoded:
        try:
            return self._exchange(photos, rows, job)
        except (EOFError, BrokenPipeError):
            self._require_crash()
        parts = []
        for photo, row in zip(photos, rows, strict=True):
            try:
                parts.append(self._exchange([photo], [row], job))
            except (EOFError, BrokenPipeError):
                self._require_crash()
                parts.append(Decoded([PhotoOutcome(CRASHED)], None))
        outcomes = [outcome for part in parts for outcome in part.outcomes]
        squares = [part.pixels for part in parts if part.pixels is not None]
        unwritten = next((part.unwritten for part in parts if part.unwritten), None)
        none = np.empty((0, 3, job.size, job.size), dtype=np.uint8)
        pixels = np.concatenate([none, *squares]) if job.target is None and not job.discard else None
        return Decoded(outcomes, pixels, unwritten)

    def _exchange(self, photos: Sequence[Encoded], rows: Sequence[int], job: PhotoJob) -> Decoded:
        process = self._process()
        requests: Any = process.stdin
        answers: Any = process.stdout
        _send(requests, (list(photos), list(rows), job))
        outcomes, unwritten = _receive(answers)
        if job.target is not None or job.discard:
            return Decoded(outcomes, None, unwritten)
        count = sum(outcome.problem is None and not outcome.large for outcome in outcomes)
        pixels = np.empty((count, 3, job.size, job.size), dtype=np.uint8)
        if count and answers.readinto(pixels.reshape(-1)) < pixels.nbytes:
            raise EOFError
        return Decoded(outcomes, pixels)

    def _process(self) -> "subprocess.Popen[bytes]":
        process: subprocess.Popen[bytes] | None = getattr(self._own, "process", None)
        if process is None:
            if self._closed.is_set():
                raise RunStopped("stopped while photos were read", 1)
            process = self._own.process = _start(self._errors)
            self._all.append(process)
        return process

    def _require_crash(self) -> None:
        """Forget a process that ended while it worked; the run stops, unless a photo crashed the process."""
        process, self._own.process = self._own.process, None
        code = _close(process)
        if self._closed.is_set():
            raise RunStopped("stopped while photos were read", 1)
        self._all.remove(process)
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip().splitlines()
        if code in (-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT, -signal.SIGFPE, -signal.SIGILL):
            return
        if code == -getattr(signal, "SIGKILL", 9):
            raise RunStopped(
                "a process that reads photos was killed, probably because memory ran out; fewer threads need "
                "less of it",
                1,
            )
        why = f": {said[-1]}" if said else ""
        raise RunStopped(f"a process that reads photos ended with code {code}{why}", 1)


def _start(errors: IO[bytes]) -> "subprocess.Popen[bytes]":
    """A process that runs `serve`; the user's script is not imported, so it needs no guard."""
    path = os.pathsep.join(part for part in sys.path if part)
    process = subprocess.Popen(
        [sys.executable, "-c", f"from {__name__} import serve; serve()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        start_new_session=True,  # what stops a job must not end this one before its last checkpoint
    )
    with suppress(ImportError, AttributeError, OSError):  # not on every system
        import fcntl

        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return process


def _close(process: "subprocess.Popen[bytes]") -> int:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError, ValueError):
                pipe.close()
    return process.wait()


def _end(processes: "list[subprocess.Popen[bytes]]", errors: IO[bytes], closed: threading.Event) -> None:
    closed.set()
    for process in [*processes]:
        process.kill()
    for process in [*processes]:
        _close(process)
    errors.close()


def _send(pipe: IO[bytes], value: Any) -> None:
    content = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    pipe.write(_LENGTH.pack(len(content)))
    pipe.write(content)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> Any:
    """What the other process of ours sent; nothing that was read from data."""
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    content = pipe.read(_LENGTH.unpack(head)[0])
    if len(content) < _LENGTH.unpack(head)[0]:
        raise EOFError
    return pickle.loads(content)


def serve() -> None:
    """The life of a worker process: decode what is asked for until its input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore")
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not mix with the answers
    targets: dict[Path, FileIO] = {}
    with suppress(EOFError, BrokenPipeError), requests, answers:
        while True:
            photos, rows, job = _receive(requests)
            squares: list[npt.NDArray[np.uint8]] = []
            outcomes = []
            unwritten = None
            for photo, row in zip(photos, rows, strict=True):
                square, outcome = _attempt(photo, job)
                outcomes.append(outcome)
                if square is None:
                    continue
                if job.target is None:
                    squares.append(square)
                elif unwritten is None:
                    try:
                        _write(targets, job.target, square, row)
                    except OSError as error:
                        unwritten = os.strerror(error.errno) if error.errno else str(error)
            _send(answers, (outcomes, unwritten))
            for square in squares if not job.discard else ():
                answers.write(square.reshape(-1))  # type: ignore[arg-type]
            answers.flush()


def _attempt(photo: Encoded, job: PhotoJob) -> tuple[npt.NDArray[np.uint8] | None, PhotoOutcome]:
    try:
        content = photo.read() if isinstance(photo, FilePart) else photo
        need = decoded_bytes(content, job.size) if job.limit is not None else 0
        if job.limit is not None and need > job.limit:
            return None, PhotoOutcome(large=need)
        return decode_square(content, job)
    except UnreadableImage as error:
        return None, PhotoOutcome(str(error))
    except MemoryError:
        return None, PhotoOutcome("too large for this machine's memory")


def _write(targets: dict[Path, FileIO], target: Path, square: npt.NDArray[np.uint8], row: int) -> None:
    """Write a square to its place; by `write`, which reports a full disk, where a memory map would crash."""
    if target not in targets:
        targets[target] = FileIO(target, "r+")
    targets[target].seek(row * square.nbytes)
    content = memoryview(square.reshape(-1))  # type: ignore[arg-type]
    while content:
        content = content[targets[target].write(content) :]
