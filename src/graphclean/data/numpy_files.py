"""Arrays from untrusted .npz and .npy files. Pickles are never loaded."""

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from ..errors import InputError, arg
from .tables import guard, listed, nearest

Numbers = npt.NDArray[Any]


def load_arrays(path: Path) -> dict[str, Numbers]:
    """The arrays of a .npz file by name, or the one of a .npy file under the file's name."""

    def read() -> dict[str, Numbers]:
        with path.open("rb") as file:
            if not file.read(6).startswith((b"\x93NUMPY", b"PK", b"\x80")):
                raise InputError(f"{path}: not a NumPy file")
            file.seek(0)
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                return {path.stem: loaded}
            found = {name: loaded[name] for name in loaded.files}
            return {name: array for name, array in found.items() if isinstance(array, np.ndarray)}

    return guard(path, read)


def array_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of what `load_arrays` would load, from the headers alone; non-arrays are left out."""

    def read() -> dict[str, tuple[int, ...]]:
        found: dict[str, tuple[int, ...] | None] = {}
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                for member in archive.namelist():
                    with archive.open(member) as file:
                        found[member.removesuffix(".npy")] = _read_shape(file)
        else:
            with path.open("rb") as file:
                found[path.stem] = _read_shape(file)
        return {name: shape for name, shape in found.items() if shape is not None}

    return guard(path, read)


def _read_shape(file: IO[bytes]) -> tuple[int, ...] | None:
    """The shape of the array that starts here."""
    if file.read(6) != b"\x93NUMPY":
        return None
    old = file.read(2) == b"\x01\x00"
    header = np.lib.format.read_array_header_1_0 if old else np.lib.format.read_array_header_2_0
    shape: tuple[int, ...] = header(file)[0]
    return shape


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
