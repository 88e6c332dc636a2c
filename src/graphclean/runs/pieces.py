"""New data in pieces, in the order of its rows, for predictions."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch

from ..data.arrays import holds_images
from ..data.progress import Progress
from ..data.streams import RowNumbers, Stream, piece_rows, stream_features, stream_images
from ..data.tables import TABLES, Names
from ..embed import Embedder
from .inputs import (
    Source,
    find_kind,
    holds_photos,
    read_like,
    recorded_pixels,
    recorded_reading,
)
from .photos import find_photos, stream_photos
from .schema import SourceRecord


@dataclass(frozen=True)
class Piece:
    """A piece of new data: its inputs, and their rows in `Pieces.ids`, which increase from piece to piece."""

    inputs: npt.NDArray[Any]
    rows: npt.NDArray[np.int64]
    hashes: npt.NDArray[np.int64] | None = None
    """Perceptual hashes, for photos."""


@dataclass(frozen=True)
class Pieces:
    """New data that is read while it is used."""

    ids: Sequence[str]
    """Ids of all samples."""
    labels: Any
    """Labels of all samples, if requested."""
    read: Callable[[], Iterator[Piece]]
    """Reads the readable samples."""
    told: bool = False
    """Whether reading takes most of the time, and reports its progress."""
    checked: bool = True
    """Whether all of it has been looked at; if not, it can be read twice."""

    @classmethod
    def whole(cls, source: Source, *, labeled: bool, least_bytes: int = 0) -> Self:
        """A source in memory."""
        inputs, count = source.array, len(source.inputs)
        rows = piece_rows(max(inputs[:1].nbytes, least_bytes))
        blocks = [inputs[start : start + rows] for start in range(0, count, rows)]
        ids = source.ids if source.ids is not None else RowNumbers(count)
        labels = source.labels if labeled else None
        return cls(ids, labels, lambda: _number(iter(blocks)), checked=count <= rows)

    @classmethod
    def of(cls, stream: Stream) -> Self:
        """A file that is read in pieces."""
        ids = stream.ids if stream.ids is not None else RowNumbers(stream.count)
        return cls(ids, stream.labels, lambda: _number(stream.blocks()), checked=False)


def _number(blocks: Iterator[npt.NDArray[Any]]) -> Iterator[Piece]:
    start = 0
    for block in blocks:
        yield Piece(block, np.arange(start, start + len(block)))
        start += len(block)


def stream_like(
    described: SourceRecord,
    data: Path,
    names: Names,
    *,
    run: Path,
    device: torch.device,
    labeled: bool = False,
    embedder: Embedder | None = None,
    least_bytes: int = 0,
    progress: Progress | None = None,
) -> Pieces:
    """Like `read_like`, but large arrays and tables, and photos, are read in pieces.

    `least_bytes` is what a row takes at least, with what is computed from it.
    """
    kind = find_kind(described, run)
    if holds_photos(data, names, kind):
        reading = recorded_reading(described, run, device, embedder)
        images = find_photos(data, names, labeled=labeled, least=1)

        def read() -> Iterator[Piece]:
            for batch in stream_photos(images, reading, data, progress=progress):
                yield Piece(batch.inputs, np.asarray(batch.rows), batch.measures["hash"])

        return Pieces(images.ids, images.labels, read, told=True)
    stream = None
    if holds_images(data, names) and kind == "images":
        pixels = recorded_pixels(described, run)
        stream = stream_images(data, names, pixels, labeled=labeled, least_bytes=least_bytes)
    elif kind == "features" and data.is_file() and not holds_images(data, names):
        columns = described.get("columns") if data.suffix.lower() in TABLES else None
        stream = stream_features(data, names, labeled=labeled, columns=columns, least_bytes=least_bytes)
    if stream is not None:
        return Pieces.of(stream)
    source = read_like(described, data, names, run=run, device=device, labeled=labeled, progress=progress)
    return Pieces.whole(source, labeled=labeled, least_bytes=least_bytes)
