"""Photos in class folders, and the interface of any set of photos."""

import os
from collections.abc import Container, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError
from .images import NO_FILE, Encoded, short_reason

IMAGE_SUFFIXES = {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"}
UNREAD = {
    *(".heic", ".heif", ".avif", ".jxl", ".jp2", ".j2k", ".svg", ".psd"),
    *(".dng", ".cr2", ".cr3", ".nef", ".arw", ".raf", ".orf", ".rw2"),
}
"""Image types that are listed but can't be read: skipping them silently would hide photos that cameras
produce.
"""
SPLIT_FOLDERS = {"train", "training", "val", "valid", "validation", "dev", "test", "testing"}
"""Folders that hold a split of a data set and are no class, unless there are other folders next to them."""
LEAVES = "leaves the folder"


@dataclass(frozen=True)
class ImageSet:
    """Unopened photos, one row each, in a reproducible order."""

    ids: list[str]
    labels: list[str] | None
    """Class names, "" for unlabeled photos; None if labels were not requested."""
    problems: dict[int, str]
    """Row -> reason, for rows refused before opening."""

    def items(self, skip: Container[int] = ()) -> Iterator[tuple[int, Encoded]]:
        """Row and argument of `open_image`, in order, without refused rows and those to `skip`."""
        raise NotImplementedError

    def stamps(self) -> list[list[Any]]:
        """A signature for each row that changes when its photo does; empty if unknown."""
        raise NotImplementedError


@dataclass(frozen=True)
class ImageFiles(ImageSet):
    """Photos stored as files."""

    root: Path
    paths: list[Path | None]
    """Absolute paths; None if refused."""

    def items(self, skip: Container[int] = ()) -> Iterator[tuple[int, Encoded]]:
        """Row and path."""
        return ((row, path) for row, path in enumerate(self.paths) if path is not None and row not in skip)

    def stamps(self) -> list[list[Any]]:
        """Path below the root, size and modification times."""
        return [_stamp(path, self.root) for path in self.paths]


def _stamp(path: Path | None, root: Path) -> list[Any]:
    if path is None:
        return []
    try:
        status = path.stat()
    except OSError:
        return []
    # Files from one archive may share size and time of change; a file that takes another's name or place does
    # not keep the time at which the system last touched it.
    return [os.path.relpath(path, root), status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def read_image_folder(root: Path, *, labeled: bool = True) -> ImageFiles:
    """The photos of `root/<label>/…`, sorted by path; ids are paths relative to `root`.

    Photos directly in `root` are unlabeled. Names with a leading dot are skipped. Links that leave `root`
    become rows that are never opened, and linked folders rows that are never entered. With `labeled=False`
    folder names are ignored and all photos are taken.
    """
    if not root.is_dir():
        raise InputError(f"{root} is not a folder" if root.exists() else f"no such folder: {root}")
    real = Path(os.path.realpath(root))
    rows = sorted((_text(path.relative_to(real)), path, problem) for path, problem in _walk(real))
    labels = [name.split("/", 1)[0] if "/" in name else "" for name, _, _ in rows]
    images = ImageFiles(
        root=real,
        paths=[None if problem else path for _, path, problem in rows],
        ids=[name for name, _, _ in rows],
        labels=labels if labeled else None,
        problems={row: problem for row, (_, _, problem) in enumerate(rows) if problem},
    )
    parts = sorted(set(labels) - {""}, key=lambda part: (not part.lower().startswith("train"), part))
    if (
        labeled
        and {part.lower() for part in parts} <= SPLIT_FOLDERS
        and any(name.count("/") > 1 for name in images.ids)
    ):
        raise InputError(
            f"{root}: {', '.join(parts)} are parts of a data set, not classes; give one: {root / parts[0]}"
        )
    check_files(images, root)
    return images


def empty_folders(root: Path, labels: Container[str]) -> list[str]:
    """Class folders without a photo, which then are no classes."""
    folders = (_text(Path(entry.name)) for entry in os.scandir(root) if entry.is_dir(follow_symlinks=False))
    return sorted(name for name in folders if not name.startswith(".") and name not in labels)


def names_photo(path: Path) -> bool:
    """Whether a path names a single photo by its extension, readable or not."""
    return path.suffix.lower() in IMAGE_SUFFIXES | UNREAD and path.is_file()


def read_image_file(path: Path, *, labeled: bool = True) -> ImageFiles:
    """A single unlabeled photo; its id is its file name."""
    if labeled:
        raise InputError(f"{path}: a single photo has no label; give the folder of the class folders")
    suffix = path.suffix.lower()
    problems = {0: _unread(suffix)} if suffix in UNREAD else {}
    paths = [None if problems else Path(os.path.abspath(path))]
    return ImageFiles([path.name], None, problems, Path(os.path.abspath(path.parent)), paths)


def _walk(root: Path) -> Iterator[tuple[Path, str | None]]:
    """Every photo below `root`, or the reason why a photo or folder is refused."""
    folders = [root]
    while folders:
        folder = folders.pop()
        try:
            entries = [entry for entry in os.scandir(folder) if not entry.name.startswith(".")]
        except OSError as error:
            yield folder, short_reason(error)
            continue
        for entry in entries:
            path = Path(entry.path)
            if entry.is_symlink():
                problem = _check_link(path, root)
                if problem is not None or path.suffix.lower() in IMAGE_SUFFIXES:
                    yield path, problem
            elif entry.is_dir():
                folders.append(path)
            elif path.suffix.lower() in IMAGE_SUFFIXES:
                yield path, check_place(path, root)
            elif path.suffix.lower() in UNREAD:
                yield path, _unread(path.suffix.lower())


def _unread(suffix: str) -> str:
    return f"{suffix} is not read; convert it to .jpg or .png"


def _check_link(link: Path, root: Path) -> str | None:
    """Why a link must not be followed, or None; links to other files than photos are ignored."""
    try:
        target = Path(os.path.realpath(link, strict=True))
    except OSError:
        return "broken link"
    if target.is_dir():
        return "linked folder, not entered" if target.is_relative_to(root) else LEAVES
    return check_place(target, root) if link.suffix.lower() in IMAGE_SUFFIXES else None


def check_place(target: Path, root: Path) -> str | None:
    """Why a resolved path must not be opened, or None."""
    if not target.is_relative_to(root):
        return LEAVES
    if target.is_file():
        return None
    return "not a file" if target.exists() else NO_FILE


def check_files(images: ImageFiles, source: Path) -> None:
    """Refuse a set without any file to open."""
    if not any(images.paths):
        some = f" that can be opened; {images.ids[0]}: {images.problems[0]}" if images.problems else ""
        of_table = {
            LEAVES: " of the table; move the table to a folder that holds all its photos",
            NO_FILE: "; paths start from the folder of the table",
        }
        of_folder = {LEAVES: ", and links out of it are not followed; take copies, or hard links"}
        hints = of_table if source.is_file() else of_folder
        hint = hints.get(images.problems.get(0, ""), "")
        raise InputError(f"no images in {source}{some}{hint}")


def require_classes(images: ImageSet, source: Path, least: int) -> None:
    """Refuse labels with fewer than `least` classes."""
    if images.labels is None:
        return
    labels = {label.strip() for row, label in enumerate(images.labels) if row not in images.problems}
    classes = sorted(labels - {""})
    if len(classes) < least:
        have = f"one class ({classes[0]})" if classes else "no classes"
        folder = isinstance(images, ImageFiles) and source.is_dir()
        many, each = ("two are", "each ") if least == 2 else ("one is", "")
        hint = f", {each}as a folder of photos" if folder else ""
        raise InputError(f"{have} in {source}; at least {many} needed{hint}")


def _text(path: Path) -> str:
    """A path with forward slashes as writable text: undecodable bytes in names are escaped."""
    return os.fsencode(path.as_posix()).decode("utf-8", "backslashreplace")
