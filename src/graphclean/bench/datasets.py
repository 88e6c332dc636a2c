"""Data sets by name, in whichever form they lie under a data root."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ..data.decode import LabelledImages, cached, fingerprint, may_write
from ..data.image_tables import check_parts, count_rows, find_tables, read_tables
from ..data.progress import Progress
from ..errors import InputError
from .archives import open_members, read_members, sort_members
from .cifar import md5_of, read_cifar_archive, read_cifar_batches
from .registry import NamedSet, get_set

ROOT_VARIABLE = "GRAPHCLEAN_DATA"
CACHE_VARIABLE = "GRAPHCLEAN_CACHE"
CACHE = ".decoded"
"""Folder under the data root that keeps decoded images."""


@dataclass(frozen=True)
class Found:
    """Where a set lies, and in which form."""

    form: str
    """`parquet`, `batches`, `archive` or `folders`."""
    path: Path
    splits: Mapping[str, tuple[Path, ...]]
    """Split -> its parquet tables; for the other forms only the splits that are there."""


def data_root(given: Path | None = None) -> Path:
    """The root that was named, or GRAPHCLEAN_DATA, or graphclean/data in the user's cache folder."""
    if given is not None:
        return given
    named = os.environ.get(ROOT_VARIABLE)
    if named:
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "graphclean" / "data"


def cache_folder(root: Path) -> Path | None:
    """Where decoded images are kept: GRAPHCLEAN_CACHE, or under the root, or nowhere if it is read-only."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named)
    return root / CACHE if may_write(root) else None


def locate(named: NamedSet, root: Path) -> Found | None:
    """The first form of a set that lies under the root, if any."""
    for place in named.places:
        if (root / place).is_dir():
            found = _look(named, root / place)
            if found is not None:
                return found
    archive = root / named.archive.file
    return _all_splits(named, "archive", archive) if archive.is_file() else None


def _look(named: NamedSet, folder: Path) -> Found | None:
    tables = find_tables(folder)
    if tables:
        ordered = [split for split in named.splits if split in tables]
        ordered += [split for split in tables if split not in named.splits]
        return Found("parquet", folder, {split: tuple(tables[split]) for split in ordered})
    if named.batches is not None:
        for inner in (folder, folder / named.batches.folder):
            if (inner / named.batches.meta).is_file():
                return _all_splits(named, "batches", inner)
    if (folder / named.archive.file).is_file():
        return _all_splits(named, "archive", folder / named.archive.file)
    with open_members(folder) as members:
        splits = sort_members(members, named.folders)
    return Found("folders", folder, dict.fromkeys(splits, ())) if splits else None


def _all_splits(named: NamedSet, form: str, path: Path) -> Found:
    return Found(form, path, dict.fromkeys(named.splits, ()))


def find_set(named: NamedSet, root: Path) -> Found:
    """Like `locate`, but a set that is not there is an `InputError`."""
    found = locate(named, root)
    if found is None:
        raise InputError(
            f"{named.name} is not under {root}; run `graphclean data fetch {named.name}`, "
            f"or name another root with --data-root or {ROOT_VARIABLE}"
        )
    return found


def find_split(name: str, split: str, root: Path | None = None) -> Found:
    """A set that has this split; otherwise an `InputError`."""
    found = find_set(get_set(name), data_root(root))
    if split not in found.splits:
        have = ", ".join(found.splits)
        raise InputError(f"{found.path}: no {split} split of {name}; there are: {have}")
    return found


def find_pool(name: str, root: Path | None = None) -> tuple[Found, str]:
    """A set, and its split that OOD is drawn from; an `InputError` where there is none."""
    named = get_set(name)
    found = find_set(named, data_root(root))
    split = next((split for split in named.pools if split in found.splits), None)
    if split is None:
        raise InputError(
            f"{found.path}: none of the splits {', '.join(named.pools)}, which OOD is drawn from"
        )
    return found, split


def load_split(
    name: str,
    split: str,
    root: Path | None = None,
    *,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> LabelledImages:
    """The images of one split at 32 px with their labels; decoded once, then memory-mapped.

    `cache` names the folder that keeps them; see `cache_folder` for what holds otherwise.
    """
    named, found, root = get_set(name), find_split(name, split, root), data_root(root)
    key = fingerprint(found.path, f"{found.form} {split}", _stamps(named, found, split))
    folder = cache if cache is not None else cache_folder(root)
    return cached(folder, f"{name}-{split}", key, lambda: read_split(named, found, split, progress))


def load_pool(
    name: str, root: Path | None = None, *, cache: Path | None = None, progress: Progress | None = None
) -> LabelledImages:
    """The images of a set that OOD is drawn from; their labels play no part."""
    _, split = find_pool(name, root)
    return load_split(name, split, root, cache=cache, progress=progress)


def _stamps(named: NamedSet, found: Found, split: str) -> Iterable[tuple[str, int, int]]:
    """Name, size and time of each file that a split is read from."""
    if found.form == "folders":
        with open_members(found.path) as members:
            chosen = sort_members(members, named.folders).get(split, [])
            return [(f"{member.name} {member.label}", *members.stamps[member.name]) for member in chosen]
    if found.form == "parquet":
        files = found.splits[split]
    elif found.form == "batches" and named.batches is not None:
        files = tuple(found.path / name for name in (*named.batches.splits[split], named.batches.meta))
    else:
        files = (found.path,)
    try:
        return [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    except OSError as error:
        raise InputError(f"{error.filename}: can't be read: {error.strerror}") from error


def read_split(named: NamedSet, found: Found, split: str, progress: Progress | None = None) -> LabelledImages:
    """Decode a split from the form it lies in, without a cache."""
    if found.form == "parquet":
        data = read_tables(found.splits[split], progress)
    elif found.form == "batches" and named.batches is not None:
        data = read_cifar_batches(found.path, named.batches, split)
    elif found.form == "archive" and named.batches is not None:
        data = read_cifar_archive(found.path, named.archive.md5, named.batches, split)
    else:
        if found.form == "archive":
            check_archive(named, found.path)
        data = read_members(found.path, split, named.folders, progress)
    if not data.classes and data.labels.max() >= 0:
        names = named.classes or tuple(str(number) for number in range(int(data.labels.max()) + 1))
        data = replace(data, classes=names)
    if len(data.classes) > named.n_classes:
        raise InputError(f"{found.path}: {len(data.classes)} classes, and {named.name} has {named.n_classes}")
    if named.classes is not None and data.classes != named.classes:
        raise InputError(f"{found.path}: the classes are not those of {named.name}, in its order")
    return data


def check_archive(named: NamedSet, path: Path, progress: Progress | None = None) -> None:
    """Refuse an archive that is not the published one."""
    done = 0

    def report(size: int) -> None:
        nonlocal done
        done += size
        if progress is not None:
            progress(f"checking {path.name} (MiB)", done >> 20, named.archive.size >> 20)

    try:
        same = md5_of(path, report) == named.archive.md5
    except OSError as error:
        raise InputError(f"{path}: can't be read: {error.strerror}") from error
    if not same:
        raise InputError(f"{path}: not the published file (its MD5 is another); remove it and fetch it again")


def count_images(named: NamedSet, found: Found) -> dict[str, int]:
    """Images of each split, without decoding any; of an official archive or its batches, as published."""
    if found.form == "parquet":
        for parts in found.splits.values():
            check_parts(parts)
        return {split: count_rows(parts) for split, parts in found.splits.items()}
    if found.form == "folders":
        with open_members(found.path) as members:
            return {split: len(images) for split, images in sort_members(members, named.folders).items()}
    return dict(named.splits)
