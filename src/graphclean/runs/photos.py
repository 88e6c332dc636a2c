"""Photos as inputs of a network, pretrained features or small images; all at once or in pieces."""

import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from ..config.settings import PhotoStorage
from ..data.arrays import Pixels
from ..data.hub import HUB_PREFIX, is_saved, load_hub, load_saved, names_hub
from ..data.image_folder import (
    ImageSet,
    names_photo,
    read_image_file,
    read_image_folder,
    require_classes,
)
from ..data.images import (
    Decoder,
    Encoded,
    UnreadableImage,
    decoded_bytes,
    find_decoder,
    open_image,
    read_image,
)
from ..data.manifests import looks_like_manifest, read_manifest
from ..data.measures import MEASURES, Measures
from ..data.memory import photo_memory
from ..data.parquet import (
    ImageTable,
    find_parts,
    read_parquet_photos,
    read_photo_table,
)
from ..data.photo_stream import Keeping, PhotoStream
from ..data.progress import Progress
from ..data.resize import to_array
from ..data.shards import names_shards, read_shards
from ..data.tables import TABLES, Names
from ..distributed.group import current
from ..embed import (
    Embedder,
    EmbeddingCache,
    FunctionEmbedder,
    Key,
    PhotoBatch,
    embed_batches,
    embedder_version,
    load_embedder,
    read_batches,
    weights_sha256,
)
from ..embed.cache import PIECE, KeptPhoto
from ..embed.photos import EMBED_BATCH
from ..errors import InputError, arg
from .interrupts import telling_what_is_left
from .schema import SourceRecord

DEFAULT_EMBEDDER = "efficientnet-lite0"
Items = Iterable[tuple[int, Encoded]]


class Reading(Protocol):
    """How photos become inputs."""

    @property
    def stage(self) -> str:
        """The name of this stage in progress reports."""

    def describe(self) -> dict[str, Any]:
        """What is needed to read new photos in the same way, for config.json."""

    def batches(self, items: Items) -> Iterator[PhotoBatch]:
        """The inputs of numbered photos."""


@dataclass(frozen=True)
class Embedding:
    """Photos as features of a pretrained network."""

    embedder: str | Embedder
    device: torch.device
    """For networks from timm and other packages."""
    stage = "embedding photos"

    def describe(self) -> dict[str, Any]:
        """The embedder's name, the hash of its weights if in a file, and a function's fingerprint."""
        described: dict[str, Any] = {"embedder": self.name}
        weights = weights_sha256(self.name)
        if weights is not None:
            described["weights"] = weights
        if isinstance(self.embedder, FunctionEmbedder):
            described["probe"] = self.embedder.probe()
        return described

    @property
    def name(self) -> str:
        """The name of the embedder."""
        return self.embedder if isinstance(self.embedder, str) else self.embedder.name

    def batches(self, items: Items) -> Iterator[PhotoBatch]:
        """Features (n, d)."""
        embedder = load_embedder(self.embedder, self.device)
        return embed_batches(items, open_image, embedder, refusal=UnreadableImage, weigh=decoded_bytes)


@dataclass(frozen=True)
class Cropping:
    """Photos as images: the center square, at `size` pixels a side."""

    size: int
    shrunk: bool = False
    """Whether JPEGs are decoded at 1/2, 1/4 or 1/8 where that is enough, as streamed photos are."""
    decoder: Decoder = "pillow"
    stream: bool = False
    """Whether the photos of a training set are streamed."""
    keep: Keeping | None = None
    """Where streamed photos are kept; None: the first place that has room."""
    stage = "reading photos"

    @classmethod
    def choose(cls, size: int, count: int, storage: PhotoStorage, before: SourceRecord) -> "Cropping":
        """In memory if `count` photos fit, unless asked otherwise, and as for the run that is continued.

        The leading process of a group chooses, since memory and decoders may differ by machine.
        """
        return current().leader_says(cls._choose(size, count, storage, before))

    @classmethod
    def _choose(cls, size: int, count: int, storage: PhotoStorage, before: SourceRecord) -> "Cropping":
        large = bool(before.get("shrunk")) if before else count * 3 * size**2 > photo_memory()
        if storage == "memory" or (storage == "auto" and not large):
            return cls(size)
        keep: Keeping | None = None if storage == "auto" else storage
        return cls(size, True, recorded_decoder(before), True, keep)

    def describe(self) -> dict[str, Any]:
        """The size, how JPEGs are decoded, and the scale of pixels, bytes as for arrays of images."""
        described: dict[str, Any] = {"size": self.size, "pixels": vars(Pixels("bytes", 0, 255))}
        return described | ({"shrunk": True, "decoder": self.decoder} if self.shrunk else {})

    def batches(self, items: Items) -> Iterator[PhotoBatch]:
        """uint8 images (n, 3, size, size)."""
        side = self.size if self.shrunk else None
        return read_batches(
            items,
            lambda photo: read_image(photo, side, self.decoder).image,
            lambda image: to_array(image, self.size),
            refusal=UnreadableImage,
            weigh=lambda photo: decoded_bytes(photo, side),
        )


def recorded_decoder(described: SourceRecord) -> Decoder:
    """The decoder that a run recorded, or the best one; Pillow if that one is not installed here."""
    best = find_decoder()
    return "pillow" if described.get("decoder", best) != best else best


@dataclass(frozen=True)
class Photos:
    """Photos, the inputs of the readable ones, and why the others can't be read."""

    images: ImageSet
    reading: Reading
    inputs: npt.NDArray[Any] | PhotoStream
    rows: npt.NDArray[np.int64]
    """The photo of each of `inputs`, in ascending order."""
    problems: dict[int, str]
    """Photo -> why it can't be read."""
    measures: Measures
    """Measures of the readable photos."""

    @property
    def ids(self) -> list[str]:
        """Ids of the readable photos."""
        return [self.images.ids[row] for row in self.rows]

    @property
    def labels(self) -> list[str]:
        """Labels of the readable photos."""
        return [self.images.labels[row] for row in self.rows] if self.images.labels is not None else []


def are_photos(data: Path, names: Names, embedder: str | Embedder | None) -> bool:
    """Whether DATA is photos (a folder, one file, a table of them or of paths, `hf:NAME`), not embeddings."""
    if embedder == "none":
        return False
    if names_hub(data) or locate(data)[0].is_dir() or names_photo(data) or names_shards(data):
        return True
    table = data.suffix.lower() in TABLES
    asked = embedder is not None or names.path_column is not None
    if asked and not table and data.exists():
        raise InputError(
            f"{data}: {arg('embedder')} and {arg('path_column')} are for photos: a folder, or a table of "
        )
    return table and data.is_file() and (asked or bool(find_parts(data)) or looks_like_manifest(data))


def locate(data: Path) -> tuple[Path, str | None]:
    """The path of the data, and the split named after a colon: `folder:train`."""
    head, colon, split = str(data).rpartition(":")
    if colon and split and not data.exists() and Path(head).is_dir():
        return Path(head), split
    return data, None


def find_photos(data: Path, names: Names, *, labeled: bool = True, least: int = 2) -> ImageSet:
    """List the photos, with ids and labels of `least` classes or more, without opening any."""
    images = _list_photos(data, names, labeled)
    where = Path(images.table.name) if isinstance(images, ImageTable) else locate(data)[0]
    require_classes(images, where, least)
    return images


def _list_photos(data: Path, names: Names, labeled: bool) -> ImageSet:
    if names_hub(data):
        name, _, split = str(data).removeprefix(HUB_PREFIX).partition(":")
        return read_photo_table(load_hub(name, split or None), names, labeled=labeled)
    if names_shards(data) and not find_parts(data):
        return read_shards(data, names, labeled=labeled)
    place, split_name = locate(data)
    if is_saved(place):
        return read_photo_table(load_saved(place, split_name), names, labeled=labeled)
    if find_parts(place, names.path_column):
        return read_parquet_photos(place, split_name, names, labeled=labeled)
    if place.is_dir():
        if split_name is not None:
            raise InputError(f"{data}: {place} holds no table with photos, so there are no splits in it")
        return read_image_folder(place, labeled=labeled)
    if names_photo(place):
        return read_image_file(place, labeled=labeled)
    if place.is_file() and place.suffix.lower() not in TABLES:
        raise InputError(f"{data}: no photos; they are a folder, a file, or a table of photos or paths")
    columns = {"path_column": names.path_column, "label_column": names.label_column if labeled else None}
    return read_manifest(place, **columns, id_column=names.id_column, labeled=labeled)


def read_photos(
    images: ImageSet,
    reading: Reading,
    source: Path,
    *,
    cache: EmbeddingCache | None = None,
    progress: Progress | None = None,
) -> Photos:
    """Read the inputs of all photos; features in the `cache` are reused."""
    if isinstance(reading, Cropping) and reading.stream:
        return _stream(images, reading, source, progress)
    key = _key(reading, source) if isinstance(reading, Embedding) else None
    stamps = images.stamps() if key is not None else []
    # The leading process's cache is that of all, which need not share a disk.
    cache = cache if current().leads else None
    found = current().leader_says(cache.load(key, stamps) if cache is not None and key is not None else {})
    inputs: npt.NDArray[Any] | None = None
    measures = np.empty(len(images.ids), dtype=MEASURES)
    readable = np.zeros(len(images.ids), dtype=bool)
    problems = dict(images.problems)
    new = _new_batches(images, reading, found, progress)
    if cache is not None and key is not None:
        new = cache.keep(new, key, stamps)
    with closing(new):  # what is done is cached, whatever interrupts this
        for batch in chain(_join_kept(found), new):
            if batch.rows:
                if inputs is None:
                    inputs = np.empty((len(images.ids), *batch.inputs.shape[1:]), dtype=batch.inputs.dtype)
                inputs[batch.rows] = batch.inputs
                measures[batch.rows] = batch.measures
                readable[batch.rows] = True
            problems.update(batch.problems)
    if inputs is None:
        raise _nothing(images, problems, source)
    whole = inputs if readable.all() else inputs[readable]
    return Photos(images, reading, whole, np.flatnonzero(readable), problems, measures[readable])


def _stream(images: ImageSet, reading: Cropping, source: Path, progress: Progress | None) -> Photos:
    """Photos that are streamed, after they were read once."""
    with current().one_first():
        stream = PhotoStream(
            images, reading.size, place=_place(source), keep=reading.keep, decoder=reading.decoder
        )
        with telling_what_is_left(lambda: f"the pixels of {stream.kept:,} photos" if stream.kept else None):
            stream.scan(progress)
    if not len(stream):
        stream.close()
        raise _nothing(images, stream.problems, source)
    return Photos(images, reading, stream, stream.rows, stream.problems, stream.measures)


def _join_kept(found: dict[int, KeptPhoto]) -> list[PhotoBatch]:
    """Cached features as one batch."""
    if not found:
        return []
    features, measures = zip(*found.values(), strict=True)
    return [PhotoBatch(list(found), np.stack(features), {}, np.array(list(measures), dtype=MEASURES))]


def _key(reading: Embedding, source: Path) -> Key | None:
    """The cache key; None for an embedder that may differ next time."""
    version = embedder_version(reading.embedder)
    if version is None:
        return None
    return Key(reading.name, version, _place(source))


def _place(source: Path) -> str:
    """Where photos are, for caches."""
    return str(source) if names_hub(source) else os.path.realpath(source)


def stream_photos(
    images: ImageSet, reading: Reading, source: Path, *, progress: Progress | None = None
) -> Iterator[PhotoBatch]:
    """`read_photos` in pieces of about `PIECE` photos, so that memory use does not grow with their number."""
    waiting: list[PhotoBatch] = []
    readable, problems = 0, dict(images.problems)
    for batch in _new_batches(images, reading, {}, progress):
        problems.update(batch.problems)
        if batch.rows:
            waiting.append(batch)
            readable += len(batch.rows)
        if sum(len(part.rows) for part in waiting) >= PIECE:
            yield _join(waiting)
            waiting = []
    if waiting:
        yield _join(waiting)
    if readable == 0:
        raise _nothing(images, problems, source)


def _join(parts: list[PhotoBatch]) -> PhotoBatch:
    rows = [row for part in parts for row in part.rows]
    inputs, measures = (
        np.concatenate([vars(part)[name] for part in parts]) for name in ("inputs", "measures")
    )
    return PhotoBatch(rows, inputs, {}, measures)


def _new_batches(
    images: ImageSet, reading: Reading, known: dict[int, Any], progress: Progress | None
) -> Generator[PhotoBatch, None, None]:
    """Batches of the photos that are not known yet; a network is loaded only if there are any."""
    total = len(images.ids) - len(known.keys() | images.problems.keys())
    done = 0
    for batch in _divide(reading, images.items(known)) if total else ():
        done += len(batch.rows) + len(batch.problems)
        if progress is not None:
            progress(reading.stage, done, total)
        yield batch


def _divide(reading: Reading, items: Items) -> Iterator[PhotoBatch]:
    """`reading.batches`, which the processes of a group make in turn; all receive all, in order."""
    group = current()
    if not group.several:
        yield from reading.batches(items)
        return
    mine = (item for place, item in enumerate(items) if place // EMBED_BATCH % group.size == group.rank)
    batches = reading.batches(mine)
    while True:
        found = group.all_say(next(batches, None))
        yield from (batch for batch in found if batch is not None)
        if None in found:  # batches are dealt in turn, so that none follows
            return


def _nothing(images: ImageSet, problems: dict[int, str], source: Path) -> InputError:
    row, reason = next(iter(problems.items()))
    return InputError(f"{source}: not one photo can be read, such as {images.ids[row]}: {reason}")
