"""Tables that list photos: one path and label per row."""

import os
import stat
from pathlib import Path
from typing import Any

from ..errors import InputError
from .image_folder import IMAGE_SUFFIXES, ImageFiles, check_files, check_place
from .images import NO_FILE
from .tables import find_column, find_id, read_header, read_start, read_table

PATH_COLUMNS = {"path", "file", "filename", "file_name", "filepath", "image", "image_path"}
LABEL_COLUMNS = {"label", "class", "category", "target", "y"}
GLANCE = 20
"""Rows inspected to tell a table of photos from one of embeddings."""
FEW_NUMBERS = 16
"""With this many numeric columns, a table with paths holds embeddings."""
NOT_FETCHED = "a web address, which is not fetched"


def read_manifest(
    path: Path,
    *,
    path_column: str | None = None,
    label_column: str | None = None,
    id_column: str | None = None,
    labeled: bool = True,
) -> ImageFiles:
    """The photos listed in a CSV, TSV or parquet table, in its order; paths are relative to its folder.

    Columns are named by the caller or recognized by their usual names. Ids are the paths as written unless
    there is a column `id`, or an `id_column` is named. Paths that leave the table's folder are never opened.
    """
    header = read_header(path)
    cells = find_column(path, header, path_column, PATH_COLUMNS, "path")
    label = find_column(path, header, label_column, LABEL_COLUMNS, "label") if labeled else None
    identity = find_id(path, header, id_column) or cells
    table = read_table(path, list({name: None for name in (cells, label, identity) if name is not None}))
    root = Path(os.path.realpath(path.parent))
    find = PathFinder(root)
    places = [find(cell) for cell in table.texts(cells)]
    images = ImageFiles(
        root=root,
        paths=[place if isinstance(place, Path) else None for place in places],
        ids=table.texts(identity),
        labels=table.texts(label) if label is not None else None,
        problems={row: place for row, place in enumerate(places) if isinstance(place, str)},
    )
    check_files(images, path)
    return images


def looks_like_manifest(path: Path) -> bool:
    """Whether a table lists photos: a usual path column with image file names, and few numeric columns.

    A table of embeddings may contain paths too, but has many numeric columns or a column of lists.
    """
    try:
        header, rows = read_header(path), read_start(path, GLANCE)
    except InputError:
        return False
    cells = rows[0] if rows else []
    places = [place for place, name in enumerate(header) if name.lower() in PATH_COLUMNS]
    named = [str(row[place]) for row in rows for place in places]
    numbers = sum(_is_number(cell) for cell in cells)
    lists = any(isinstance(cell, list) or str(cell).lstrip().startswith("[") for cell in cells)
    return (
        any(Path(cell.strip()).suffix.lower() in IMAGE_SUFFIXES for cell in named)
        and numbers < FEW_NUMBERS
        and not lists
    )


def _is_number(cell: Any) -> bool:
    try:
        float(cell.replace(",", ".") if isinstance(cell, str) else cell)
    except (TypeError, ValueError):
        return False
    return True


class PathFinder:
    """Resolves the files named in a table; each folder is resolved only once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folders: dict[str, Path | None] = {}
        """Path as written -> resolved; None if it leaves the root or is invalid."""

    def __call__(self, cell: str) -> Path | str:
        """The file, or why it is refused; tried as written, without surrounding spaces, and with Windows
        separators.
        """
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
            return NO_FILE

    def _quick(self, cell: str) -> Path | None:
        """The fast path for plain files in folders inside the root, which nearly all are."""
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
        """Resolve a path; a link inside the root keeps its own name."""
        target = Path(os.path.realpath(self.root / cell))
        head, name = os.path.split(cell)
        folder = self.folders[head]
        return check_place(target, self.root) or (target if folder is None else folder / name)
