"""From encoded images to features, batch by batch: decode in threads while the network works."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor, nn

from ..data.images import DECODING
from .measures import Measures, as_measures, measure_photo

EMBED_BATCH = 32
MOST_DECODERS = 4
"""Threads that decode; each holds one photo at full size."""

T = TypeVar("T")
Picture: TypeAlias = npt.NDArray[np.uint8]


class Embedder(nn.Module):
    """A pretrained network, from uint8 photos to features; it works where its weights are."""

    name: str
    """In the run folder, by which new photos are embedded alike."""
    size: int
    """Pixels a side that it takes."""
    trained_on: str | None = None
    """What its weights were learned from, for the card of a model that is exported with it."""
    license: str | None = None
    """Of its weights."""

    def forward(self, batch: Tensor) -> Tensor:
        """(N, d) float32 features of an (N, 3, size, size) uint8 batch."""
        raise NotImplementedError

    @property
    def device(self) -> torch.device:
        """Where batches go."""
        first = next(chain(self.parameters(), self.buffers()), None)
        return first.device if first is not None else torch.device("cpu")


@dataclass(frozen=True)
class PhotoBatch:
    """Some photos as a network takes them, and what was wrong with others."""

    rows: list[int]
    """Which photo each of `inputs` is, in rising order."""
    inputs: npt.NDArray[Any]
    """Features (n, d), or uint8 pictures (n, 3, size, size)."""
    problems: dict[int, str]
    """Row -> reason, for what was refused."""
    measures: Measures
    """Of the photos of `inputs`."""


def decoders() -> int:
    """Threads that decode photos: no more than may compute, as a user may have limited them."""
    return min(MOST_DECODERS, torch.get_num_threads())


def embed_batches(
    items: Iterable[tuple[int, T]],
    load: Callable[[T], Image.Image],
    embedder: Embedder,
    *,
    refusal: type[Exception],
    weigh: Callable[[T], int] = lambda _: 0,
) -> Iterator[PhotoBatch]:
    """The features of numbered items that `load` can read; it says no to one by raising `refusal`.

    Photos are squashed, not cropped, to the embedder's size. In memory are two batches of encoded images and
    of small pictures, and at most one photo a thread at full size, however many there are: as many as fit
    into the room for `DECODING` by what `weigh` says of each.
    """

    def squash(image: Image.Image) -> Picture:
        small = image.resize((embedder.size, embedder.size), Image.Resampling.BICUBIC)
        return np.asarray(small).transpose(2, 0, 1)

    for batch in read_batches(items, load, squash, refusal=refusal, weigh=weigh):
        if not batch.rows:
            yield batch
            continue
        # Always a full batch: its shape decides the last bits, and copies of a photo must agree to the bit.
        full = np.zeros((EMBED_BATCH, embedder.size, embedder.size, 3), dtype=np.uint8)
        full[: len(batch.rows)] = batch.inputs.transpose(0, 2, 3, 1)
        with torch.inference_mode():
            found = embedder(torch.from_numpy(full).permute(0, 3, 1, 2).to(embedder.device)).float().cpu()
        yield replace(batch, inputs=found[: len(batch.rows)].numpy())


def read_batches(
    items: Iterable[tuple[int, T]],
    load: Callable[[T], Image.Image],
    shrink: Callable[[Image.Image], Picture],
    *,
    refusal: type[Exception],
    weigh: Callable[[T], int] = lambda _: 0,
) -> Iterator[PhotoBatch]:
    """What `shrink` makes of numbered photos, in order; the next batch is read while the caller uses one."""

    def attempt(item: T) -> tuple[Picture, tuple[Any, ...]] | str:
        with DECODING.reserved(weigh(item)):
            try:
                image = load(item)
            except refusal as error:
                return str(error)
            return shrink(image), measure_photo(image)

    rest = iter(items)
    with ThreadPoolExecutor(decoders()) as pool:

        def submit() -> tuple[list[int], Iterator[tuple[Picture, tuple[Any, ...]] | str]]:
            chunk = list(islice(rest, EMBED_BATCH))
            return [row for row, _ in chunk], pool.map(attempt, [item for _, item in chunk])

        current = submit()
        while current[0]:
            following = submit()
            results = dict(zip(*current, strict=True))
            read = {row: result for row, result in results.items() if not isinstance(result, str)}
            yield PhotoBatch(
                list(read),
                np.stack([picture for picture, _ in read.values()]) if read else np.empty(0, np.uint8),
                {row: result for row, result in results.items() if isinstance(result, str)},
                as_measures([measured for _, measured in read.values()]),
            )
            current = following
