"""Embed encoded images batch by batch, decoding in threads while the network runs."""

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
from ..data.measures import Measures, as_measures, measure_photo

EMBED_BATCH = 32
MOST_DECODERS = 4
"""Maximum number of decoding threads; each holds one photo at full size."""

T = TypeVar("T")
Picture: TypeAlias = npt.NDArray[np.uint8]


class Embedder(nn.Module):
    """A pretrained network from uint8 photos to features; it runs on the device of its weights."""

    name: str
    """Name recorded in the run folder, so that new photos are embedded the same way."""
    size: int
    """Side of the input in pixels."""
    trained_on: str | None = None
    """What the weights were trained on, for the model card of exported models."""
    license: str | None = None
    """License of the weights."""

    def forward(self, batch: Tensor) -> Tensor:
        """(N, d) float32 features of an (N, 3, size, size) uint8 batch."""
        raise NotImplementedError

    @property
    def device(self) -> torch.device:
        """The device for input batches."""
        first = next(chain(self.parameters(), self.buffers()), None)
        return first.device if first is not None else torch.device("cpu")


@dataclass(frozen=True)
class PhotoBatch:
    """Photos as network inputs, and the reasons why others were refused."""

    rows: list[int]
    """The index of the photo of each of `inputs`, in increasing order."""
    inputs: npt.NDArray[Any]
    """Features (n, d), or uint8 pictures (n, 3, size, size)."""
    problems: dict[int, str]
    """Row -> reason for refusal."""
    measures: Measures
    """Measurements of the photos in `inputs`."""


def decoders() -> int:
    """The number of decoding threads: at most torch's number of threads, since a user may have limited it."""
    return min(MOST_DECODERS, torch.get_num_threads())


def embed_batches(
    items: Iterable[tuple[int, T]],
    load: Callable[[T], Image.Image],
    embedder: Embedder,
    *,
    refusal: type[Exception],
    weigh: Callable[[T], int] = lambda _: 0,
) -> Iterator[PhotoBatch]:
    """The features of numbered items that `load` can read; it refuses one by raising `refusal`.

    Photos are squashed, not cropped, to the embedder's size. At any time, memory holds two batches of encoded
    images and of small pictures, and at most one full-size photo per thread, limited to as many as fit into
    the memory reserved for `DECODING` by the sizes that `weigh` estimates.
    """

    def squash(image: Image.Image) -> Picture:
        small = image.resize((embedder.size, embedder.size), Image.Resampling.BICUBIC)
        return np.asarray(small).transpose(2, 0, 1)

    for batch in read_batches(items, load, squash, refusal=refusal, weigh=weigh):
        if not batch.rows:
            yield batch
            continue
        # Always a full batch: rounding depends on its shape, and copies of a photo must agree to the bit.
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
    """The results of `shrink` for numbered photos, in order; the next batch is read while the caller uses
    one.
    """

    def attempt(item: T) -> tuple[Picture, tuple[Any, ...]] | str:
        with DECODING.reserved(weigh(item)):
            return read(item)  # whose image is freed before its room is

    def read(item: T) -> tuple[Picture, tuple[Any, ...]] | str:
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
            good = {row: result for row, result in results.items() if not isinstance(result, str)}
            yield PhotoBatch(
                list(good),
                np.stack([picture for picture, _ in good.values()]) if good else np.empty(0, np.uint8),
                {row: result for row, result in results.items() if isinstance(result, str)},
                as_measures([measured for _, measured in good.values()]),
            )
            current = following
