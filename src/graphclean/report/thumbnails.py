"""Pictures of a run's samples, read from the run's data."""

import io
from collections.abc import Callable, Collection, Container, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TypeAlias

import numpy as np
from PIL import Image

from ..data.arrays import Images
from ..data.hub import names_hub
from ..data.image_folder import ImageFiles, ImageSet
from ..data.images import DECODING, Encoded, UnreadableImage, decoded_bytes, open_image
from ..data.shards import ShardImages
from ..data.tables import Names
from ..embed.photos import decoders
from ..errors import InputError, arg
from ..runs.folder import read_env, recorded_data
from ..runs.inputs import (
    IN_PYTHON,
    find_data,
    find_labels,
    match_photos,
    read_source,
    recorded_names,
)
from ..runs.photos import find_photos
from ..runs.schema import SourceRecord

LOSSLESS = 32
"""Side in pixels up to which pictures are stored losslessly: they take little space."""
QUALITY = 80
"""JPEG quality of all others."""

ImageSource: TypeAlias = Encoded | Images
"""A file, its bytes, or an array (C, H, W)."""


@dataclass(frozen=True)
class Pictures:
    """The pictures of samples that have one."""

    find: Callable[[Collection[int]], Iterator[tuple[int, ImageSource]]]
    """The pictures of some rows, in the order of the data."""
    direct: bool
    """Whether a picture can be read without reading all those before it."""
    stamp: Callable[[int], str | None]
    """A signature that changes with the picture of a row; None if unknown."""

    def encode(self, row: int, side: int) -> bytes | None:
        """PNG or JPEG of at most `side` pixels a side; None if the row has no picture."""
        return dict(self.encode_many([row], side)).get(row)

    def encode_many(self, rows: Collection[int], side: int) -> Iterator[tuple[int, bytes]]:
        """The same for many rows, in the order of the data, omitting those without a picture."""
        found = self.find(rows)
        with ThreadPoolExecutor(decoders()) as pool:
            while block := list(islice(found, 8 * decoders())):
                encoded = pool.map(lambda item: _encode(item[1], side), block)
                for (row, _), content in zip(block, encoded, strict=True):
                    if content is not None:
                        yield row, content


def _encode(pixels: ImageSource, side: int) -> bytes | None:
    if isinstance(pixels, np.ndarray):
        image = Image.fromarray(pixels[0] if len(pixels) == 1 else np.moveaxis(pixels, 0, 2))
        image.thumbnail((side, side), Image.Resampling.LANCZOS)
    else:
        with DECODING.reserved(decoded_bytes(pixels, side)):
            try:
                image = open_image(pixels, side)
            except UnreadableImage:
                return None
            image.thumbnail((side, side), Image.Resampling.LANCZOS)
    content = io.BytesIO()
    if max(image.size) <= LOSSLESS:
        image.save(content, "PNG", optimize=True)
    else:
        image.save(content, "JPEG", quality=QUALITY, optimize=True)
    return content.getvalue()


def find_pictures(run: Path, source: SourceRecord, ids: list[str], data: Path | None = None) -> Pictures:
    """The pictures of a run according to the `source` of its config; `data` overrides its place if it has
    moved.

    Refused if there are none, if they are gone, or if they are not those that the run was made from.
    """
    if source.get("kind") not in ("photos", "images"):
        raise InputError(f"{run}: made from embeddings, which have no pictures")
    if data is None and source.get("data") == IN_PYTHON:
        raise InputError(
            f"{run}: its images were given in Python, and are not kept with the run; {arg('data')} names a "
            "file that holds them, if there is one"
        )
    recorded, names = recorded_data(run, source), recorded_names(source)
    if data is None and names_hub(recorded):
        raise InputError(f"{recorded}: not loaded again unasked; {arg('data')} asks for it")
    path = find_data(run, source, data)
    if source["kind"] == "images":
        return _of_array(_read_array(run, source, path, names), str(read_env(run).get("data_sha256")))
    return _of_photos(find_photos(path, names, labeled=False), ids, path)


class _AllBut(Container[int]):
    """Every row but some."""

    def __init__(self, some: Container[int]) -> None:
        self.some = some

    def __contains__(self, row: object) -> bool:
        return row not in self.some


def _of_photos(images: ImageSet, ids: list[str], path: Path) -> Pictures:
    place = match_photos(images, ids, path)

    def find(rows: Collection[int]) -> Iterator[tuple[int, ImageSource]]:
        wanted = {place[row]: row for row in rows if row in place and place[row] not in images.problems}
        items = images.items(_AllBut(wanted)) if wanted else iter(())
        return ((wanted[number], photo) for number, photo in islice(items, len(wanted)))

    stamps = cache(images.stamps)

    def stamp(row: int) -> str | None:
        known = stamps()[place[row]] if row in place else []
        return repr(known) if known else None

    return Pictures(find, isinstance(images, ImageFiles | ShardImages), stamp)


def _read_array(run: Path, source: SourceRecord, path: Path, names: Names) -> Images:
    found = read_source(path, names, labels=find_labels(run, source), images=True)
    if found.fingerprint() != read_env(run).get("data_sha256"):
        raise InputError(f"{path}: the images or their labels are not those that the run was made from")
    return np.asarray(found.inputs, dtype=np.uint8)


def _of_array(images: Images, fingerprint: str) -> Pictures:
    def find(rows: Collection[int]) -> Iterator[tuple[int, ImageSource]]:
        return ((row, images[row]) for row in sorted(rows))

    return Pictures(find, True, lambda _: fingerprint)
