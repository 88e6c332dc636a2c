"""WebVision-50: photos of the first 50 classes of WebVision, found through Google, and two validation sets.

The official file lists are read, and every photo that they name must exist. No photo is opened here.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal, TypeAlias

import numpy as np

from ..data.image_folder import ImageFiles, read_image_folder
from ..data.images import short_reason
from ..data.manifests import PathFinder
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
    photos: Mapping[PhotoPart, int] = field(
        default_factory=lambda: MappingProxyType({"train": 65_944, "val": 2_500, "ilsvrc12": 2_500})
    )


@dataclass(frozen=True)
class LabeledPhotos:
    """Unopened photos with their classes."""

    images: ImageFiles
    labels: LabelArray
    source: Path
    """The list or folder that the labels are from."""


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


def differing_count(part: PhotoPart, found: LabeledPhotos, classes: WebVisionClasses) -> str | None:
    """A line about a number of photos other than the published one; None if it is the same."""
    has, published = len(found.labels), classes.photos[part]
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
    problems = found.images.problems
    if problems:
        some = ", ".join(f"{found.images.ids[row]}: {problems[row]}" for row in sorted(problems)[:MENTIONED])
        more = ", …" if len(problems) > MENTIONED else ""
        raise InputError(
            f"{found.source}: {len(problems):,} of {len(found.labels):,} photos can't be read from "
            f"{found.images.root} ({some}{more})"
        )


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
