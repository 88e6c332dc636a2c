"""Files that are written atomically, read as untrusted, and locked against other processes."""

import ctypes
import errno
import hashlib
import json
import math
import os
import re
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout
from safetensors import SafetensorError, safe_open

from ._shapes import JsonObject, check_shape
from .errors import InputError, InUseError, WriteError, parse_json

if TYPE_CHECKING:
    from torch import Tensor

LOCK = "graphclean.lock"
"""A file in every draft, which distinguishes drafts from other hidden folders."""
DRAFT = re.compile(r"\.(.+)\.[0-9a-f]{8}")
"""The name of a draft contains that of its target, so that content moved aside can be put back."""
NEW, OLD, MOVED = "new", "old", "moved"
"""Entries of a draft: the new content; the old content while it is moved aside; all of it, once moved."""

KEY = "graphclean"
"""Our metadata key in safetensors files."""


@contextmanager
def locked(path: Path, busy: str, *, wait: Callable[[str], None] | None = None) -> Iterator[None]:
    """Lock a file or folder; if another process holds the lock, raise `InUseError` with the message `busy`.

    With `wait`, that is called with `busy` instead, and the lock is awaited. The lock is a hidden file
    next to the path and is removed afterwards: whoever sees the path sees it too, including other users and
    machines.
    """
    lock = _lock_of(path)
    blocking = False
    made = [folder for folder in Path(lock.lock_file).parents if not folder.exists()]
    try:
        while not lock.is_locked:
            try:
                _make_folder(Path(lock.lock_file).parent)
                lock.acquire(blocking=blocking)
            except Timeout as error:
                if wait is None:
                    raise InUseError(busy) from error
                wait(busy)
                blocking = True
            except (FileNotFoundError, FileExistsError):  # another process has just removed the folder
                continue
            except OSError:  # a folder that can't be written, or a file system without locks
                break
        yield
    finally:
        _release(lock)
        _remove_empty(made)


def check_unlocked(path: Path, busy: str) -> None:
    """Raise `InUseError` with the message `busy` if another process holds the lock; nothing is written."""
    if Path(_lock_of(path).lock_file).exists():
        with locked(path, busy):
            pass


def _lock_of(path: Path) -> FileLock:
    real = Path(os.path.realpath(path))
    return FileLock(real.with_name(f".{real.name}.lock"), mode=0o666)


def _release(lock: FileLock) -> None:
    if lock.is_locked:
        with suppress(OSError):  # before the release: then it may be another's; Windows removes it itself
            os.unlink(lock.lock_file)
        lock.release()


def is_passing(name: str) -> bool:
    """Whether a file is a lock or a draft, which are no part of the folder that they are in."""
    return DRAFT.fullmatch(name) is not None or (name.startswith(".") and name.endswith(".lock"))


@contextmanager
def drafting(path: Path) -> Iterator[Path]:
    """A hidden folder next to `path` for files that are then renamed into place; removed afterwards.

    It is locked while this process is alive; drafts of killed processes are removed.
    """
    sweep(path.parent)
    draft, lock = _make_draft(path)
    try:
        yield draft
    finally:
        _close_draft(draft, lock)


def _make_draft(path: Path) -> tuple[Path, FileLock]:
    while True:
        draft = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
        draft.mkdir()
        lock = FileLock(draft / LOCK)
        try:
            lock.acquire(blocking=False)
        except (Timeout, FileNotFoundError, FileExistsError):
            continue  # swept before it was locked, or while the lock checks that the folder exists
        except OSError:  # a file system without locks, on which nothing is swept
            pass
        if lock.is_locked and not (draft / LOCK).exists():  # swept while it was being locked
            lock.release()
            continue
        return draft, lock


def sweep(folder: Path) -> None:
    """Remove the drafts of killed processes from a folder, putting back what they had moved aside."""
    for draft in folder.glob(".*.????????"):
        if DRAFT.fullmatch(draft.name) is None:
            continue
        with suppress(OSError):  # not empty
            draft.rmdir()
        if not (draft / LOCK).is_file():
            continue
        lock = FileLock(draft / LOCK)
        with suppress(OSError):  # its process is alive, or may be
            lock.acquire(blocking=False)
            _close_draft(draft, lock)


def _close_draft(draft: Path, lock: FileLock) -> None:
    """Remove a draft, its lock last; if its old content can't be put back, it is left for a later sweep."""
    try:
        _put_back(draft, draft.with_name(draft.name[1:-9]))
        for part in draft.iterdir():
            if part.is_dir() and not part.is_symlink():
                shutil.rmtree(part)
            elif part.name != LOCK:
                part.unlink()
        if lock.is_locked:
            _release(lock)
        else:  # a file system without locks
            (draft / LOCK).unlink(missing_ok=True)
        draft.rmdir()  # fails if the owner of a new draft has locked it in the meantime
    except OSError:
        lock.release()


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A file to write that replaces `path` only if the block succeeds."""
    try:
        with _parents(path), drafting(path) as draft:
            yield draft / NEW
            os.replace(draft / NEW, path)
    except (OSError, SafetensorError) as error:
        raise WriteError(path, reason_of(error)) from error


@contextmanager
def _parents(path: Path) -> Iterator[None]:
    """Create the parent folders of `path`; on failure, those created are removed again if empty."""
    made = [folder for folder in path.parents if not folder.exists()]
    _make_folder(path.parent)
    try:
        yield
    except BaseException:  # on success, an empty folder is one that another process has just emptied
        _remove_empty(made)
        raise


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except RecursionError as error:  # hundreds of folders in one another
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), str(folder)) from error


def _remove_empty(folders: list[Path]) -> None:
    with suppress(OSError):  # not empty, so neither are those above it
        for folder in folders:
            folder.rmdir()


def reason_of(error: Exception) -> str:
    """Why a file can't be written, in the operating system's words.

    safetensors puts the system's number into text that may name its own draft.
    """
    number = getattr(error, "errno", None)
    told = re.search(r"\(os error (\d+)\)", str(error))
    if number is None and told is not None:
        number = int(told[1])
    return os.strerror(number) if number is not None else str(error)


@contextmanager
def replaced_folder(path: Path) -> Iterator[Path]:
    """A folder to fill that replaces `path` with all its content only if the block succeeds.

    Whenever the process is killed, one of the two is complete, at the latest after the next `sweep`.
    """
    with _parents(path), drafting(path) as draft:
        (draft / NEW).mkdir()
        try:
            yield draft / NEW
        except WriteError as error:  # report the file's final path, not the one in the draft
            inside = error.path.is_relative_to(draft / NEW)
            place = path / error.path.relative_to(draft / NEW) if inside else error.path
            raise WriteError(place, error.reason) from error
        _swap(draft, path)


def _swap(draft: Path, path: Path) -> None:
    """Move the new content into place.

    If `path` is the working folder, it is kept and only its content is replaced: otherwise a shell in it, and
    relative paths, would be left in a deleted folder.
    """
    new, old = draft / NEW, draft / OLD
    if not path.exists():
        os.rename(new, path)
    elif _is_here(path):
        old.mkdir()
        _move_all(path, old)
        os.rename(old, draft / MOVED)
        _move_all(new, path)
        new.rmdir()
    elif not _exchange(new, path):
        os.rename(path, old)
        os.rename(new, path)


def _put_back(draft: Path, path: Path) -> None:
    """Undo an interrupted swap; a swap is complete once the draft holds no new content."""
    new, old, moved = draft / NEW, draft / OLD, draft / MOVED
    if not new.is_dir():
        return
    if moved.is_dir():
        _move_all(path, new)
        os.rename(moved, old)
    if old.is_dir() and not path.exists():
        os.rename(old, path)
    elif old.is_dir():
        _move_all(old, path)


def _move_all(folder: Path, to: Path) -> None:
    for path in sorted(folder.iterdir()):
        if os.path.lexists(to / path.name):
            raise FileExistsError(f"{to / path.name} is in the way")
        os.rename(path, to / path.name)


def _is_here(folder: Path) -> bool:
    try:
        return folder.samefile(os.curdir)
    except FileNotFoundError:
        return False


def _exchange(one: Path, other: Path) -> bool:
    """Swap two folders atomically, if the system can."""
    names = os.fsencode(one), os.fsencode(other)
    try:
        system = ctypes.CDLL(None, use_errno=True)
        if sys.platform == "darwin":
            return bool(system.renamex_np(*names, 2) == 0)  # RENAME_SWAP
        return bool(system.renameat2(-100, names[0], -100, names[1], 2) == 0)  # AT_FDCWD, RENAME_EXCHANGE
    except (AttributeError, OSError, TypeError):  # no such function, or Windows
        return False


def user_cache() -> Path:
    """The folder for files that can be made again: GRAPHCLEAN_CACHE, or our folder in the user's cache."""
    named = os.environ.get("GRAPHCLEAN_CACHE")
    return Path(named) if named else system_cache()


def system_cache() -> Path:
    """Our folder in the system's cache folder of the user."""
    base = os.environ.get("LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "graphclean"


def user_config() -> Path:
    """Our folder in the system's configuration folder of the user."""
    base = os.environ.get("APPDATA" if sys.platform == "win32" else "XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "graphclean"


def has_file(path: Path) -> bool:
    """Whether a file exists; anything else, such as a pipe, which would block its reader, is refused."""
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: not a file, but in the place of one; move it away")
    return path.is_file()


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Write plain JSON: NaN becomes null, and keys keep their order."""
    with replaced(path) as draft:
        draft.write_text(json.dumps(plain(value), indent=2, allow_nan=False) + "\n", encoding="utf-8")


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write one JSON value per line, flushed to disk before this returns."""
    with replaced(path) as draft, draft.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(plain(row), allow_nan=False) + "\n" for row in rows)
        file.flush()
        os.fsync(file.fileno())


def read_lines(path: Path, shape: Any = JsonObject) -> list[dict[str, Any]]:
    """Read what `write_lines` wrote; empty if there is no file."""
    if not has_file(path):
        return []
    try:
        lines = [parse_json(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: damaged: {error}") from error
    return [check_shape(line, shape, path) for line in lines]


def plain(value: Any) -> Any:
    """Convert a value to JSON types: text keys, lists, and None for NaN and infinity."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def save_tensors(path: Path, tensors: "dict[str, Tensor]", facts: dict[str, Any]) -> None:
    """Write tensors as safetensors, with JSON values and a checksum of everything as metadata."""
    from safetensors.torch import save_file  # imports torch, which most commands don't need

    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(facts)
    # Under one key: several are stored in no fixed order, and two runs should agree to the byte.
    save_file(contiguous, path, metadata={KEY: f"{_checksum(contiguous, text)} {text}"})


def load_tensors(path: Path, *, values: bool = True) -> "tuple[dict[str, Tensor], Any]":
    """Read what `save_tensors` wrote; any other file raises ValueError, OSError or SafetensorError.

    Without `values`, only the JSON values are read, and the checksum is not verified.
    """
    with safe_open(path, framework="pt") as file:
        names = list(file.keys())
        tensors = {name: file.get_tensor(name) for name in names} if values else {}
        checksum, _, text = (file.metadata() or {}).get(KEY, "").partition(" ")
    if not text:
        raise ValueError("not written by graphclean, or by an earlier version")
    if values and checksum != _checksum(tensors, text):
        raise ValueError("the checksum does not match: bits have changed since it was written")
    return tensors, parse_json(text)


def _checksum(tensors: "dict[str, Tensor]", text: str) -> str:
    """SHA-256 of the text, and of the name, dtype, shape and bytes of every tensor."""
    import torch

    found = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        found.update(f"\0{name} {tensor.dtype} {list(tensor.shape)}\0".encode())
        if tensor.numel():
            found.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def write_tensors(path: Path, tensors: "dict[str, Tensor]", metadata: dict[str, Any]) -> None:
    """`save_tensors`, replacing `path` atomically."""
    with replaced(path) as draft:
        draft.touch()
        mode = draft.stat().st_mode  # save_file would let only the owner read it
        save_tensors(draft, tensors, metadata)
        draft.chmod(mode)


def read_tensors(
    path: Path, shape: Any = JsonObject, *, values: bool = True
) -> "tuple[dict[str, Tensor], dict[str, Any]]":
    """Read what `write_tensors` wrote; without `values`, only the JSON values."""
    _require(path)
    try:
        tensors, metadata = load_tensors(path, values=values)
    except (SafetensorError, OSError, RuntimeError, ValueError, TypeError) as error:
        raise InputError(f"{path}: damaged or not a model file: {error}") from error
    return tensors, check_shape(metadata, shape, path)


def _require(path: Path) -> None:
    if not has_file(path):
        raise InputError(f"{path.parent}: no {path.name} in it: files are missing")


def read_json(path: Path, shape: Any = JsonObject) -> dict[str, Any]:
    """Read a JSON object from a file of a run folder."""
    _require(path)
    try:
        value = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: damaged: {error}") from error
    return dict(check_shape(value, shape, path))
