"""Validation samples, whose labels are trusted, to monitor training."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..cleaning import CleaningResult
from ..cleaning.inputs import check_embeddings, encode_written
from ..data.tables import Names
from ..embed import Embedder
from ..errors import InputError, MissingLabels
from ..training.fit import Prepared
from ..training.inference import embed_new
from ..training.model import NetworkModel
from .inputs import Source, read_like
from .leakage import Leaks, find_equal, from_cleaning, hashes_of
from .schema import SourceRecord

ARRAY_KEYS = {".npz": ("images_key", "features_key", "labels_key"), ".npy": ()}
COLUMNS = ("label_column", "id_column", "path_column")
"""Fields of `Names` that apply to validation samples in an array file, or in a table."""


@dataclass(frozen=True)
class ValidationSet:
    """Samples with trusted labels, to monitor training; networks are not trained on them."""

    inputs: npt.NDArray[Any]
    codes: npt.NDArray[np.int64]
    notes: list[str]
    ids: list[str]
    hashes: npt.NDArray[np.int64] | None

    def leaks(self, cleaning: CleaningResult, source: Source) -> list[str]:
        """A note on validation samples that are also in the training set, where accuracy means nothing."""
        if self.inputs.ndim > 2:
            found = find_equal(source.inputs, self.inputs, source.all_ids)
        else:
            check = from_cleaning(cleaning, source)
            if check is None:
                return []
            found = check.find(self.inputs, self.hashes)
        return Leaks(self.ids, found).notes("validation samples")

    def accuracy(self, model: NetworkModel) -> float:
        """The accuracy of a finished model."""
        return float((model.score(self.inputs).classes == self.codes).mean())


def read_validation(
    path: Path,
    source: Source,
    described: SourceRecord,
    names: Names,
    *,
    labels_of: Path,
    device: torch.device,
    embedder: str | Embedder | None = None,
) -> ValidationSet:
    """Read validation samples of the data's classes; others are left out and counted."""
    suffix = path.suffix.lower()
    names = Names(**{name: getattr(names, name) for name in ARRAY_KEYS.get(suffix, COLUMNS)})
    try:
        found = read_like(
            described, path, names, run=labels_of, labeled=True, device=device, embedder=embedder
        )
    except MissingLabels as error:
        where = "the same file, a .npz" if suffix in ARRAY_KEYS else "a column called label"
        raise InputError(f"{error.missing}; validation samples need theirs in {where}") from error
    if found.inputs.shape[1:] != source.inputs.shape[1:]:
        raise InputError(
            f"{path}: its samples have the shape {found.inputs.shape[1:]}, those of {labels_of} "
            f"{source.inputs.shape[1:]}"
        )
    inputs = found.array
    if inputs.ndim == 2:
        inputs = check_embeddings(inputs, what=f"{path}: embeddings", zeros=True)
    classes = {str(name): code for code, name in enumerate(encode_written(source.labels).classes)}
    theirs = encode_written(found.labels, len(found.inputs))
    known = np.array([*(classes.get(str(name), -1) for name in theirs.classes), -1])
    codes = known[theirs.codes]
    use = codes >= 0
    if not use.any():
        raise InputError(f"{path}: not one validation label is a class of {labels_of}")
    left_out = int((~use).sum())
    notes = (
        [f"{left_out} validation samples have a class that the data lacks, and are left out"]
        if left_out
        else []
    )
    hashes = hashes_of(found)
    ids = found.ids if found.ids is not None else [str(row) for row in range(len(inputs))]
    kept = [ids[row] for row in np.flatnonzero(use)]
    return ValidationSet(inputs[use], codes[use], notes, kept, hashes[use] if hashes is not None else None)


def validation_accuracy(prepared: Prepared, validation: ValidationSet) -> float:
    """The current accuracy of the network alone; measuring it does not affect training."""
    inputs = torch.as_tensor(validation.inputs)
    if prepared.standardizer is not None:
        inputs = prepared.standardizer.rescale(validation.inputs)
    logits = embed_new(prepared.trainer.method.predictor(), inputs).logits
    return float((logits.argmax(1).numpy() == validation.codes).mean())
