"""Data sets by name under a data root: as parquet files of the hub, or as official files, extracted or
archived.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from .._files import system_cache
from ..data.decode import LabeledImages, cached, fingerprint, may_write
from ..data.image_tables import check_parts, count_rows, find_tables, read_tables
from ..data.progress import Progress
from ..errors import InputError, arg
from .archives import open_members, read_members, sort_members
from .cifar import md5_of, read_batches
from .registry import NamedSet, get_set

ROOT_VARIABLE = "GRAPHCLEAN_DATA"
CACHE_VARIABLE = "GRAPHCLEAN_CACHE"
DECODED_FOLDER = ".decoded"
"""Folder under the data root for decoded images."""


@dataclass(frozen=True)
class Found:
    """Where a set is stored, and in which form."""

    form: Literal["parquet", "official files"]
    path: Path
    """The folder, or the archive."""
    splits: Mapping[str, tuple[Path, ...]]
    """Split -> its parquet tables; for official files, only the splits that exist."""

    @property
    def is_archive(self) -> bool:
        """Whether the official files are archived."""
        return self.form != "parquet" and self.path.is_file()


def data_root(given: Path | None = None) -> Path:
    """The given root, GRAPHCLEAN_DATA, or graphclean/data in the user's cache folder."""
    if given is not None:
        return given
    named = os.environ.get(ROOT_VARIABLE)
    if named:
        return Path(named)
    return system_cache() / "data"


def cache_folder(root: Path) -> Path | None:
    """The cache of decoded images: GRAPHCLEAN_CACHE, or under the root, or none if that is read-only."""
    named = os.environ.get(CACHE_VARIABLE)
    if named:
        return Path(named)
    return root / DECODED_FOLDER if may_write(root) else None


def locate_set(named: NamedSet, root: Path) -> Found | None:
    """The first form of a set found under the root, if any."""
    for folder in (root / place for place in named.places):
        tables = find_tables(folder) if folder.is_dir() else {}
        if tables:
            ordered = sorted(tables, key=[*named.splits, *tables].index)
            return Found("parquet", folder, {split: tuple(tables[split]) for split in ordered})
        for path in (folder / named.archive.file, folder):
            splits = _official_splits(named, path)
            if splits:
                return Found("official files", path, dict.fromkeys(splits, ()))
    archive = root / named.archive.file
    return Found("official files", archive, dict.fromkeys(named.splits, ())) if archive.is_file() else None


def _official_splits(named: NamedSet, path: Path) -> list[str]:
    """The splits for which official files exist; an archive counts as complete."""
    if not path.is_dir():
        return list(named.splits) if path.is_file() else []
    with open_members(path) as members:
        if named.batches is None:
            return list(sort_members(members, named.folders))
        meta = (named.batches.meta, f"{named.batches.folder}/{named.batches.meta}")
        return list(named.splits) if any(name in members.stamps for name in meta) else []


def find_set(named: NamedSet, root: Path) -> Found:
    """Like `locate_set`, but a missing set raises `InputError`."""
    found = locate_set(named, root)
    if found is None:
        raise InputError(
            f"{named.name} is not under {root}; run `graphclean data fetch {named.name}`, "
            f"or name another root with {arg('data_root')} or {ROOT_VARIABLE}"
        )
    return found


def find_split(name: str, split: str, root: Path | None = None) -> Found:
    """A set that has this split; otherwise `InputError`."""
    found = find_set(get_set(name), data_root(root))
    if split not in found.splits:
        have = ", ".join(found.splits)
        raise InputError(f"{found.path}: no {split} split of {name}; there are: {have}")
    return found


def find_pool(name: str, root: Path | None = None) -> tuple[Found, str]:
    """A set and the split that OOD images are drawn from; `InputError` if there is none."""
    named = get_set(name)
    found = find_set(named, data_root(root))
    split = next((split for split in named.pools if split in found.splits), None)
    if split is None:
        raise InputError(
            f"{found.path}: none of the splits {', '.join(named.pools)}, the source of OOD images"
        )
    return found, split


def load_split(
    name: str,
    split: str,
    root: Path | None = None,
    *,
    cache: Path | None = None,
    progress: Progress | None = None,
) -> LabeledImages:
    """The images of one split at 32 px with their labels; decoded once, then memory-mapped.

    `cache` names the cache folder; the default is `cache_folder`.
    """
    named, found, root = get_set(name), find_split(name, split, root), data_root(root)
    key = fingerprint(found.path, f"{found.form} {split}", _stamps(named, found, split))
    folder = cache if cache is not None else cache_folder(root)
    return cached(folder, f"{name}-{split}", key, lambda: read_split(named, found, split, progress))


def load_pool(
    name: str, root: Path | None = None, *, cache: Path | None = None, progress: Progress | None = None
) -> LabeledImages:
    """The images of a set that OOD is drawn from; their labels are ignored."""
    _, split = find_pool(name, root)
    return load_split(name, split, root, cache=cache, progress=progress)


def _stamps(named: NamedSet, found: Found, split: str) -> Iterable[tuple[str, int, int]]:
    """Name, size and modification time of each file of a split."""
    if found.form != "parquet" and not found.is_archive:
        with open_members(found.path) as members:
            if named.batches is not None:
                return [(name, *stamp) for name, stamp in members.stamps.items()]
            chosen = sort_members(members, named.folders).get(split, [])
            return [(f"{member.name} {member.label}", *members.stamps[member.name]) for member in chosen]
    files = found.splits[split] if found.form == "parquet" else (found.path,)
    try:
        return [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    except OSError as error:
        raise InputError(f"{error.filename}: can't be read: {error.strerror}") from error


def read_split(named: NamedSet, found: Found, split: str, progress: Progress | None = None) -> LabeledImages:
    """Decode a split without the cache."""
    if found.form == "parquet":
        data = read_tables(found.splits[split], progress)
    elif named.batches is not None:
        data = read_batches(found.path, named.batches, split)
    else:
        if found.is_archive:
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
    """Refuse an archive that differs from the published one."""
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
    """Images of each split, without decoding; for official files, the published numbers."""
    if found.form == "parquet":
        for parts in found.splits.values():
            check_parts(parts)
        return {split: count_rows(parts) for split, parts in found.splits.items()}
    if named.batches is not None or found.is_archive:
        return dict(named.splits)
    with open_members(found.path) as members:
        return {split: len(images) for split, images in sort_members(members, named.folders).items()}
