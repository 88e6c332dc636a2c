"""Verification of the data sets under a root."""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from ..data.progress import Progress
from ..errors import InputError
from .cifar import read_published
from .datasets import check_archive, count_images, find_set, read_split
from .registry import NamedSet

SUMS = "SHA256SUMS"
"""File under the root, in sha256sum's format, that covers tables without published checksums."""


def verify_set(named: NamedSet, root: Path, progress: Progress | None = None) -> str:
    """A description of the checks; `InputError` for a set that is missing, damaged or incomplete.

    Files with a published MD5 must match it. Others must contain the published number of images and match
    `SHA256SUMS` under the root; without an entry there, every image must decode.
    """
    found = find_set(named, root)
    if found.is_archive:
        check_archive(named, found.path, progress)
        return f"MD5 as published ({named.archive.source})"
    if found.form != "parquet" and named.batches is not None:
        read_published(found.path, named.batches, named.batches.md5)
        return "MD5 of every batch as published"
    counts = count_images(named, found)
    for split, count in counts.items():
        published = named.splits.get(split, count)
        if count != published:
            raise InputError(f"{found.path}: {count:,} images in the {split} split, and not {published:,}")
    numbers = ", ".join(f"{count:,} {split}" for split, count in counts.items())
    missing = [split for split in named.splits if split not in counts and split not in named.pools]
    numbers += "".join(f"; no {split} split" for split in missing)
    files = [path for parts in found.splits.values() for path in parts]
    if files and _check_sums(root, files):
        return f"{numbers}; SHA-256 as in {SUMS}"
    for split in found.splits:
        if split in named.splits or split in named.pools:
            read_split(named, found, split, progress)
    return f"{numbers}; every image decodes, no checksum to compare with"


def _check_sums(root: Path, files: Iterable[Path]) -> bool:
    """Whether all files are listed in the root's checksums; a mismatch raises `InputError`."""
    try:
        lines = (root / SUMS).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return False
    sums = {
        root / parts[1].lstrip("*"): parts[0]
        for parts in (line.split(None, 1) for line in lines if line.strip())
        if len(parts) == 2
    }
    listed = True
    for path in files:
        if path not in sums:
            listed = False
            continue
        try:
            with path.open("rb") as file:
                same = hashlib.file_digest(file, "sha256").hexdigest() == sums[path]
        except OSError as error:
            raise InputError(f"{path}: can't be read: {error.strerror}") from error
        if not same:
            raise InputError(f"{path}: not the file that {SUMS} was made from")
    return listed
