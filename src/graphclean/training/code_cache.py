"""A per-user cache of compiled code, reused by later runs.

There is one folder per version of PyTorch, Python and this package and per kind of device; its contents are
PyTorch's. PyTorch unpickles what it finds there, so the folder must not be writable by others, and is never
part of a run.
"""

import os
import platform
import re
import shutil
import stat
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import torch

from .._files import reason_of, user_cache
from .._version import __version__
from ..data.decode import may_write
from ..embed.cache import size_limit
from ..errors import DataWarning, InputError

CODE_FOLDER = "compiled"
NAMED, TRITON = "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"
"""Environment variables for the cache folders of PyTorch and Triton; the user's own values are kept."""


@dataclass(frozen=True)
class KeptCode:
    """All code for one kind of device and one set of versions."""

    name: str
    size: int
    """In bytes."""
    used: datetime


@contextmanager
def keeping_code(device: torch.device, *, wanted: bool = True) -> Iterator[None]:
    """Within the context, read compiled code from the user's cache and add new code to it.

    If that folder can't be created, or others may write to it, PyTorch's default folder is used, with a
    warning that gives the reason; with `GRAPHCLEAN_CACHE_GB` = 0 it is used without a warning.
    """
    before = {name: os.environ.get(name) for name in (NAMED, TRITON)}
    if not wanted or _user_named(before[NAMED]) or size_limit() <= 0:
        yield
        return
    folder = code_folder(device)
    try:
        _own(folder)
    except OSError as error:
        reason = reason_of(error)
        warnings.warn(f"compiled code is not kept for the next time: {reason}", DataWarning, stacklevel=3)
        yield
        return
    os.environ[NAMED] = str(folder)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:  # PyTorch sets Triton's folder, too
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def code_folder(device: torch.device) -> Path:
    """The folder for a device and this version of PyTorch, Python and the package."""
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        kind = f"{torch.cuda.get_device_name(device)}-sm{major}{minor}"
    else:
        kind = f"{platform.machine()}-{torch.backends.cpu.get_cpu_capability()}"
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    name = f"{kind}-torch{torch.__version__}-python{python}-graphclean{__version__}"
    return cache_folder() / re.sub(r"[^\w.+-]+", "-", name)


def cache_folder() -> Path:
    """The parent of the folders of all devices and versions."""
    return user_cache() / CODE_FOLDER


def list_code() -> list[KeptCode]:
    """The cached code, most recently used first."""
    entries = []
    for folder in _folders():
        status = [found for path in (folder, *folder.rglob("*")) if (found := _status(path))]
        used = datetime.fromtimestamp(max(each.st_mtime for each in status), UTC)
        size = sum(each.st_size for each in status if stat.S_ISREG(each.st_mode))
        entries.append(KeptCode(folder.name, size, used))
    return sorted(entries, key=lambda entry: entry.used, reverse=True)


def clear_code() -> int:
    """Remove all cached code; returns the number of bytes freed."""
    freed = sum(entry.size for entry in list_code())
    for folder in _folders():
        try:
            shutil.rmtree(folder)
        except OSError as error:
            raise InputError(f"{folder}: can't be removed: {reason_of(error)}") from error
    return freed


def _user_named(place: str | None) -> bool:
    """Whether the user chose the folder: PyTorch itself sets the variable to its default on first use."""
    usual = Path(tempfile.gettempdir()) / "torchinductor_"
    return place is not None and not place.startswith(str(usual))


def _own(folder: Path) -> None:
    """Create a folder in a cache that only the user can write to; raises OSError if that is impossible."""
    above = folder.parent
    if not may_write(above):
        raise PermissionError(None, f"{above}: not writable")
    above.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        above.mkdir(mode=0o700)
    status = above.lstat()
    shared = hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & 0o022)
    if not stat.S_ISDIR(status.st_mode) or shared:
        raise PermissionError(None, f"others may write to {above}, or it is no folder; remove it")
    above.chmod(0o700)
    folder.mkdir(mode=0o700, exist_ok=True)
    os.utime(folder)


def _folders() -> list[Path]:
    """The folders in the cache; none if it is a link or can't be read."""
    try:
        found = sorted(cache_folder().iterdir()) if not cache_folder().is_symlink() else []
        return [path for path in found if path.is_dir() and not path.is_symlink()]
    except OSError:
        return []


def _status(path: Path) -> os.stat_result | None:
    """None if another process has just removed the file."""
    try:
        return path.lstat()
    except OSError:
        return None
