"""The official CIFAR archives and batches: pickles, read only if they match the published checksums."""

import hashlib
import io
import pickle
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..data.decode import LabeledImages
from ..data.resize import DECODED_SIDE
from ..errors import InputError
from .archives import open_members

_RECONSTRUCT = np.empty(0).__reduce__()[0]
_ALLOWED: Mapping[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


@dataclass(frozen=True)
class Batches:
    """The files of one CIFAR set with their MD5."""

    folder: str
    splits: Mapping[str, tuple[str, ...]]
    """Split -> its files, in order."""
    meta: str
    md5: Mapping[str, str]
    label_key: str
    names_key: str


class _ArraysOnly(pickle.Unpickler):
    """An unpickler restricted to numbers, text, lists, dicts and numpy arrays."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} has no place in a CIFAR batch")
        return _ALLOWED[module, name]


def unpickle_arrays(content: bytes) -> Any:
    """Load a pickle of plain values and numpy arrays; anything else raises an error."""
    return _ArraysOnly(io.BytesIO(content), encoding="latin1").load()


def md5_of(path: Path, progress: Callable[[int], None] | None = None) -> str:
    """The MD5 of a file."""
    found = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
            if progress is not None:
                progress(len(block))
    return found.hexdigest()


def read_batches(path: Path, batches: Batches, split: str) -> LabeledImages:
    """Read a split from the official files, extracted or archived; each must match its checksum."""
    content = read_published(path, batches, (*batches.splits[split], batches.meta))
    try:
        parts = [unpickle_arrays(content[name]) for name in batches.splits[split]]
        classes = tuple(str(name) for name in unpickle_arrays(content[batches.meta])[batches.names_key])
        images = np.concatenate([part["data"] for part in parts]).reshape(-1, 3, DECODED_SIDE, DECODED_SIDE)
        labels = np.concatenate([np.array(part[batches.label_key], dtype=np.int64) for part in parts])
    except (pickle.UnpicklingError, KeyError, ValueError, TypeError, EOFError, AttributeError) as error:
        raise InputError(f"{path}: damaged: {error}") from error
    return LabeledImages(images, labels, classes)


def read_published(path: Path, batches: Batches, names: Iterable[str]) -> dict[str, bytes]:
    """The bytes of some files; missing or modified files are refused."""
    content = {}
    with open_members(path) as members:
        for name in names:
            place = next((at for at in (name, f"{batches.folder}/{name}") if at in members.stamps), None)
            if place is None:
                raise InputError(f"{path}: {name} is missing; fetch the data set again")
            content[name] = members.read(place)
            if hashlib.md5(content[name], usedforsecurity=False).hexdigest() != batches.md5[name]:
                raise InputError(
                    f"{path}: {name} is not the published file (its MD5 is another); fetch the set again"
                )
    return content
