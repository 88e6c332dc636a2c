"""Disks that are really full: small file systems in memory, mounted for each case."""

import contextlib
import ctypes
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

from .failures import Bench, piped, share_out, try_places
from .jobs import Job, data_of
from .tally import Clock, Tally

PAGE = 4096
ROOM = (
    *(("bytes", PAGE * pages) for pages in (0, 1, 2, 3, 4, 6, 8, 16, 32, 64, 128)),
    *(("files", count) for count in (0, 1, 2, 3, 5, 8, 12)),
)
"""What is left on the disk: room for content, or for files."""
AMPLE = 1 << 28
NEW_NAMESPACE, PRIVATE = 0x20000, 0x44000  # CLONE_NEWNS; MS_REC | MS_PRIVATE
REMOUNT = 32
DETACH = 2


class MountError(Exception):
    """Why this process can't mount file systems."""


def fill_disks(bench: Bench, seed: int, clock: Clock) -> Tally:
    """Commands on a disk that is too small for them, which then has room again."""
    tally = Tally("a full disk, mounted for it")
    try:
        _own_mounts()
    except MountError as refused:
        tally.facts["not run"] = f"no file system can be mounted: {refused}"
        return tally
    cases = share_out(bench, random.Random(seed), lambda _: ROOM)
    full: dict[str, int] = {}

    def attack(job: Job, room: tuple[str, int]) -> None:
        with _disk(bench) as folder:
            before = data_of(folder)
            _resize(folder, *_limits(folder, *room))
            done = piped(job, folder)
            full[job.name] = full.get(job.name, 0) + (done.code != 0)
            _resize(folder, AMPLE, AMPLE)
            case = f"{job.name}, room for {room[1]} {room[0]}"
            tally.count(case, done.wrong, *bench.check(job, folder, before))

    try_places(tally, clock, cases, attack)
    tally.facts["refused for lack of room"] = full
    return tally


def _limits(folder: Path, kind: str, room: int) -> tuple[int, int]:
    """Size and number of files at which a disk has this much room left."""
    state = os.statvfs(folder)
    used = (state.f_blocks - state.f_bfree) * state.f_frsize
    files = state.f_files - state.f_ffree
    return (used + room, AMPLE) if kind == "bytes" else (AMPLE, files + room)


@contextlib.contextmanager
def _disk(bench: Bench) -> Iterator[Path]:
    folder = bench.place()
    folder.mkdir()
    _mount(folder, f"size={AMPLE},nr_inodes={AMPLE}")
    try:
        shutil.copytree(bench.base, folder, symlinks=True, dirs_exist_ok=True)
        yield folder
    finally:
        _checked(ctypes.CDLL(None, use_errno=True).umount2(os.fsencode(folder), DETACH))
        folder.rmdir()


def _own_mounts() -> None:
    """Let no other process see what is mounted here, so that nothing remains, however this one ends."""
    try:
        system = ctypes.CDLL(None, use_errno=True)
        _checked(system.unshare(NEW_NAMESPACE))
        _checked(system.mount(b"none", b"/", None, PRIVATE, None))
    except (AttributeError, OSError) as error:  # not Linux, or without the right
        raise MountError(getattr(error, "strerror", None) or "not on this system") from error


def _mount(folder: Path, options: str, flags: int = 0) -> None:
    system = ctypes.CDLL(None, use_errno=True)
    _checked(system.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", flags, options.encode()))


def _resize(folder: Path, size: int, files: int) -> None:
    _mount(folder, f"size={size},nr_inodes={files}", REMOUNT)


def _checked(code: int) -> None:
    if code != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
