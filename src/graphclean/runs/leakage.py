"""Samples of other data that are also in the training set, and so are useless as test samples."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from .._files import has_file, read_tensors, replaced, write_tensors
from ..cleaning import CleaningResult, KnnModel
from ..cleaning.duplicates import BEYOND, Limits, TrainingSamples
from ..cleaning.evidence import Standardizer
from ..cleaning.inputs import Codes, check_embeddings
from ..data.photo_stream import PhotoStream
from ..data.photo_workers import digest_of
from ..data.streams import RowNumbers
from ..errors import InputError
from ..ood.model import Model
from ..training.model import NetworkModel
from .folder import LEAKAGE, TRAINING_SAMPLES, read_verdicts, safe_csv
from .inputs import Source

SHOWN = 3


@dataclass(frozen=True)
class LeakageCheck:
    """The training samples and their ids, for comparison with other samples."""

    samples: TrainingSamples
    standardizer: Standardizer
    ids: Sequence[str]

    def find(self, inputs: npt.NDArray[Any], hashes: Codes | None = None) -> list[str | None]:
        """The id of the training sample that each input duplicates; None for new samples."""
        array, width = (
            check_embeddings(inputs, zeros=True, double=self.standardizer.double),
            len(self.standardizer.mean),
        )
        if array.shape[1] != width:
            raise InputError(f"these embeddings have {array.shape[1]} columns, the training set has {width}")
        found = self.samples.find(self.standardizer(array), hashes)
        return [self.ids[row] if row >= 0 else None for row in found]


def from_cleaning(cleaning: CleaningResult, source: Source) -> LeakageCheck | None:
    """The check for data that was just cleaned; None if it has no samples to compare with."""
    samples = cleaning.training_samples
    if samples is None or cleaning.standardizer is None:
        return None
    if source.photos is not None:
        samples = replace(samples, rows=source.photos.rows[samples.rows])
    numbered = source.ids is None and source.photos is None
    ids = RowNumbers(len(source.inputs)) if numbered else source.all_ids
    return LeakageCheck(samples, cleaning.standardizer, ids)


def write_samples(check: LeakageCheck | None, folder: Path) -> None:
    """Write the parts that the model of a run does not contain."""
    if check is not None:
        samples = check.samples
        tensors = {"beyond": samples.limits.beyond, "rows": torch.as_tensor(samples.rows)}
        if samples.hashes is not None:
            tensors["hashes"] = torch.as_tensor(samples.hashes)
        write_tensors(folder / TRAINING_SAMPLES, tensors, {"ratio": samples.limits.ratio})


def read_samples(run: Path, model: Model) -> LeakageCheck | None:
    """Read the check of a run folder; None if there are no features to compare with, or none were stored."""
    unit = None
    if isinstance(model, KnnModel):
        unit = model.nodes
    elif isinstance(model, NetworkModel) and model.class_means is not None:
        unit = model.class_means.nodes
    standardizer = getattr(model, "standardizer", None)
    if unit is None or standardizer is None or not has_file(run / TRAINING_SAMPLES):
        return None
    tensors, facts = read_tensors(run / TRAINING_SAMPLES)
    ids = [str(name) for name in read_verdicts(run, ["id"])["id"].tolist()]
    rows, hashes = tensors.get("rows"), tensors.get("hashes")
    beyond, ratio = tensors.get("beyond"), facts.get("ratio")
    whole = [part for part in (rows, hashes) if part is not None]
    if (
        rows is None
        or beyond is None
        or not isinstance(ratio, float)
        or any(part.shape != (len(unit),) for part in (beyond, *whole))
        or any(part.dtype != torch.int64 for part in whole)
        or not beyond.is_floating_point()
        or not 0 <= int(rows.min()) <= int(rows.max()) < len(ids)
    ):
        raise InputError(f"{run / TRAINING_SAMPLES}: damaged: it does not fit the run")
    limits = Limits(beyond, ratio)
    samples = TrainingSamples(unit, limits, rows.numpy(), hashes.numpy() if hashes is not None else None)
    return LeakageCheck(samples, standardizer, ids)


def find_equal(
    training: npt.NDArray[Any] | PhotoStream, inputs: npt.NDArray[Any], ids: Sequence[str]
) -> list[str | None]:
    """The same for images, which are compared byte by byte; streamed ones by their digests."""
    streamed = isinstance(training, PhotoStream)
    first: dict[Any, int] = {}
    for row, image in enumerate(training.digests.tolist() if isinstance(training, PhotoStream) else training):
        first.setdefault(image if streamed else image.tobytes(), row)
    found = (first.get(digest_of(image) if streamed else image.tobytes()) for image in inputs)
    return [ids[row] if row is not None else None for row in found]


@dataclass(frozen=True)
class Leaks:
    """The ids of some samples, and of the training sample that each of them duplicates, if any."""

    ids: Sequence[str]
    found: Sequence[str | None]
    compared: bool = True
    """Whether there was anything to compare them with."""

    @classmethod
    def find(cls, check: LeakageCheck | None, source: Source) -> Self:
        """Find leaks in a source that was read like the training data."""
        ids = source.ids if source.ids is not None else [str(row) for row in range(len(source.inputs))]
        if check is None:
            return cls(ids, [None] * len(ids), compared=False)
        return cls(ids, check.find(source.array, hashes_of(source)))

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The id of each leaked sample, and that of the training sample."""
        return [(name, other) for name, other in zip(self.ids, self.found, strict=True) if other is not None]

    def notes(self, what: str, where: str = "") -> list[str]:
        """A note on how many of `what` are in the training set, with examples; `where` is the full list."""
        if not self.compared:
            return [
                f"{what} can't be compared with the training set: it has under {BEYOND + 1} distinct ones"
            ]
        return describe_leaks(len(self.pairs), len(self.ids), self.pairs[:SHOWN], what, where)

    def write(self, folder: Path) -> None:
        """Write the table of all leaked samples."""
        with replaced(folder / LEAKAGE) as draft:
            table = pd.DataFrame(self.pairs, columns=["id", "duplicate_of"])
            safe_csv(table).to_csv(draft, index=False)


def describe_leaks(
    count: int, total: int, some: Sequence[tuple[str, str]], what: str, where: str = ""
) -> list[str]:
    """A note on how many of `what` are in the training set, with the first of them; `where` is the list."""
    if not count:
        return []
    shown = ", ".join(f"{name} ({other})" for name, other in some) + (", …" if count > len(some) else "")
    lie = "lies" if count == 1 else "lie"
    return [f"{count} of {total} {what} also {lie} in the training set{where}: {shown}"]


def hashes_of(source: Source) -> Codes | None:
    """The hashes of photos, one per row of the inputs; None for other data."""
    return np.asarray(source.photos.measures["hash"]) if source.photos is not None else None
