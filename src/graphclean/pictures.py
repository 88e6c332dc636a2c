"""The pictures behind a run's samples, read from where its data lies."""

import io
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from .data.arrays import Images
from .data.files import Names
from .data.images import ImageSet, UnreadableImage, open_image, read_image_folder, read_manifest
from .errors import InputError
from .runfolder import read_env
from .sources import read_source

WORKERS = min(4, os.cpu_count() or 1)
"""Threads that decode; each holds one photo."""
LOSSLESS = 32
"""Pixels a side up to which a picture is kept to the bit: so few take little space."""
QUALITY = 80
"""Of JPEG, for all others."""


@dataclass(frozen=True)
class Pictures:
    """The picture of each sample, where there is one."""

    load: Callable[[int, int], Image.Image | None]
    """The picture of a row, for a use at so many pixels a side; None where there is none."""

    def encode(self, row: int, side: int) -> bytes | None:
        """PNG or JPEG of at most `side` pixels a side; None where the row has no picture."""
        image = self.load(row, side)
        if image is None:
            return None
        image.thumbnail((side, side), Image.Resampling.LANCZOS)
        content = io.BytesIO()
        if max(image.size) <= LOSSLESS:
            image.save(content, "PNG", optimize=True)
        else:
            image.save(content, "JPEG", quality=QUALITY, optimize=True)
        return content.getvalue()

    def encode_many(self, rows: Sequence[int], side: int) -> Iterator[tuple[int, bytes | None]]:
        """`encode` of each row, in order, a few ahead of the reader."""
        ahead = 8 * WORKERS
        with ThreadPoolExecutor(WORKERS) as pool:
            for start in range(0, len(rows), ahead):
                block = rows[start : start + ahead]
                yield from zip(block, pool.map(lambda row: self.encode(row, side), block), strict=True)


def find_pictures(run: Path, source: dict[str, Any], ids: list[str], data: Path | None = None) -> Pictures:
    """The pictures of a run, by the `source` of its config; `data` is where they are now, if they have moved.

    Refused where there are none, they have gone, or are not those that the run was made from.
    """
    if source.get("kind") == "photos":
        return _from_files(find_photos(run, source, ids, data))
    if source.get("kind") == "images":
        return _from_array(_find_array(run, source, data))
    raise InputError(f"{run}: made from embeddings, which have no pictures")


def find_photos(run: Path, source: dict[str, Any], ids: list[str], data: Path | None) -> list[Path | None]:
    """The photo behind each id, resolved; None where it has gone, or may not be opened."""
    path = _find_data(run, source, data)
    images: ImageSet
    if path.is_dir():
        images = read_image_folder(path, labelled=False)
    else:
        columns = {name: source.get(name) for name in ("path_column", "id_column")}
        images = read_manifest(path, **columns, labelled=False)
    if images.ids == ids:
        found = images.paths
    else:
        by_id = dict(zip(images.ids, images.paths, strict=True))
        if len(by_id) < len(images.ids):
            raise InputError(f"{path}: has changed since the run, and ids stand in it more than once")
        found = [by_id.get(name) for name in ids]
    if not any(found):
        raise InputError(f"{path}: not one of the run's photos is in it")
    return [None if photo is None else Path(os.path.realpath(photo)) for photo in found]


def _find_data(run: Path, source: dict[str, Any], data: Path | None) -> Path:
    """Where the data lies: as told, in the run folder itself, or where the run found it."""
    recorded = str(source.get("data"))
    inside = run / recorded
    path = data if data is not None else inside if inside.exists() else Path(recorded)
    if not path.exists():
        raise InputError(
            f"{path}: not there; run this from the folder where the run was made, or say with --data where "
            "it is now"
        )
    return path


def _find_array(run: Path, source: dict[str, Any], data: Path | None) -> Images:
    path = _find_data(run, source, data)
    names = Names(**{field.name: source.get(field.name) for field in fields(Names)})
    labels = Path(str(source["labels"])) if source.get("labels") is not None else None
    found = read_source(path, names, labels=labels, images=True)
    if found.fingerprint() != read_env(run).get("data_sha256"):
        raise InputError(f"{path}: the images or their labels are not those that the run was made from")
    return np.asarray(found.inputs, dtype=np.uint8)


def _from_files(paths: list[Path | None]) -> Pictures:
    def load(row: int, side: int) -> Image.Image | None:
        path = paths[row]
        if path is None:
            return None
        try:
            return open_image(path, side)
        except UnreadableImage:
            return None

    return Pictures(load)


def _from_array(images: Images) -> Pictures:
    def load(row: int, _: int) -> Image.Image:
        pixels = images[row]
        return Image.fromarray(pixels[0] if len(pixels) == 1 else np.moveaxis(pixels, 0, 2))

    return Pictures(load)
