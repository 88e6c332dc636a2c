"""Photos as people have them: class folders, or a table of paths and labels."""

import csv
import difflib
import os
import stat
import warnings
from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image, ImageOps, UnidentifiedImageError

from ..errors import InputError, MissingLabels
from .files import PARQUET, listed, separator, usual_column

SUFFIXES = {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff"}
UNREAD = {
    *(".heic", ".heif", ".avif", ".jxl", ".jp2", ".j2k", ".svg", ".psd"),
    *(".dng", ".cr2", ".cr3", ".nef", ".arw", ".raf", ".orf", ".rw2"),
}
"""Photos that are listed, but can't be read: to pass over them in silence would hide what cameras take."""
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
"""All that Pillow may try, whatever a file is called: its other readers are needless risk."""
PATH_COLUMNS = {"path", "file", "filename", "file_name", "filepath", "image", "image_path"}
SPLITS = {"train", "training", "val", "valid", "validation", "dev", "test", "testing"}
"""Folders that hold a part of a data set, and name no class unless there are others beside them."""
LABEL_COLUMNS = {"label", "class", "category", "target", "y"}

GLANCE = 20
"""Rows by which a table is taken for one of photos or of embeddings."""
FEW_NUMBERS = 16
"""Number columns from which a table with paths is one of embeddings."""

DEPTHS = (2**8 - 1, 2**12 - 1, 2**16 - 1)
"""The whitest value of deep grey images, by the bits that are used of it."""

LEAVES = "leaves the folder"
MISSING = "no such file"
NOT_FETCHED = "a web address, which is not fetched"

# Pillow warns of images above its limit, with a path of its own source; `open_image` refuses them.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)

Encoded: TypeAlias = Path | bytes
"""An image file, or the content of one."""
Choose: TypeAlias = Callable[[list[str]], list[int]]
"""From a table's header to the places of the columns that are wanted."""


@dataclass(frozen=True)
class ImageSet:
    """Photos that are not yet opened, one row each, in an order that two runs agree on."""

    ids: list[str]
    labels: list[str] | None
    """Class names, "" where a photo has none; None where labels were not asked for."""
    problems: dict[int, str]
    """Row -> reason, for the rows refused before opening."""

    def items(self, skip: Container[int] = ()) -> Iterator[tuple[int, Encoded]]:
        """Row and what `open_image` takes, in order, without the rows refused and those to `skip`."""
        raise NotImplementedError

    def stamps(self) -> list[list[Any]]:
        """For each row, what changes when its photo does; nothing where that can't be told."""
        raise NotImplementedError


@dataclass(frozen=True)
class ImageFiles(ImageSet):
    """Photos that are files."""

    root: Path
    paths: list[Path | None]
    """Absolute files; None where refused."""

    def items(self, skip: Container[int] = ()) -> Iterator[tuple[int, Encoded]]:
        """Row and path."""
        return ((row, path) for row, path in enumerate(self.paths) if path is not None and row not in skip)

    def stamps(self) -> list[list[Any]]:
        """Place under the root, size and time of change."""
        return [_stamp(path, self.root) for path in self.paths]


def _stamp(path: Path | None, root: Path) -> list[Any]:
    if path is None:
        return []
    try:
        status = path.stat()
    except OSError:
        return []
    return [os.path.relpath(path, root), status.st_size, status.st_mtime_ns]


class UnreadableImage(Exception):  # noqa: N818 – it names the file's state, not a fault of ours
    """A file that gives no image; the message is a short reason."""


def read_image_folder(root: Path, *, labelled: bool = True, least: int = 2) -> ImageFiles:
    """The photos of `root/<label>/…`, sorted by path; ids are paths relative to `root`.

    Photos that lie directly in `root` are unlabelled. Names with a leading dot are skipped. Links that
    leave `root` are rows that are never opened, and linked folders are rows that are never entered.
    With `labelled=False` the folders mean nothing and all photos are taken.
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
        labels=labels if labelled else None,
        problems={row: problem for row, (_, _, problem) in enumerate(rows) if problem},
    )
    parts = sorted(set(labels) - {""}, key=lambda part: (not part.lower().startswith("train"), part))
    if (
        labelled
        and {part.lower() for part in parts} <= SPLITS
        and any(name.count("/") > 1 for name in images.ids)
    ):
        raise InputError(
            f"{root}: {', '.join(parts)} are parts of a data set, not classes; give one: {root / parts[0]}"
        )
    _check_files(images, root, least)
    return images


def empty_folders(root: Path, labels: Container[str]) -> list[str]:
    """Class folders without a photo, which are no classes then."""
    folders = (_text(Path(entry.name)) for entry in os.scandir(root) if entry.is_dir(follow_symlinks=False))
    return sorted(name for name in folders if not name.startswith(".") and name not in labels)


def names_photo(path: Path) -> bool:
    """Whether this is one photo, by its name: also of a kind that is not read."""
    return path.suffix.lower() in SUFFIXES | UNREAD and path.is_file()


def read_image_file(path: Path, *, labelled: bool = True) -> ImageFiles:
    """One photo, which has no label; its id is its name."""
    if labelled:
        raise InputError(f"{path}: one photo by itself has no label; give the folder of the class folders")
    suffix = path.suffix.lower()
    problems = {0: _unread(suffix)} if suffix in UNREAD else {}
    paths = [None if problems else Path(os.path.abspath(path))]
    return ImageFiles([path.name], None, problems, Path(os.path.abspath(path.parent)), paths)


def _walk(root: Path) -> Iterator[tuple[Path, str | None]]:
    """Every photo below `root`, or the reason why a photo or a folder is refused."""
    folders = [root]
    while folders:
        folder = folders.pop()
        try:
            entries = [entry for entry in os.scandir(folder) if not entry.name.startswith(".")]
        except OSError as error:
            yield folder, _reason(error)
            continue
        for entry in entries:
            path = Path(entry.path)
            if entry.is_symlink():
                problem = _check_link(path, root)
                if problem is not None or path.suffix.lower() in SUFFIXES:
                    yield path, problem
            elif entry.is_dir():
                folders.append(path)
            elif path.suffix.lower() in SUFFIXES:
                yield path, _check_place(path, root)
            elif path.suffix.lower() in UNREAD:
                yield path, _unread(path.suffix.lower())


def _unread(suffix: str) -> str:
    return f"{suffix} is not read; convert it to .jpg or .png"


def _check_link(link: Path, root: Path) -> str | None:
    """Why a link must not be followed, if so; what it says of files other than photos is ignored."""
    try:
        target = Path(os.path.realpath(link, strict=True))
    except OSError:
        return "broken link"
    if target.is_dir():
        return "linked folder, not entered" if target.is_relative_to(root) else LEAVES
    return _check_place(target, root) if link.suffix.lower() in SUFFIXES else None


def _check_place(target: Path, root: Path) -> str | None:
    """Why a resolved path must not be opened, if so."""
    if not target.is_relative_to(root):
        return LEAVES
    if target.is_file():
        return None
    return "not a file" if target.exists() else MISSING


def read_manifest(
    path: Path,
    *,
    path_column: str | None = None,
    label_column: str | None = None,
    id_column: str | None = None,
    labelled: bool = True,
    least: int = 2,
) -> ImageFiles:
    """The photos that a CSV, TSV or parquet table names, in its order; paths start from its folder.

    Columns are named by the caller or known by their usual names. Ids are the paths as written unless there
    is a column `id`, or an `id_column` is named. Paths that leave the table's folder are never opened.
    """
    if not path.is_file():
        raise InputError(f"{path} is not a file" if path.exists() else f"no such file: {path}")

    def choose(header: list[str]) -> list[int]:
        chosen = [find_column(path, header, path_column, PATH_COLUMNS, "path")]
        if labelled:
            chosen.append(find_column(path, header, label_column, LABEL_COLUMNS, "label"))
        if id_column is not None or usual_column(header, "id") is not None:
            chosen.append(find_column(path, header, id_column, {"id"}, "id"))
        return chosen

    read = _read_parquet if path.suffix.lower() in PARQUET else _read_text
    columns = read(path, choose)
    if not columns[0]:
        raise InputError(f"{path} has no rows")
    root = Path(os.path.realpath(path.parent))
    find = _Finder(root)
    places = [find(cell) for cell in columns[0]]
    images = ImageFiles(
        root=root,
        paths=[place if isinstance(place, Path) else None for place in places],
        ids=columns[-1] if len(columns) == 2 + labelled else columns[0],
        labels=columns[1] if labelled else None,
        problems={row: place for row, place in enumerate(places) if isinstance(place, str)},
    )
    _check_files(images, path, least)
    return images


def looks_like_manifest(path: Path) -> bool:
    """Whether a table names photos: a usual path column with an image's name in it, and few numbers.

    A table of embeddings may hold paths too; what it has and a manifest has not is many numbers, or a list.
    """
    try:
        header, rows = _first_rows(path)
    except (OSError, ValueError, csv.Error, pa.ArrowException):
        return False
    cells = rows[0] if rows else []
    places = [place for place, name in enumerate(header) if name.lower() in PATH_COLUMNS]
    named = [str(row[place]) for row in rows for place in places if place < len(row)]
    numbers = sum(_is_number(cell) for cell in cells)
    lists = any(isinstance(cell, list) or str(cell).lstrip().startswith("[") for cell in cells)
    return (
        any(Path(cell.strip()).suffix.lower() in SUFFIXES for cell in named)
        and numbers < FEW_NUMBERS
        and not lists
    )


def _first_rows(path: Path) -> tuple[list[str], list[list[Any]]]:
    """The header and the first few rows of a table."""
    if path.suffix.lower() in PARQUET:
        with pq.ParquetFile(path) as file:
            header = list(file.schema_arrow.names)
            rows = next(file.iter_batches(batch_size=GLANCE)).to_pylist() if file.metadata.num_rows else []
        return header, [[row[name] for name in header] for row in rows]
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=separator(path, file.readline()))
        file.seek(0)
        return [name.strip() for name in next(reader, [])], list(islice(reader, GLANCE))


def _is_number(cell: Any) -> bool:
    try:
        float(cell.replace(",", ".") if isinstance(cell, str) else cell)
    except (TypeError, ValueError):
        return False
    return True


def find_column(path: Path, header: list[str], asked: str | None, usual: set[str], what: str) -> int:
    """The place of a column: the one that was asked for, or the only one with a usual name."""
    names = [name.lower() for name in header] if asked is None else header
    found = [place for place, name in enumerate(names) if name in (usual if asked is None else {asked})]
    if len(found) == 1:
        return found[0]
    if found:
        which = ", ".join(header[place] for place in found)
        raise InputError(
            f"{path}: more than one column could hold the {what} ({which}); say which with --{what}-column"
        )
    there = listed(header)
    if asked is None:
        missing = f"{path}: no column is known to hold the {what} (there are: {there})"
        advice = f"say which one does, with --{what}-column"
        raise MissingLabels(missing, advice) if what == "label" else InputError(f"{missing}; {advice}")
    near = difflib.get_close_matches(asked, header, n=1, cutoff=0.5)
    hint = f'did you mean "{near[0]}"? ' if near else ""
    raise InputError(f'{path} has no column "{asked}"; {hint}there are: {there}')


def _read_text(path: Path, choose: Choose) -> list[list[str]]:
    """The chosen columns of a CSV or TSV file, every cell as it is written."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            parted = separator(path, file.readline())
            file.seek(0)
            reader = csv.reader(file, delimiter=parted, strict=True)
            header = [name.strip() for name in next(reader, [])]
            chosen = choose(header)
            columns: list[list[str]] = [[] for _ in chosen]
            for cells in filter(None, reader):
                if len(cells) != len(header):
                    counts = f"{len(cells)} cell{'s' if len(cells) > 1 else ''}, the header has {len(header)}"
                    raise InputError(f"{path}, line {reader.line_num}: {counts}")
                for column, place in zip(columns, chosen, strict=True):
                    column.append(cells[place])
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text; save it as a CSV in UTF-8") from error
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: {error}") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    return columns


def _read_parquet(path: Path, choose: Choose) -> list[list[str]]:
    """The chosen columns of a parquet file, as text."""
    try:
        with pq.ParquetFile(path) as file:
            header = list(file.schema_arrow.names)
            names = [header[place] for place in choose(header)]
            table = file.read(columns=names)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"cannot read {path} as parquet: {str(error).splitlines()[0]}") from error
    return [[cell_text(value, name, path) for value in table[name].to_pylist()] for name in names]


def cell_text(value: Any, name: str, path: Path) -> str:
    """A parquet value as a CSV would write it; numbers that became floats beside gaps are whole again."""
    if value is None or value != value:
        return ""
    if isinstance(value, dict | list | bytes):
        raise InputError(f'{path}: column "{name}" holds {type(value).__name__} values, not text or numbers')
    if isinstance(value, datetime):
        return str(value).removesuffix(" 00:00:00")
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


class _Finder:
    """The files that a table's cells name; a folder is resolved once, however many files of it are named."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folders: dict[str, Path | None] = {}
        """As written -> resolved; None where it leaves the root, or is odd."""

    def __call__(self, cell: str) -> Path | str:
        """The file, or why it is refused; tried as written, without spaces at its ends, and as Windows'."""
        if not cell.strip():
            return "no path"
        if cell.strip().lower().startswith(("http://", "https://")):
            return NOT_FETCHED
        spellings = dict.fromkeys([cell, cell.strip(), cell.strip().replace("\\", "/")])
        found = [self._find(spelling) for spelling in spellings]
        return next((place for place in found if isinstance(place, Path)), found[-1])

    def _find(self, cell: str) -> Path | str:
        try:
            return self._quick(cell) or self._resolve(cell)
        except (OSError, ValueError):  # a name too long, or with a NUL byte
            return MISSING

    def _quick(self, cell: str) -> Path | None:
        """A plain file in a folder inside the root, which nearly all are."""
        head, name = os.path.split(cell)
        if head not in self.folders:
            folder = Path(os.path.realpath(self.root / head))
            self.folders[head] = folder if folder.is_relative_to(self.root) else None
        known = self.folders[head]
        if known is None or name in ("", ".", ".."):
            return None
        target = known / name
        try:
            return target if stat.S_ISREG(target.lstat().st_mode) else None
        except FileNotFoundError:
            return None

    def _resolve(self, cell: str) -> Path | str:
        """A link inside the root stays one, so that it keeps its own name."""
        target = Path(os.path.realpath(self.root / cell))
        head, name = os.path.split(cell)
        folder = self.folders[head]
        return _check_place(target, self.root) or (target if folder is None else folder / name)


def _check_files(images: ImageFiles, source: Path, least: int) -> None:
    """Refuse a set without a file to open."""
    if not any(images.paths):
        some = f" that can be opened; {images.ids[0]}: {images.problems[0]}" if images.problems else ""
        hints = {
            LEAVES: " of the table; move the table to a folder that holds all its photos",
            MISSING: "; paths start from the folder of the table",
        }
        hint = hints.get(images.problems.get(0, ""), "") if source.is_file() else ""
        raise InputError(f"no images in {source}{some}{hint}")
    check_classes(images, source, least)


def check_classes(images: ImageSet, source: Path, least: int) -> None:
    """Refuse labels of fewer classes than `least`."""
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


def open_image(source: Encoded, side: int | None = None) -> Image.Image:
    """The first frame of a file, upright, as RGB on white; `UnreadableImage` whatever is wrong with it.

    Safe in threads. Above `Image.MAX_IMAGE_PIXELS`, where Pillow only warns, the file is refused. Where
    about `side` pixels a side will do, a JPEG is decoded no larger than needed.
    """
    try:
        if isinstance(source, Path):
            if not source.is_file():
                raise UnreadableImage("not a file" if source.exists() else MISSING)
            if source.stat().st_size == 0:
                raise UnreadableImage("empty file")
        elif not source:
            raise UnreadableImage("no bytes of an image")
        with source.open("rb") if isinstance(source, Path) else BytesIO(source) as file:
            image = Image.open(file, formats=FORMATS)
            if image.width * image.height > (Image.MAX_IMAGE_PIXELS or float("inf")):
                raise Image.DecompressionBombError
            if side is not None:
                image.draft(None, (side, side))
            image.load()
            with suppress(Exception):  # broken EXIF data does not spoil the pixels
                ImageOps.exif_transpose(image, in_place=True)
            return _to_rgb(image)
    except UnreadableImage:
        raise
    except Exception as error:  # Pillow raises nearly anything on broken files
        raise UnreadableImage(_reason(error)) from error


def _to_rgb(image: Image.Image) -> Image.Image:
    """A new RGB image; what is transparent becomes white."""
    if image.mode.startswith("I") or image.mode == "F":
        image = Image.fromarray(_to_bytes(np.asarray(image)))
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA"))
    return image.convert("RGB")


def _to_bytes(grey: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Deep grey values as 0 to 255: whole numbers by the fewest usual bits that hold them, others by range.

    Scanners write 12 bits into files of 16, which say nothing of it and would come out nearly black.
    """
    values = np.nan_to_num(grey.astype(np.float32), posinf=0, neginf=0)
    low, high = float(values.min()), float(values.max())
    if grey.dtype.kind in "ui" and low >= 0 and high <= DEPTHS[-1]:
        low, high = 0, next(depth for depth in DEPTHS if high <= depth)
    return np.asarray(np.rint((values - low) * (255 / ((high - low) or 1))), dtype=np.uint8)


def _reason(error: Exception) -> str:
    """An error in a few words."""
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return "too many pixels"
    if isinstance(error, UnidentifiedImageError):
        return "not an image"
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno).lower()
    return "truncated" if "truncated" in str(error).lower() else "damaged"


def _text(path: Path) -> str:
    """A path with forward slashes, as text that can be written: stray bytes in names are escaped."""
    return os.fsencode(path.as_posix()).decode("utf-8", "backslashreplace")
