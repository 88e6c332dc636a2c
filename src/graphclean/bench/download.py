"""Resumable downloads with verified checksums."""

import http.client
import os
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from .._files import locked
from ..data.decode import may_write, nearest_folder
from ..data.progress import Progress
from ..errors import InputError, arg
from .cifar import md5_of
from .registry import Archive, NamedSet

COPY_BYTES = 1 << 18
TIMEOUT = 30.0
"""Seconds without data before a connection is abandoned."""
SPARE = 1 << 24
"""Bytes of disk space to leave free."""


def fetch_set(named: NamedSet, root: Path, progress: Progress | None = None) -> tuple[Path, bool]:
    """Download a set's archive into `root/NAME` unless it exists; returns its path and whether it was
    downloaded.

    An interrupted download remains in a `.part` file, and the next call resumes it. The archive gets its name
    only after its size and MD5 have been verified.
    """
    folder, archive = root / named.name, named.archive
    target = root / archive.file if (root / archive.file).is_file() else folder / archive.file
    try:
        if _is_there(target, archive):
            return target, False
        if not may_write(folder):
            raise InputError(f"{folder}: can't be written; name another root with {arg('data_root')}")
        busy = f"waiting for another process that fetches {named.name}"
        tell = progress if progress is not None else lambda *_: None
        # Another process has finished the file by now, or this one resumes what it left.
        with _made(folder), locked(folder, busy, wait=lambda text: tell(text, 0, 1)):
            folder.mkdir(parents=True, exist_ok=True)  # the other process may have removed it
            if _is_there(target, archive):
                return target, False
            _fetch(named, target, progress)
    except OSError as error:
        raise InputError(f"{target}: can't be written: {error.strerror or error}") from error
    return target, True


def _is_there(target: Path, archive: Archive) -> bool:
    """Whether the file exists; anything else in its place raises `InputError`."""
    if target.exists() and (not target.is_file() or md5_of(target) != archive.md5):
        raise InputError(f"{target}: there, but not the published file; remove it and fetch again")
    return target.exists()


@contextmanager
def _made(folder: Path) -> Iterator[None]:
    """A folder that is removed again if it stays empty."""
    folder = folder.absolute()
    there = nearest_folder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    finally:
        for place in (folder, *folder.parents):
            if place == there:
                break
            with suppress(OSError):
                place.rmdir()


def _fetch(named: NamedSet, target: Path, progress: Progress | None) -> None:
    archive, part = named.archive, target.with_name(f"{target.name}.part")
    have = part.stat().st_size if part.exists() else 0
    need = archive.size - have + SPARE
    free = shutil.disk_usage(target.parent).free
    if free < need:
        raise InputError(f"{target.parent}: {need >> 20:,} MiB are needed, and {free >> 20:,} MiB are free")
    if have > archive.size:
        part.unlink()
    if have != archive.size:
        _download(named, part, progress)
    if md5_of(part) != archive.md5:
        part.unlink()
        raise InputError(f"{archive.url}: not the published file (its MD5 is another); nothing was kept")
    os.replace(part, target)


def _download(named: NamedSet, part: Path, progress: Progress | None) -> None:
    """Complete `part`, resuming if the server supports it."""
    url, size = named.archive.url, named.archive.size
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            if answer.headers.get_content_type() == "text/html":
                raise InputError(f"{url}: the server answered with a web page, not the file; try again later")
            if answer.status == http.client.PARTIAL_CONTENT:
                start, total = _content_range(answer.headers.get("Content-Range"), size)
                if start != have:
                    other = "the server answered with another part of the file"
                    raise InputError(f"{url}: {other}; try again, or remove {part} to start over")
            else:
                have, total = 0, size if answer.length is None else answer.length
            if total != size:
                offers = f"the server offers {total:,} bytes, and the published file has {size:,}"
                raise InputError(f"{url}: {offers}; it may have been replaced")
            with part.open("r+b" if have else "wb") as file:
                file.seek(have)
                _copy(answer, file, have, size, named, progress)
    except urllib.error.HTTPError as error:
        with error:
            if error.code == http.client.REQUESTED_RANGE_NOT_SATISFIABLE:
                part.unlink(missing_ok=True)  # it can't be resumed
            says = f"the server reports {error.code} {' '.join(str(error.reason).split())}"
            raise InputError(f"{url}: {says}; try again later") from error
    except urllib.error.URLError as error:
        raise InputError(f"{url}: can't be reached: {_reason(error.reason)}") from error
    except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
        raise _stopped(url, part, size) from error
    except InputError:
        raise
    except ValueError as error:  # an invalid redirect URL
        raise InputError(f"{url}: the server's answer can't be read: {error}; try again later") from error
    if part.stat().st_size < size:
        raise _stopped(url, part, size)


def _copy(
    answer: IO[bytes], file: IO[bytes], have: int, size: int, named: NamedSet, progress: Progress | None
) -> None:
    while have < size:
        try:
            block = answer.read(min(COPY_BYTES, size - have))
        except (OSError, http.client.HTTPException):
            return  # what has arrived is kept; its size shows that it is incomplete
        if not block:
            return
        file.write(block)
        have += len(block)
        if progress is not None:
            progress(f"fetching {named.name} (MiB)", have >> 20, size >> 20)


def _content_range(header: str | None, size: int) -> tuple[int, int]:
    """First byte and total size, from `bytes 5-9/10`, or `bytes 5-9/*` if it is `size`; else (-1, -1)."""
    found = re.fullmatch(r"bytes ([0-9]{1,18})-[0-9]{1,18}/([0-9]{1,18}|\*)", header or "")
    return (int(found[1]), size if found[2] == "*" else int(found[2])) if found else (-1, -1)


def _stopped(url: str, part: Path, size: int) -> InputError:
    have = part.stat().st_size if part.exists() else 0
    return InputError(f"{url}: stopped after {have:,} of {size:,} bytes; fetch again to continue from there")


def _reason(reason: object) -> str:
    """The reason of a urllib error as text."""
    return (reason.strerror if isinstance(reason, OSError) else None) or str(reason)
