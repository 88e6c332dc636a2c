"""WebDataset shards: tar files whose members belong together by name, read in place and never unpacked."""

import os
import re
import tarfile
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from ..errors import InputError, MissingLabels, arg, parse_json
from .image_folder import IMAGE_SUFFIXES, ImageSet
from .images import Encoded, FilePart, short_reason
from .manifests import LABEL_COLUMNS
from .tables import Names, cell_text, listed

SHARD = ".tar"
PACKED_TARS = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
"""A range of numbers, as in `train-{000000..000012}.tar`."""
MOST_SHARDS = 100_000
LARGEST_PHOTO, LARGEST_LABEL = 2**28, 2**20
"""Sizes in bytes above which a member is not read."""
LABEL_TYPES = ("cls", "json", "txt")
"""Types of members that hold a sample's label, the first that is there counts; texts are often captions."""


@dataclass(frozen=True)
class ShardImages(ImageSet):
    """Photos in tar shards, by their place in the file."""

    parts: list[FilePart | None]
    """None if refused."""

    def items(self, skip: Container[int] = ()) -> Iterator[tuple[int, Encoded]]:
        """Row and place."""
        return ((row, part) for row, part in enumerate(self.parts) if part is not None and row not in skip)

    def stamps(self) -> list[list[Any]]:
        """Name of the shard, place, size, and the shard's size and modification times."""
        known: dict[Path, list[Any]] = {}
        for path in {part.path for part in self.parts if part is not None}:
            try:
                status = path.stat()
            except OSError:
                continue
            known[path] = [status.st_size, status.st_mtime_ns, status.st_ctime_ns]
        return [
            [part.path.name, part.offset, part.size, *known[part.path]]
            if part is not None and part.path in known
            else []
            for part in self.parts
        ]


@dataclass
class _Sample:
    """Members of one name."""

    photo: tuple[str, FilePart] | None = None
    """Type and place."""
    problem: str | None = None
    labels: dict[str, bytes] = field(default_factory=dict)
    """Content by type."""


def names_shards(data: Path) -> bool:
    """Whether data is a tar file, a pattern of several, or a folder that holds nothing else of interest."""
    if RANGE.search(data.name) or data.name.lower().endswith((SHARD, *PACKED_TARS)):
        return not data.is_dir()
    return data.is_dir() and bool(_tars_of(data))


def shards_exist(data: Path) -> bool:
    """Whether data names shards of which the first is there."""
    return names_shards(data) and next(iter(_expand(str(data)))).exists()


def read_shards(data: Path, names: Names, *, labeled: bool = True) -> ShardImages:
    """The photos of all shards, in their order; ids are `shard/key`, without the endings.

    A sample's label is the text of its `key.cls`, a field of `key.json` (`label` and the like, or the one
    named as label column), or the text of `key.txt`. What is no sample, such as a link, or a name that leaves
    the archive, becomes a row that is never opened.
    """
    ids: list[str] = []
    labels: list[str | None] = []
    parts: list[FilePart | None] = []
    problems: dict[int, str] = {}
    shards = _tars_of(data) if data.is_dir() else list(_expand(str(data)))
    for path in shards:
        for key, sample in _read_shard(path).items():
            if sample.photo is None and sample.problem is None:
                continue
            if sample.problem is not None:
                problems[len(ids)] = sample.problem
            ids.append(f"{path.name.removesuffix(SHARD)}/{key}")
            parts.append(sample.photo[1] if sample.photo is not None and sample.problem is None else None)
            labels.append(_label(sample, names.label_column, path, key) if labeled else None)
    if not any(parts):
        some = f"; {ids[0]}: {problems[0]}" if problems else ""
        raise InputError(f"no images in {data}{some}")
    if labeled and not any(label is not None for label in labels):
        what = f"{names.label_column!r} in KEY.json" if names.label_column else "KEY.cls or KEY.json"
        raise MissingLabels(f"{data}: no sample has a label ({what})", f"name it with {arg('label_column')}")
    return ShardImages(ids, [label or "" for label in labels] if labeled else None, problems, parts)


def _tars_of(folder: Path) -> list[Path]:
    """The shards of a folder, unless it holds folders or photos, too."""
    found = []
    with os.scandir(folder) as entries:
        there = [entry for entry in entries if not entry.name.startswith(".")]
    for entry in there:
        suffix = Path(entry.name).suffix.lower()
        if suffix in IMAGE_SUFFIXES or entry.is_dir(follow_symlinks=False):
            return []
        if suffix == SHARD and entry.is_file():
            found.append(Path(entry.path))
    return sorted(found)


def _expand(pattern: str) -> Iterator[Path]:
    """All paths of a pattern; numbers have as many digits as the first one is written with."""
    found = RANGE.search(pattern)
    if found is None:
        yield Path(pattern)
        return
    first, last = int(found[1]), int(found[2])
    if not first <= last < first + MOST_SHARDS:
        raise InputError(f"{pattern}: a range of shards goes up, as in name-{{000000..000012}}.tar")
    for number in range(first, last + 1):
        middle = str(number).zfill(len(found[1]))
        yield from _expand(pattern[: found.start()] + middle + pattern[found.end() :])


def _read_shard(path: Path) -> dict[str, _Sample]:
    """The samples of a shard by key, from the headers of its members and the content of labels."""
    if path.name.lower().endswith(PACKED_TARS):
        raise InputError(
            f"{path}: compressed, so photos can't be read from their places; unpack it to a .tar"
        )
    if not path.is_file():
        raise InputError(f"{path}: " + ("not a file" if path.exists() else "no such file"))
    samples: dict[str, _Sample] = {}
    seen: set[str] = set()
    end, last = path.stat().st_size, ""
    try:
        with tarfile.open(path, "r:") as tar:
            before = -1
            while (member := tar.next()) is not None:
                tar.members.clear()  # type: ignore[attr-defined]  # it would keep all of them
                if member.offset_data <= before or (
                    member.isreg() and member.offset_data + member.size > end
                ):
                    raise tarfile.ReadError("unexpected end of data")
                before = member.offset_data
                if not member.isdir():
                    _add(samples, seen, tar, member, path)
                    last = member.name
            # The reader takes anything that is no header for the end.
            with path.open("rb") as file:
                file.seek(tar.offset)
                mark = file.read(tarfile.BLOCKSIZE)
            if mark != tarfile.NUL * tarfile.BLOCKSIZE:
                raise tarfile.ReadError(
                    "unexpected end of data" if len(mark) < tarfile.BLOCKSIZE else "no header"
                )
    except InputError:
        raise
    except (tarfile.TarError, OSError, ValueError, EOFError, OverflowError, RecursionError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            why = short_reason(error)
        elif not samples:
            why = "not a tar file, or damaged"
        else:
            what = "truncated" if "end of data" in str(error) else "damaged"
            why = f"{what} after {_text(last)}; get it again, or name the other shards"
        raise InputError(f"{path}: {why}") from error
    return samples


def _add(
    samples: dict[str, _Sample], seen: set[str], tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path
) -> None:
    name = member.name.removeprefix("./")
    folder, _, file = name.replace("\\", "/").rpartition("/")
    stem, _, kind = file.partition(".")
    if file.startswith(".") or not kind:
        return
    kind = kind.lower()
    photo = f".{kind.rpartition('.')[2]}" in IMAGE_SUFFIXES
    if not photo and kind not in LABEL_TYPES:
        return
    if name in seen:
        raise InputError(
            f"{path}: two of its members are called {_text(name)}, so it is unclear which counts"
        )
    seen.add(name)
    sample = samples.setdefault(_text(f"{folder}/{stem}" if folder else stem), _Sample())
    problem = _refuse(member, name, LARGEST_PHOTO if photo else LARGEST_LABEL)
    if problem is not None:
        sample.problem = problem
    elif not photo:
        content = tar.extractfile(member)
        sample.labels[kind] = content.read() if content is not None else b""
    elif sample.photo is None or ("." in sample.photo[0] and "." not in kind):
        sample.photo = (kind, FilePart(path, member.offset_data, member.size))
    elif "." not in kind:
        sample.problem = f"two photos, .{sample.photo[0]} and .{kind}"


def _refuse(member: tarfile.TarInfo, name: str, largest: int) -> str | None:
    """Why a member is not read, or None."""
    parts = PurePosixPath(name.replace("\\", "/"))
    if parts.is_absolute() or ".." in parts.parts or re.match(r"[A-Za-z]:", name):
        return "its name leaves the archive"
    if member.issym() or member.islnk():
        return "a link, not followed"
    if not member.isreg() or member.issparse():
        return "not a file"
    if member.size > largest:
        return f"too large ({member.size / 1e6:,.0f} MB)"
    return "empty file" if member.size == 0 and largest == LARGEST_PHOTO else None


def _label(sample: _Sample, column: str | None, path: Path, key: str) -> str | None:
    """A sample's label; None if it has none."""
    if sample.problem is not None:
        return None
    kinds = (column,) if column in sample.labels else LABEL_TYPES if column is None else ("json",)
    for kind in kinds:
        if kind not in sample.labels:
            continue
        try:
            text = sample.labels[kind].decode("utf-8-sig").strip()
            if kind != "json":
                return text
            record = parse_json(text)
        except ValueError as error:
            raise InputError(f"{path}: {key}.{kind} is damaged") from error
        found = _field(record, column, path, key)
        if found is not None:
            return found
    return None


def _field(record: Any, column: str | None, path: Path, key: str) -> str | None:
    where = path.with_name(f"{path.name}, {key}.json")
    if not isinstance(record, dict):
        raise InputError(f"{where}: no JSON object")
    names = [name for name in record if name == column or (column is None and name.lower() in LABEL_COLUMNS)]
    if len(names) > 1:
        raise InputError(
            f"{where}: more than one label ({listed(names)}); name one with {arg('label_column')}"
        )
    return cell_text(record[names[0]], names[0], where) if names else None


def _text(name: str) -> str:
    """A name as writable text: undecodable bytes are escaped."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
