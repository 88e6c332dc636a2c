"""The data of a run: its named sets, the noisy split drawn from them, and the images in that order."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..config import TrainingSettings
from ..data.decode import ByteImages, LabeledImages
from ..data.photo_stream import PhotoStream
from ..data.progress import Progress
from ..errors import InputError
from .cells import Cell, scored_with
from .datasets import count_images, find_pool, find_split, load_pool, load_split
from .human import HUMAN, find_human_labels, read_human_labels
from .noise import (
    Draw,
    LabelArray,
    Split,
    check_draw,
    check_pool,
    load_draw,
    make_draw,
    save_draw,
)
from .registry import get_set
from .webvision import (
    IMAGENET,
    PhotoPart,
    StreamedPhotos,
    WebVisionClasses,
    differing_count,
    find_ilsvrc12,
    find_webvision,
    read_part,
    stream_part,
)


@dataclass(frozen=True)
class Sources:
    """The sets that a cell is drawn from."""

    train: LabeledImages | StreamedPhotos
    test: LabeledImages | StreamedPhotos | None
    """None for the development split, which never uses it."""
    pool: LabeledImages | None
    """None for a cell without OOD."""
    human: LabelArray | None = None
    """Human labels of the training images, for cells that train on them."""
    trained_pool: int | None = None
    """If the pool consists of classes of the base set: the number of its training images, which come first.
    """
    also: Mapping[str, StreamedPhotos] = field(default_factory=dict)
    """Other validation sets that the run is scored on, by the names of their cells."""

    @property
    def notes(self) -> list[str]:
        """Lines about photos that can't be read."""
        return [part.note for part in self._streamed if part.note is not None]

    def close(self) -> None:
        """End the processes that read photos; what they packed on the disk can still be read."""
        for part in self._streamed:
            part.images.close()

    @property
    def _streamed(self) -> list[StreamedPhotos]:
        parts = (self.train, self.test, *self.also.values())
        return [part for part in parts if isinstance(part, StreamedPhotos)]


def check_sources(
    cells: Iterable[Cell], split: Split, root: Path | None, required: Collection[str] = ()
) -> list[str]:
    """Refuse runs without data before other cells are trained for hours; report incomplete sets.

    `required` names cells that are scored with others, and would otherwise be left out without their data.
    """
    parts = ("train",) if split == "dev" else ("train", "test")
    partial = []
    for cell in dict.fromkeys(cells):
        if cell.photos is not None:
            partial += _check_photos(cell, cell.photos, split, root, required)
            continue
        base = get_set(cell.base)
        for part in parts:
            found = find_split(cell.base, part, root)
            count = count_images(base, found)[part]
            if count != base.splits[part]:
                has = f"{count:,} {part} images, and {base.name} has {base.splits[part]:,}"
                partial.append(f"{found.path}: {has}; a result on them is not one of the cell")
        if cell.noise == "human":
            find_human_labels(cell.base, root)
        if cell.ood is not None and cell.ood != cell.base:
            found, pool = find_pool(cell.ood, root)
            check_pool(cell.protocol(0, split), count_images(get_set(cell.ood), found)[pool])
    return list(dict.fromkeys(partial))


def _check_photos(
    cell: Cell, classes: WebVisionClasses, split: Split, root: Path | None, required: Collection[str]
) -> list[str]:
    parts: list[PhotoPart] = ["train"] if split == "dev" else ["train", "val"]
    lines: list[str | None] = []
    for other in scored_with(cell) if split == "test" else ():
        if find_ilsvrc12(root) is not None or other.name in required:
            parts.append("ilsvrc12")
        else:
            lines.append(f"{find_webvision(root) / IMAGENET}: no such folder; {other.name} is not scored")
    lines += [differing_count(part, read_part(part, root, classes), classes) for part in parts]
    return [line for line in lines if line is not None]


def _load_photos(
    cell: Cell,
    classes: WebVisionClasses,
    split: Split,
    root: Path | None,
    settings: TrainingSettings,
    progress: Progress | None,
) -> Sources:
    def load(part: PhotoPart) -> StreamedPhotos:
        return stream_part(part, root, classes, settings, progress)

    if split == "dev":
        return Sources(load("train"), None, None)
    others = scored_with(cell) if find_ilsvrc12(root) is not None else []
    return Sources(load("train"), load("val"), None, also={other.name: load("ilsvrc12") for other in others})


def load_sources(
    cell: Cell,
    split: Split,
    root: Path | None = None,
    progress: Progress | None = None,
    *,
    settings: TrainingSettings | None = None,
) -> Sources:
    """The images and labels that a cell needs; photos as `settings` say, all other images at 32 px."""
    if cell.photos is not None:
        photos = settings if settings is not None else TrainingSettings()
        return _load_photos(cell, cell.photos, split, root, photos, progress)
    train = load_split(cell.base, "train", root, progress=progress)
    test = load_split(cell.base, "test", root, progress=progress) if split == "test" else None
    if cell.ood == cell.base:
        return _take_classes(train, test, cell.n_classes)
    pool = load_pool(cell.ood, root, progress=progress) if cell.ood is not None else None
    human = None
    if cell.noise == "human":
        human = read_human_labels(*HUMAN[cell.name], train.labels, root)
    return Sources(train, test, pool, human)


def _take_classes(train: LabeledImages, test: LabeledImages | None, known: int) -> Sources:
    """The first `known` classes of a set, and the images of the others as its pool."""
    parts = [part for part in (train, test) if part is not None]
    kept = [_where(part, part.labels < known) for part in parts]
    rest = [_where(part, part.labels >= known) for part in parts]
    pool = LabeledImages(
        np.concatenate([part.images for part in rest]),
        np.concatenate([part.labels for part in rest]),
        train.classes,
    )
    return Sources(kept[0], kept[1] if test is not None else None, pool, trained_pool=len(rest[0].images))


def _where(data: LabeledImages, mask: npt.NDArray[np.bool_]) -> LabeledImages:
    return LabeledImages(data.images[mask], data.labels[mask], data.classes)


@dataclass(frozen=True)
class Material:
    """The training and evaluation data of one run; images are indexed only on demand."""

    sources: Sources
    draw: Draw

    def train_inputs(self) -> ByteImages | PhotoStream:
        """Training images in the order of the labels: known, then OOD; photos are streamed."""
        photos = self.sources.train.images
        if isinstance(photos, PhotoStream):
            return photos.take(self.draw.train_ind)
        return self.train_images().numpy()

    def train_images(self) -> Tensor:
        """The same, all of them in memory."""
        return self._images(self.sources.train, self.draw.train_ind, self.draw.train_ood)

    def scored_images(self) -> Tensor:
        """Evaluation images in the order of their truth: known, then OOD."""
        return self._images(self._scored_base, self.draw.eval_ind, self.draw.eval_ood)

    def also_images(self, name: str) -> ByteImages:
        """The photos of another validation set."""
        photos = self.sources.also[name]
        return _rows(photos, np.arange(len(photos.labels)))

    def known_scored(self, part: slice = slice(None)) -> ByteImages:
        """Known evaluation images, or some of them."""
        return _rows(self._scored_base, self.draw.eval_ind[part])

    @property
    def _scored_base(self) -> LabeledImages | StreamedPhotos:
        return self.sources.train if self.sources.test is None else self.sources.test

    def _images(self, base: LabeledImages | StreamedPhotos, known: LabelArray, ood: LabelArray) -> Tensor:
        parts = [_rows(base, known)]
        if self.sources.pool is not None:
            parts.append(self.sources.pool.images[ood])
        return torch.as_tensor(np.concatenate(parts))


def _rows(data: LabeledImages | StreamedPhotos, rows: LabelArray) -> ByteImages:
    """Some images, in memory."""
    if isinstance(data.images, PhotoStream):
        return data.images.read(torch.as_tensor(rows)).numpy()
    return np.asarray(data.images[rows])


def prepare_material(cell: Cell, seed: int, split: Split, sources: Sources, saved: Path) -> Material:
    """The noisy split of one seed: made and saved, or, when a run resumes, read back and checked."""
    test = sources.test.labels if sources.test is not None else None
    pool = len(sources.pool.images) if sources.pool is not None else 0
    protocol = cell.protocol(seed, split)
    if saved.exists():
        try:
            draw = load_draw(saved)
        except InputError as error:
            raise InputError(f"{error}: remove {saved.parent} to start over") from error
        if draw.protocol != protocol:
            raise InputError(f"{saved}: the noise of another run; remove {saved.parent} to start over")
        try:
            check_draw(draw, sources.train.labels, pool, test)
        except InputError as error:
            raise InputError(f"{saved}: {error}; remove {saved.parent} to start over") from error
        return Material(sources, draw)
    basis: npt.NDArray[Any] | None = sources.human
    if cell.noise == "instance" and isinstance(sources.train, LabeledImages):
        basis = sources.train.images
    draw = make_draw(
        protocol, sources.train.labels, pool, test, basis=basis, trained_pool=sources.trained_pool
    )
    save_draw(draw, saved)
    return Material(sources, draw)
