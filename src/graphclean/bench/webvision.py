"""WebVision-50: photos of the first 50 classes of WebVision, found through Google, and two validation sets.

The official file lists are read, and every photo that they name must exist.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from ..config import TrainingSettings
from ..data.image_folder import ImageFiles, read_image_folder
from ..data.images import short_reason
from ..data.manifests import PathFinder
from ..data.photo_stream import PhotoStream
from ..data.progress import Progress
from ..errors import InputError, arg
from .datasets import ROOT_VARIABLE, data_root
from .noise import LabelArray

PhotoPart: TypeAlias = Literal["train", "val", "ilsvrc12"]

WEBVISION_PLACES = ("webvision", ".")
"""Folders under the data root in which WebVision may be."""
SYNSETS = "info/synsets.txt"
"""One class per line, its WordNet id first; line c is class c."""
LISTS: dict[PhotoPart, tuple[str, str]] = {
    "train": ("info/train_filelist_google.txt", "."),
    "val": ("info/val_filelist.txt", "val_images_256"),
}
"""The official lists, and the folders that their paths start from."""
IMAGENET = "imagenet"
"""Folder of ILSVRC12, in WebVision's or next to it."""
IMAGENET_LIST = "imagenet_val.txt"
FIRST = "n01440764"
"""WordNet id of class 0, the tench."""
MENTIONED = 3
"""Missing photos that an error names."""


@dataclass(frozen=True)
class WebVisionClasses:
    """The classes that are used, the first ones, and the number of photos published for them."""

    count: int = 50
    last: str = "n01697457"
    """WordNet id of the last one, the African crocodile, so that another order is noticed."""
    train: int = 65_944
    val: int = 2_500
    ilsvrc12: int = 2_500

    def published(self, part: PhotoPart) -> int:
        """The number of photos published for a part."""
        return {"train": self.train, "val": self.val, "ilsvrc12": self.ilsvrc12}[part]


@dataclass(frozen=True)
class LabeledPhotos:
    """Unopened photos with their classes."""

    images: ImageFiles
    labels: LabelArray
    source: Path
    """The list or folder that the labels are from."""


@dataclass(frozen=True)
class StreamedPhotos:
    """The readable photos of a part with their classes; those that can't be read are left out."""

    images: PhotoStream
    labels: LabelArray
    classes: tuple[str, ...]
    """WordNet ids, in order."""
    note: str | None = None
    """A line about photos that can't be read."""


def find_webvision(root: Path | None) -> Path:
    """WebVision's folder under the data root; a missing one is an `InputError` that names its place."""
    base = data_root(root)
    for folder in (base / place for place in WEBVISION_PLACES):
        if (folder / SYNSETS).is_file():
            return folder
    raise InputError(
        f"{base / WEBVISION_PLACES[0] / SYNSETS}: no such file; WebVision is not fetched: extract its info, "
        f"google and val_images_256 there, or name another root with {arg('data_root')} or {ROOT_VARIABLE}"
    )


def find_ilsvrc12(root: Path | None) -> Path | None:
    """The folder of ILSVRC12's validation set in WebVision's folder or next to it, if there is one."""
    folders = (find_webvision(root) / IMAGENET, data_root(root) / IMAGENET)
    return next((folder for folder in folders if (folder / "val").is_dir()), None)


def read_wordnet_ids(folder: Path, classes: WebVisionClasses) -> list[str]:
    """The WordNet ids of the classes in order, refused unless it is the order of ILSVRC12."""
    path = folder / SYNSETS
    ids = [line.split()[0] for _, line in _lines(path)][: classes.count]
    if len(ids) < classes.count or (ids[0], ids[-1]) != (FIRST, classes.last) or ids != sorted(set(ids)):
        raise InputError(
            f"{path}: its first {classes.count} classes are not those from {FIRST} to {classes.last} in "
            "ascending order, as published; labels would mean other classes"
        )
    return ids


def read_part(part: PhotoPart, root: Path | None, classes: WebVisionClasses) -> LabeledPhotos:
    """The training photos under the labels they were found by, or one of the validation sets."""
    folder = find_webvision(root)
    ids = read_wordnet_ids(folder, classes)
    if part == "ilsvrc12":
        found = _read_ilsvrc12(folder, root, ids)
    else:
        listed, place = LISTS[part]
        found = _read_list(folder / listed, folder / place, classes.count)
    _check_there(found)
    absent = np.flatnonzero(np.bincount(found.labels, minlength=classes.count) == 0)
    if len(absent):
        raise InputError(f"{found.source}: no photo of class {absent[0]} ({ids[absent[0]]})")
    return found


def stream_part(
    part: PhotoPart,
    root: Path | None,
    classes: WebVisionClasses,
    settings: TrainingSettings,
    progress: Progress | None = None,
) -> StreamedPhotos:
    """A part as center squares of `image_size`; every photo is read once to see whether it can be.

    Photos are streamed on every machine, since their pixels would differ a little from those in memory.
    """
    storage = settings.photo_storage
    if storage == "memory":
        raise InputError(
            "training.photo_storage=memory: photos of a cell are streamed; take auto, disk, encoded or decode"
        )
    found = read_part(part, root, classes)
    keep = None if storage == "auto" else storage
    stream = PhotoStream(found.images, settings.image_size, place=str(found.source), keep=keep)
    stream.scan(progress)
    return StreamedPhotos(
        stream,
        found.labels[stream.rows],
        tuple(read_wordnet_ids(find_webvision(root), classes)),
        _describe_problems(found, stream.problems, "are left out") if stream.problems else None,
    )


def differing_count(part: PhotoPart, found: LabeledPhotos, classes: WebVisionClasses) -> str | None:
    """A line about a number of photos other than the published one; None if it is the same."""
    has, published = len(found.labels), classes.published(part)
    if has == published:
        return None
    return (
        f"{found.source}: {has:,} photos of the first {classes.count} classes, and {published:,} are "
        "published; a result on them is not one of the cell"
    )


def _read_ilsvrc12(folder: Path, root: Path | None, ids: list[str]) -> LabeledPhotos:
    """Folders named by WordNet id or number, or a list; ids come first, since they can't be misread."""
    base = find_ilsvrc12(root)
    if base is None:
        raise InputError(f"{folder / IMAGENET / 'val'}: no such folder; it holds ILSVRC12's validation set")
    for names in (ids, [str(label) for label in range(len(ids))]):
        there = [(base / "val" / name).is_dir() for name in names]
        if any(there):
            if not all(there):
                raise InputError(f"{base / 'val' / names[there.index(False)]}: no such folder")
            return _read_folders(base / "val", names)
    if (base / IMAGENET_LIST).is_file():
        return _read_list(base / IMAGENET_LIST, base / "val", len(ids))
    raise InputError(
        f"{base / 'val'}: no folders {ids[0]}, … or 0, … of photos, and no list {base / IMAGENET_LIST}"
    )


def _read_folders(folder: Path, names: list[str]) -> LabeledPhotos:
    """Photos in one folder per class; all other folders are ignored."""
    found = read_image_folder(folder)
    code = {name: label for label, name in enumerate(names)}
    labels = found.labels if found.labels is not None else []
    rows = sorted((code[label], row) for row, label in enumerate(labels) if label in code)
    return LabeledPhotos(
        _take(found, [row for _, row in rows]), np.array([label for label, _ in rows], np.int64), folder
    )


def _take(images: ImageFiles, rows: list[int]) -> ImageFiles:
    return ImageFiles(
        ids=[images.ids[row] for row in rows],
        labels=None,
        problems={at: images.problems[row] for at, row in enumerate(rows) if row in images.problems},
        root=images.root,
        paths=[images.paths[row] for row in rows],
    )


def _read_list(path: Path, folder: Path, count: int) -> LabeledPhotos:
    """The photos of a list with a path and a class per line; those of later classes are left out."""
    real = Path(os.path.realpath(folder))
    find, names, labels = PathFinder(real), [], []
    for number, line in _lines(path):
        name, _, label = line.replace("\t", " ").rpartition(" ")
        if not name or not (label.isascii() and label.isdecimal()):
            raise InputError(f"{path}: line {number} is not a path and a class: {line[:80]}")
        if int(label) < count:
            names.append(name.rstrip())
            labels.append(int(label))
    places = [find(name) for name in names]
    images = ImageFiles(
        ids=names,
        labels=None,
        problems={row: place for row, place in enumerate(places) if isinstance(place, str)},
        root=real,
        paths=[place if isinstance(place, Path) else None for place in places],
    )
    return LabeledPhotos(images, np.array(labels, np.int64), path)


def _check_there(found: LabeledPhotos) -> None:
    """Refuse a set of which photos are missing or outside its folder."""
    if found.images.problems:
        where = f"can't be read from {found.images.root}"
        raise InputError(_describe_problems(found, found.images.problems, where))


def _describe_problems(found: LabeledPhotos, problems: Mapping[int, str], what: str) -> str:
    """A line that names some of the photos that can't be read."""
    some = ", ".join(f"{found.images.ids[row]}: {problems[row]}" for row in sorted(problems)[:MENTIONED])
    more = ", …" if len(problems) > MENTIONED else ""
    return f"{found.source}: {len(problems):,} of {len(found.labels):,} photos {what} ({some}{more})"


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file that are not empty, counted from 1."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file; it is one of WebVision's official lists") from error
    except (OSError, UnicodeDecodeError) as error:
        reason = short_reason(error) if isinstance(error, OSError) else "not text"
        raise InputError(f"{path}: can't be read: {reason}") from error
    return ((number, line.strip()) for number, line in enumerate(text.splitlines(), 1) if line.strip())
