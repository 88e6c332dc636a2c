"""A folder with links to photos or copies of them, which can be updated at any time."""

import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import pandas as pd

from .._files import check_unlocked, drafting, locked, replaced, sweep, write_json
from ..data.progress import Progress
from ..errors import ELSEWHERE, InputError, arg, occupied, parse_json
from .folder import check_target, new_run
from .interrupts import interruptible

Placing = Literal["link", "hardlink", "copy"]
RECORD = ".graphclean.json"
"""The record of the files placed in a folder; it identifies the folder as ours, and its stale files."""
MANIFEST = "cleaned.csv"
LONGEST_FOLDER, LONGEST_NAME = 200, 255
"""Maximum lengths of names in bytes; the latter is the limit of most file systems."""


@dataclass(frozen=True)
class FolderPlan:
    """The destination of each sample's photo."""

    names: list[str | None]
    """`<folder>/<file>`; None if there is no photo, or no label."""
    notes: list[str] = field(default_factory=list)


class _Taken:
    """The names in use in a folder, compared case-insensitively, as on some file systems."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._last = {name.casefold(): 1 for name in names}

    def choose(self, stem: str, suffix: str = "") -> str:
        """Take a name, with a number added if it is taken already."""
        name, key = stem + suffix, (stem + suffix).casefold()
        while name.casefold() in self._last:
            self._last[key] += 1
            name = _shorten(stem, f"-{self._last[key]}{suffix}")
        self._last[name.casefold()] = 1
        return name


def _shorten(stem: str, end: str) -> str:
    """Stem and end, with the stem cut so that the name fits."""
    while stem and len(os.fsencode(stem + end)) > LONGEST_NAME:
        stem = stem[:-1]
    return stem + end


def plan_files(labels: Sequence[Any], photos: Sequence[Path | None], first: Sequence[bool]) -> FolderPlan:
    """A destination for each photo with a label; if names collide, those marked as `first` keep theirs."""
    texts = [None if pd.isna(label) else str(label) for label in labels]
    folders = name_folders({text for text in texts if text is not None})
    taken = {folder: _Taken() for folder in folders.values()}
    names: list[str | None] = [None] * len(texts)
    leads = list(first)
    for row in sorted(range(len(texts)), key=lambda row: not leads[row]):
        text, photo = texts[row], photos[row]
        if text is not None and photo is not None:
            folder = folders[text]
            names[row] = f"{folder}/{taken[folder].choose(photo.stem, photo.suffix)}"
    renamed = [f"{label} as {folder}" for label, folder in folders.items() if label != folder]
    notes = []
    if renamed:
        some = ", ".join(renamed[:3]) + (", …" if len(renamed) > 3 else "")
        notes.append(f"labels that can't name a folder, or not a second one: {some}")
    return FolderPlan(names, notes)


def name_folders(labels: Iterable[str]) -> dict[str, str]:
    """A folder for each label, with the label as its name if possible; no two share a folder."""
    taken = _Taken([MANIFEST])
    safe = {label: _safe_name(label) for label in sorted(labels)}
    # Labels that are valid names keep them, whatever the others become.
    order = sorted(safe, key=lambda label: safe[label] != label)
    return {label: taken.choose(safe[label]) for label in order}


def _safe_name(label: str) -> str:
    name = re.sub(r"[\x00-\x1f\x7f/\\]", "_", label)
    name = f"_{name}" if name.startswith(".") or not name.strip() else name
    return name.encode("utf-8", "backslashreplace")[:LONGEST_FOLDER].decode("utf-8", "ignore")


def place_files(
    out: Path,
    form: Placing,
    files: dict[str, Path],
    manifest: bytes,
    *,
    dry_run: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> int:
    """Make `out` contain `files` (name -> original) and the manifest; returns the number of changed files.

    A new folder is created atomically. In the folder of an earlier call, only differences are written, and
    stale files are removed; a folder that contains anything else is refused.
    """
    record = {
        "format": 1,
        "form": form,
        "manifest": hashlib.sha256(manifest).hexdigest(),
        "files": {name: str(original) for name, original in files.items()},
    }
    busy = f"{out}: another process writes into it; wait until it ends, or choose another {arg('out')}"
    if not dry_run:  # remove leftovers of killed processes, even if nothing else changes
        sweep(Path(os.path.realpath(out)).parent)
        sweep(out)
        check_unlocked(out, busy)
    if not _holds_something(out):
        check_target(out, overwrite=False)
        if not dry_run:
            with new_run(out) as folder:
                _fill(folder, form, files, manifest, record, progress)
        return len(files) + 1
    before = _read_record(out)
    if before != record and not overwrite:
        raise InputError(
            f"{out}: the folder holds other results of `graphclean apply`; use {arg('overwrite')} to bring "
            f"it up to date, or another {arg('out')}"
        )
    stale = [out / name for name in before["files"] if name not in files and os.path.lexists(out / name)]
    wrong = {name: path for name, path in files.items() if not _is_placed(out / name, path, form)}
    same = _holds(out / MANIFEST, manifest)
    if not same and not overwrite and os.path.lexists(out / MANIFEST):
        raise occupied(out / MANIFEST, "the file differs")
    if not dry_run and (before != record or stale or wrong or not same):
        _refuse_links(out, {*files, *before["files"]})
        try:
            with locked(out, busy), interruptible("the same command continues"):
                _remove(stale, {(out / name).parent for name in before["files"]})
                _fill(out, form, wrong, manifest, record, progress)
        except OSError as error:
            raise InputError(f"{out}: can't be written: {error.strerror}") from error
    return len(stale) + len(wrong) + (not same)


def _holds_something(out: Path) -> bool:
    try:
        return out.is_dir() and any(out.iterdir())
    except OSError as error:
        raise InputError(f"{out}: can't be read: {error.strerror}") from error


def _read_record(out: Path) -> dict[str, Any]:
    """Read what an earlier call placed; it is not trusted, since files are removed according to it."""
    path = out / RECORD
    if not path.is_file():
        raise InputError(f"{out}: the folder holds files that `graphclean apply` did not write; {ELSEWHERE}")
    try:
        record = dict(parse_json(path.read_text(encoding="utf-8")))
        good = all(_is_name(name) for name in record["files"].keys())  # noqa: SIM118 – must be a table
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: damaged; {ELSEWHERE}") from error
    if not good:
        raise InputError(f"{path}: damaged, as it names files outside its folder; {ELSEWHERE}")
    return record


def _is_name(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return len(parts) == 2 and not {"..", "/"} & set(parts)


def _is_placed(target: Path, original: Path, form: Placing) -> bool:
    """Whether `target` is what `_place` would create."""
    try:
        if form == "link":
            return target.is_symlink() and os.readlink(target) == str(original)
        mine, theirs = target.lstat(), original.stat()
    except OSError:
        return False
    if form == "hardlink":
        return os.path.samestat(mine, theirs)
    same = (mine.st_size, mine.st_mtime_ns) == (theirs.st_size, theirs.st_mtime_ns)
    return same and not target.is_symlink() and not os.path.samestat(mine, theirs)


def _holds(path: Path, content: bytes) -> bool:
    return path.is_file() and not path.is_symlink() and path.read_bytes() == content


def _refuse_links(out: Path, names: Iterable[str]) -> None:
    """Refuse links in place of the folders of labels, which would lead out of `out`."""
    for folder in sorted({name.split("/")[0] for name in names}):
        if (out / folder).is_symlink():
            raise InputError(f"{out / folder}: a link where a folder should be; remove it first")


def _remove(stale: Sequence[Path], folders: Iterable[Path]) -> None:
    """Remove files, and the folders that are empty afterwards, also those left by a killed update."""
    for path in stale:
        path.unlink(missing_ok=True)
    for folder in folders:
        with suppress(OSError):  # not empty
            folder.rmdir()


def _fill(
    folder: Path,
    form: Placing,
    files: dict[str, Path],
    manifest: bytes,
    record: dict[str, Any],
    progress: Progress | None,
) -> None:
    """Place files, writing the record first so that an interrupted call can be continued."""
    write_json(folder / RECORD, record)
    stage = {"link": "linking", "hardlink": "linking", "copy": "copying"}[form]
    with drafting(folder / RECORD) as drafts:
        for done, (name, original) in enumerate(files.items()):
            if progress is not None:
                progress(stage, done, len(files))
            _place(folder / name, original, form, drafts / "photo")
    if not _holds(folder / MANIFEST, manifest):
        with replaced(folder / MANIFEST) as draft:
            draft.write_bytes(manifest)


def _place(target: Path, original: Path, form: Placing, draft: Path) -> None:
    """Place a file, replacing the name `target`: if it is a link, it is not written through."""
    target.parent.mkdir(exist_ok=True)
    try:
        if form == "link":
            os.symlink(original, draft)
        elif form == "hardlink":
            os.link(original, draft)
        else:
            shutil.copy2(original, draft)
        os.replace(draft, target)
    except OSError as error:
        hint = f"; {arg('copy')} or {arg('link')} may work" if form == "hardlink" else ""
        where = f"{target.parent.name}/{target.name}"
        raise InputError(f"{where}: can't be made from {original}: {error.strerror}{hint}") from error
    finally:
        draft.unlink(missing_ok=True)
