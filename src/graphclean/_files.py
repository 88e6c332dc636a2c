"""Files that are written whole or not at all, read without trust, and used by one process at a time."""

import json
import math
import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints, is_typeddict

from safetensors import SafetensorError, safe_open

from .errors import InputError, InUseError, parse_json

if TYPE_CHECKING:
    from torch import Tensor

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


Table = dict[str, Any]
"""Whatever has names."""
WORDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    NoneType: "null",
    list: "a list",
    dict: "a table",
}


def check_shape(value: Any, shape: Any, path: Path) -> Any:
    """The value, where it is of its shape; otherwise the file and the field are named."""
    wrong = _find_wrong(value, shape, "")
    if wrong is not None:
        raise InputError(f"{path}: damaged: {wrong}")
    return value


def _find_wrong(value: Any, shape: Any, field: str) -> str | None:
    """What is wrong with the first field that is not as it should be."""
    if shape is Any:
        return None
    if isinstance(shape, UnionType):
        fits = any(_find_wrong(value, one, field) is None for one in get_args(shape))
        return None if fits else f"{field or 'it'} is not {_describe(shape)}"
    if not _is_one(value, _outer(shape)):
        return f"{field or 'it'} is not {_describe(shape)}"
    inner: list[tuple[Any, Any]] = []
    if is_typeddict(shape):
        missing = sorted(shape.__required_keys__ - value.keys())
        if missing:
            return f"no {_below(field, missing[0])} in it"
        inner = [(name, kind) for name, kind in get_type_hints(shape).items() if name in value]
    elif get_args(shape):
        keys = value if isinstance(value, dict) else range(len(value))
        inner = [(key, get_args(shape)[-1]) for key in keys]
    found = (_find_wrong(value[key], kind, _below(field, key)) for key, kind in inner)
    return next((wrong for wrong in found if wrong is not None), None)


def _is_one(value: Any, kind: type) -> bool:
    if kind is float:
        return _is_one(value, int) or (isinstance(value, float) and math.isfinite(value))
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _outer(shape: Any) -> Any:
    return dict if is_typeddict(shape) else get_origin(shape) or shape


def _below(field: str, key: Any) -> str:
    return f"{field}.{key}" if field else str(key)


def _describe(shape: Any) -> str:
    shapes = get_args(shape) if isinstance(shape, UnionType) else (shape,)
    return " or ".join(WORDS[_outer(one)] for one in shapes)


DRAFTS = ".*.????????"
"""How `replaced` names what it has not finished."""


def has_file(path: Path) -> bool:
    """Whether a file is there; what is none, such as a pipe, on which a reader would wait, is refused."""
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: not a file, but in the place of one; move it away")
    return path.is_file()


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A file to write that takes the place of `path` only when the block ends well."""
    draft = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield draft
        os.replace(draft, path)
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: can't be written: {getattr(error, 'strerror', None) or error}") from error
    finally:
        with suppress(OSError):
            draft.unlink()


def clear_drafts(folder: Path) -> None:
    """Remove what `replaced` leaves where a process is killed in the midst of it."""
    for draft in folder.glob(DRAFTS):
        with suppress(OSError):
            draft.unlink()


def write_json(path: Path, value: dict[str, Any]) -> None:
    """Plain JSON: NaN becomes null, keys stay in order."""
    with replaced(path) as draft:
        draft.write_text(json.dumps(plain(value), indent=2, allow_nan=False) + "\n", encoding="utf-8")


def write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    """One JSON value a line; on the disk before this returns."""
    with replaced(path) as draft, draft.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(plain(row), allow_nan=False) + "\n" for row in rows)
        file.flush()
        os.fsync(file.fileno())


def read_lines(path: Path, shape: Any = Table) -> list[dict[str, Any]]:
    """What `write_lines` wrote; nothing where there is no file."""
    if not has_file(path):
        return []
    try:
        lines = [parse_json(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: damaged: {error}") from error
    return [check_shape(line, shape, path) for line in lines]


def plain(value: Any) -> Any:
    """As JSON has it: text keys, lists, and None for NaN and infinity."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def write_tensors(path: Path, tensors: "dict[str, Tensor]", metadata: dict[str, Any]) -> None:
    """Tensors as safetensors, with JSON values beside them."""
    from safetensors.torch import save_file  # loads torch, which most commands do without

    contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
    with replaced(path) as draft:
        draft.touch()
        mode = draft.stat().st_mode  # save_file would leave the file to its owner alone
        # Under one key: the format keeps several in no fixed order, and two runs should agree to the byte.
        save_file(contiguous, draft, metadata={"graphclean": json.dumps(metadata)})
        draft.chmod(mode)


def read_tensors(
    path: Path, shape: Any = Table, *, values: bool = True
) -> "tuple[dict[str, Tensor], dict[str, Any]]":
    """What `write_tensors` wrote; without `values`, only what stands beside the tensors."""
    _require(path)
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in (file.keys() if values else ())}
            metadata = parse_json((file.metadata() or {}).get("graphclean", "{}"))
    except (SafetensorError, OSError, ValueError, TypeError) as error:
        raise InputError(f"{path}: damaged or not a model file: {error}") from error
    return tensors, check_shape(metadata, shape, path)


def _require(path: Path) -> None:
    if not has_file(path):
        raise InputError(f"{path.parent}: no {path.name} in it: files are missing")


def read_json(path: Path, shape: Any = Table) -> dict[str, Any]:
    """A JSON object from a file of a run folder."""
    _require(path)
    try:
        value = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: damaged: {error}") from error
    return dict(check_shape(value, shape, path))
