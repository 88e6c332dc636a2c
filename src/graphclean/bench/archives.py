"""Images in class folders, on disk or in an archive that is read in place without unpacking."""

import os
import tarfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

import numpy as np

from ..data.decode import LabeledImages, decode_images
from ..data.image_folder import IMAGE_SUFFIXES
from ..data.progress import Progress
from ..errors import InputError

NO_CLASS = {"images", "256", "large"}
"""Folders inside a split that are not classes."""
ANNOTATIONS = "val_annotations.txt"
"""TinyImageNet's table of the classes of its validation images."""


class Members(Protocol):
    """The files of a folder or archive by name, with forward slashes."""

    stamps: dict[str, tuple[int, int]]
    """Name -> size and modification time."""

    def read(self, name: str) -> bytes:
        """The content of a file."""


class _Folder:
    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.realpath(root))
        self.stamps: dict[str, tuple[int, int]] = {}
        folders = [self.root]
        while folders:
            for entry in os.scandir(folders.pop()):
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(Path(entry.path))
                elif not entry.is_symlink() or self._stays(entry.path):
                    stat = entry.stat()
                    name = Path(entry.path).relative_to(self.root).as_posix()
                    self.stamps[name] = (stat.st_size, stat.st_mtime_ns)

    def _stays(self, link: str) -> bool:
        target = Path(os.path.realpath(link))
        return target.is_file() and target.is_relative_to(self.root)

    def read(self, name: str) -> bytes:
        return (self.root / name).read_bytes()


class _Zip:
    def __init__(self, file: zipfile.ZipFile) -> None:
        self.file = file
        self.stamps = {info.filename: (info.file_size, 0) for info in file.infolist() if not info.is_dir()}

    def read(self, name: str) -> bytes:
        return self.file.read(name)


class _Tar:
    def __init__(self, file: tarfile.TarFile) -> None:
        self.file = file
        self.infos = {info.name: info for info in file if info.isfile()}
        self.stamps = {name: (info.size, 0) for name, info in self.infos.items()}

    def read(self, name: str) -> bytes:
        stream = self.file.extractfile(self.infos[name])
        return stream.read() if stream is not None else b""


@contextmanager
def open_members(path: Path) -> Iterator[Members]:
    """Open a folder, a .zip or a .tar file; problems raise `InputError`."""
    try:
        if path.is_dir():
            yield _Folder(path)
        elif path.suffix.lower() == ".zip":
            with zipfile.ZipFile(path) as zipped:
                yield _Zip(zipped)
        else:
            with tarfile.open(path, "r:*") as tarred:
                yield _Tar(tarred)
    except (OSError, EOFError, zipfile.BadZipFile, tarfile.TarError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "damaged"
        raise InputError(f"{path}: can't be read: {reason}") from error


@dataclass(frozen=True)
class Member:
    """An image: its name and the name of its class ("" if unknown)."""

    name: str
    label: str


def sort_members(members: Members, folders: Mapping[str, Sequence[str]]) -> dict[str, list[Member]]:
    """The images of each split, by name; `folders` lists the folders of each split.

    The class is the folder below, ignoring TinyImageNet's `images`. A set with a single split needs no folder
    for it.
    """
    images = sorted(name for name in members.stamps if _is_image(name))
    split_of = {folder: split for split, known in folders.items() for folder in known}
    notes = _annotations(members)
    found: dict[str, list[Member]] = {}
    for name in images:
        parts = name.split("/")
        place = next((i for i, part in enumerate(parts[:-1]) if part in split_of), None)
        if place is not None:
            found.setdefault(split_of[parts[place]], []).append(_member(name, parts[place + 1 :], notes))
    if not found and images and len(folders) == 1:
        return {next(iter(folders)): [_member(name, name.split("/"), notes) for name in images]}
    return found


def _is_image(name: str) -> bool:
    path = PurePosixPath(name)
    return path.suffix.lower() in IMAGE_SUFFIXES and not any(
        part.startswith((".", "__")) for part in path.parts
    )


def _member(name: str, parts: list[str], notes: Mapping[str, str]) -> Member:
    folders = [part for part in parts[:-1] if part not in NO_CLASS]
    return Member(name, "/".join(folders) or notes.get(parts[-1], ""))


def _annotations(members: Members) -> dict[str, str]:
    """File -> class, from tab-separated lines of file, class and box."""
    for name in members.stamps:
        if PurePosixPath(name).name == ANNOTATIONS:
            lines = members.read(name).decode("utf-8", "replace").splitlines()
            return {cells[0]: cells[1] for cells in (line.split("\t") for line in lines) if len(cells) > 1}
    return {}


def read_members(
    path: Path, split: str, folders: Mapping[str, Sequence[str]], progress: Progress | None = None
) -> LabeledImages:
    """The images of one split; classes are numbered in alphabetical order."""
    with open_members(path) as members:
        chosen = sort_members(members, folders).get(split, [])
        if not chosen:
            raise InputError(f"{path}: no images of the {split} split")
        classes = sorted({member.label for member in chosen} - {""})
        numbers = {"": -1, **{label: number for number, label in enumerate(classes)}}
        content = ((f"{path}: {member.name}", members.read(member.name)) for member in chosen)
        images = decode_images(content, len(chosen), progress)
    labels = np.array([numbers[member.label] for member in chosen], dtype=np.int64)
    return LabeledImages(images, labels, tuple(classes))
