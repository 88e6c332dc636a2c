"""Human labels of CIFAR's training images: the published files of CIFAR-10N and CIFAR-100N."""

import codecs
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy._core.multiarray import _reconstruct

from ..errors import InputError
from .datasets import data_root
from .noise import LabelArray

HUMAN_FOLDER = "cifar-n"
"""Folder under the data root."""
HUMAN_FILES = {"cifar10": "CIFAR-10_human.pt", "cifar100": "CIFAR-100_human.pt"}
"""Files published by Wei et al. (ICLR 2022): dictionaries of label arrays in official order."""
HUMAN = {
    "cifar10n/aggre": ("cifar10", "aggre_label"),
    "cifar10n/rand1": ("cifar10", "random_label1"),
    "cifar10n/rand2": ("cifar10", "random_label2"),
    "cifar10n/rand3": ("cifar10", "random_label3"),
    "cifar10n/worst": ("cifar10", "worse_label"),
    "cifar100n/noisy": ("cifar100", "noisy_label"),
}
"""Cell -> the set, and the key of its labels in the file."""
CLEAN = "clean_label"
ARRAYS: list[Any] = [
    *((_reconstruct, f"numpy.{core}.multiarray._reconstruct") for core in ("core", "_core")),
    *(np.ndarray, np.dtype, codecs.encode),
    *(type(np.dtype(kind)) for kind in (np.int32, np.int64)),
]
"""The only objects loaded besides plain values and tensors: no code in a file can run."""


def find_human_labels(base: str, root: Path | None) -> Path:
    """The published file of a set; if missing, an `InputError` names the place where it belongs."""
    path = data_root(root) / HUMAN_FOLDER / HUMAN_FILES[base]
    if not path.is_file():
        raise InputError(
            f"{path}: no such file; it is published at github.com/UCSC-REAL/cifar-10-100n, and not fetched"
        )
    return path


def read_human_labels(base: str, key: str, truth: LabelArray, root: Path | None = None) -> LabelArray:
    """The human label of each training image; refused if the file's images are in another order."""
    path = find_human_labels(base, root)
    try:
        with torch.serialization.safe_globals(ARRAYS):
            found = torch.load(path, map_location="cpu", weights_only=True)
        clean, labels = (np.asarray(found[name]) for name in (CLEAN, key))
    except (OSError, EOFError, KeyError, TypeError, ValueError, RuntimeError, pickle.PickleError) as error:
        raise InputError(f"{path}: damaged, or not the published file with its {key}") from error
    if labels.shape != truth.shape or labels.dtype.kind not in "ui":
        raise InputError(f"{path}: {key} is not one whole number for each of {len(truth):,} images")
    if not np.array_equal(clean, truth):
        raise InputError(f"{path}: its {CLEAN} is not the truth of {base} in its order")
    return labels.astype(np.int64)
