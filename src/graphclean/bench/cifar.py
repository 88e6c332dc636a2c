"""The official CIFAR archives and their batches: pickles, read only when they are the published bytes."""

import hashlib
import io
import pickle
import tarfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..data.decode import LabelledImages
from ..data.resize import SIDE
from ..errors import InputError

_RECONSTRUCT = np.empty(0).__reduce__()[0]
_ALLOWED: Mapping[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


@dataclass(frozen=True)
class Batches:
    """The files of one CIFAR set, with the MD5 of each."""

    folder: str
    splits: Mapping[str, tuple[str, ...]]
    """Split -> its files, in order."""
    meta: str
    md5: Mapping[str, str]
    label_key: str
    names_key: str


class _ArraysOnly(pickle.Unpickler):
    """Builds numbers, text, lists, dicts and numpy arrays, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} has no place in a CIFAR batch")
        return _ALLOWED[module, name]


def unpickle_arrays(content: bytes) -> Any:
    """A pickle of plain values and numpy arrays; anything else in it is an error."""
    return _ArraysOnly(io.BytesIO(content), encoding="latin1").load()


def md5_of(path: Path, progress: Callable[[int], None] | None = None) -> str:
    """The MD5 of a file's content."""
    found = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
            if progress is not None:
                progress(len(block))
    return found.hexdigest()


def read_cifar_archive(path: Path, md5: str, batches: Batches, split: str) -> LabelledImages:
    """A split from the official .tar.gz, of which no byte is read as a pickle unless all are as published."""
    try:
        if md5_of(path) != md5:
            raise InputError(f"{path}: not the published file (its MD5 is another); fetch it again")
        wanted = {f"{batches.folder}/{name}": name for name in (*batches.splits[split], batches.meta)}
        content: dict[str, bytes] = {}
        with tarfile.open(path, "r:gz") as file:
            for info in file:
                stream = file.extractfile(info) if info.name in wanted else None
                if stream is not None:
                    content[wanted[info.name]] = stream.read()
    except (OSError, EOFError, tarfile.TarError) as error:
        raise InputError(f"{path}: can't be read: {error}") from error
    return _read(content, batches, split, path)


def read_cifar_batches(folder: Path, batches: Batches, split: str) -> LabelledImages:
    """A split from the extracted files, each of which must be as published."""
    try:
        content = {name: (folder / name).read_bytes() for name in (*batches.splits[split], batches.meta)}
    except OSError as error:
        raise InputError(f"{error.filename}: can't be read: {error.strerror}") from error
    return _read(content, batches, split, folder)


def check_cifar_batches(folder: Path, batches: Batches) -> None:
    """Refuse extracted files that are missing or not as published."""
    for name, md5 in batches.md5.items():
        try:
            same = md5_of(folder / name) == md5
        except OSError as error:
            raise InputError(f"{folder / name}: can't be read: {error.strerror}") from error
        if not same:
            raise InputError(
                f"{folder / name}: not the published file (its MD5 is another); fetch the set again"
            )


def _read(content: Mapping[str, bytes], batches: Batches, split: str, source: Path) -> LabelledImages:
    for name in (*batches.splits[split], batches.meta):
        if name not in content:
            raise InputError(f"{source}: {name} is missing; fetch the data set again")
        if hashlib.md5(content[name], usedforsecurity=False).hexdigest() != batches.md5[name]:
            raise InputError(f"{source}: {name} is not the published file (its MD5 is another)")
    try:
        parts = [unpickle_arrays(content[name]) for name in batches.splits[split]]
        classes = tuple(str(name) for name in unpickle_arrays(content[batches.meta])[batches.names_key])
        images = np.concatenate([part["data"] for part in parts]).reshape(-1, 3, SIDE, SIDE)
        labels = np.concatenate([np.array(part[batches.label_key], dtype=np.int64) for part in parts])
    except (pickle.UnpicklingError, KeyError, ValueError, TypeError, EOFError, AttributeError) as error:
        raise InputError(f"{source}: damaged: {error}") from error
    return LabelledImages(images, labels, classes)
