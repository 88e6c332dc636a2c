"""Arrays from untrusted .npz and .npy files. Pickles are never loaded."""

import math
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError, arg
from .tables import guard, listed, nearest

Numbers = npt.NDArray[Any]

MAPPED_BYTES = 2**26
"""A .npy file of this size is mapped into memory instead of read."""


def load_arrays(path: Path, only: str | None = None) -> dict[str, Numbers]:
    """The arrays of a .npz file by name, or the one of a .npy file under the file's name.

    Of a .npz file, `only` names the one that is needed.
    """

    def read() -> dict[str, Numbers]:
        with path.open("rb") as file:
            if not file.read(6).startswith((b"\x93NUMPY", b"PK", b"\x80")):
                raise InputError(f"{path}: not a NumPy file")
            file.seek(0)
            if path.stat().st_size >= MAPPED_BYTES and file.read(1) == b"\x93":
                return {path.stem: _map_array(path)}
            file.seek(0)
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return {path.stem: loaded}
            found = {name: loaded[name] for name in loaded.files if only in (None, name)}
            return {name: array for name, array in found.items() if isinstance(array, np.ndarray)}

    return guard(path, read)


def _map_array(path: Path) -> Numbers:
    """The array of a .npy file, of which only what is used is read; changes to it stay in memory."""
    try:
        mapped: Numbers = np.load(path, mmap_mode="c", allow_pickle=False)
    except ValueError as error:
        if "mmap length" in str(error):
            raise InputError(f"{path}: damaged: it is shorter than its header says; copy it again") from error
        if "Python objects" in str(error):
            raise InputError(
                f"{path}: can't be read: it holds pickled objects, which are never loaded; save plain arrays"
            ) from error
        raise
    return mapped


@dataclass(frozen=True)
class StoredArray:
    """An array in a .npy or .npz file, known by its header, and read in pieces from first to last."""

    path: Path
    member: str | None
    """Its name in a .npz file; None for a .npy file."""
    shape: tuple[int, ...]
    by_column: bool
    """Whether columns, not rows, are contiguous, so that it can't be read row by row."""
    dtype: np.dtype[Any]
    size: int
    """Bytes of the file or member, with the header."""

    @property
    def readable(self) -> bool:
        """Whether it can be read in pieces, as far as its header shows."""
        whole = self.size >= self.dtype.itemsize * math.prod(self.shape)
        return whole and not self.by_column and not self.dtype.hasobject and 0 not in self.shape

    def stand_in(self) -> Numbers:
        """An array of the same shape and type that takes no memory."""
        return np.broadcast_to(np.empty((), self.dtype), self.shape)

    def blocks(self, rows: int) -> Iterator[Numbers]:
        """So many rows at a time; plain reads, since pages of a mapped file would count as memory in use."""
        with ExitStack() as opened:
            file = guard(self.path, lambda: self._open(opened))
            for start in range(0, self.shape[0], rows):
                shape = (min(rows, self.shape[0] - start), *self.shape[1:])
                yield guard(self.path, lambda shape=shape: self._read(file, shape))  # type: ignore[misc]
            guard(self.path, lambda: file.read(1))  # at the end, a .npz file checks what was read

    def _open(self, opened: ExitStack) -> IO[bytes]:
        if self.member is None:
            file: IO[bytes] = opened.enter_context(self.path.open("rb"))
        else:
            file = opened.enter_context(opened.enter_context(zipfile.ZipFile(self.path)).open(self.member))
        _read_header(file)
        return file

    def _read(self, file: IO[bytes], shape: tuple[int, ...]) -> Numbers:
        count = self.dtype.itemsize * math.prod(shape)
        content = bytearray(file.read(count))
        if len(content) < count:
            raise ValueError("the file ends within an array")
        return np.frombuffer(content, self.dtype).reshape(shape)


def list_arrays(path: Path) -> dict[str, StoredArray]:
    """What `load_arrays` would load, from the headers alone; non-arrays are left out."""

    def read() -> dict[str, StoredArray]:
        found: dict[str, StoredArray | None] = {}
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                for member in archive.infolist():
                    with archive.open(member) as file:
                        name = member.filename.removesuffix(".npy")
                        found[name] = _describe(path, member.filename, file, member.file_size)
        else:
            with path.open("rb") as file:
                found[path.stem] = _describe(path, None, file, path.stat().st_size)
        return {name: array for name, array in found.items() if array is not None}

    return guard(path, read)


def array_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of what `load_arrays` would load, from the headers alone."""
    return {name: array.shape for name, array in list_arrays(path).items()}


def _describe(path: Path, member: str | None, file: IO[bytes], size: int) -> StoredArray | None:
    header = _read_header(file)
    return StoredArray(path, member, *header, size) if header is not None else None


def _read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]] | None:
    """Shape, order and type of the array that starts here; the file is left at its values."""
    if file.read(6) != b"\x93NUMPY":
        return None
    old = file.read(2) == b"\x01\x00"
    header = np.lib.format.read_array_header_1_0 if old else np.lib.format.read_array_header_2_0
    found: tuple[tuple[int, ...], bool, np.dtype[Any]] = header(file)
    return found


def pick_array(
    path: Path,
    arrays: dict[str, Numbers],
    key: str | None,
    fits: Callable[[Numbers], bool],
    what: str,
    argument: str,
) -> Numbers:
    """The array that was named, or the only suitable one."""
    if key is not None:
        if key not in arrays:
            raise InputError(f"{path}: no array {key!r} in it{nearest(key, list(arrays))}")
        return arrays[key]
    fitting = [name for name, array in arrays.items() if fits(array)]
    if len(fitting) != 1:
        held = listed([f"{name} {array.shape}" for name, array in arrays.items()])
        count = "no" if not fitting else "more than one"
        raise InputError(f"{path}: {count} {what} in it (it holds {held}); name one with {argument}")
    return arrays[fitting[0]]


def pick_labels(path: Path, arrays: dict[str, Numbers], key: str | None) -> Numbers:
    """The labels among the arrays, flattened; a single column is accepted, too."""
    found = pick_array(path, arrays, key, lambda a: one_a_row(a.shape), "1-D array", arg("labels_key"))
    return found.reshape(-1) if one_a_row(found.shape) else found


def one_a_row(shape: tuple[int, ...]) -> bool:
    """Whether an array of this shape has one value per row."""
    return len(shape) == 1 or (len(shape) == 2 and shape[1] == 1)
