"""From files to features: decode in threads while the network works."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor, nn

BATCH = 32
WORKERS = min(4, os.cpu_count() or 1)
"""Threads that decode; each holds one photo at full size."""

Result: TypeAlias = npt.NDArray[np.uint8] | str
"""A small picture, or why there is none."""
Wanted: TypeAlias = list[tuple[int, Path]]


class Embedder(Protocol):
    """A pretrained network, from uint8 photos to features."""

    @property
    def name(self) -> str: ...

    @property
    def dim(self) -> int:
        """Features a photo."""

    @property
    def size(self) -> int:
        """Pixels a side that it takes."""

    @property
    def network(self) -> nn.Module:
        """What a call runs, for export."""

    def __call__(self, batch: Tensor) -> Tensor:
        """(N, dim) float32 features of an (N, 3, size, size) uint8 batch."""


@dataclass(frozen=True)
class Embedded:
    """Features of the photos that could be read."""

    features: npt.NDArray[np.float32]
    """One row a readable photo."""
    rows: npt.NDArray[np.int64]
    """Which of the given paths each row of `features` is, in rising order."""
    problems: dict[int, str]
    """Row -> reason, for the files that `load` refused."""


def embed_images(
    paths: Sequence[Path | None],
    load: Callable[[Path], Image.Image],
    embedder: Embedder,
    *,
    refusal: type[Exception],
    progress: Callable[[int, int], None] | None = None,
) -> Embedded:
    """Embed every file that `load` can read; it says no to a file by raising `refusal`.

    Paths that are None are passed over. Photos are squashed, not cropped, to the embedder's size. In memory
    are two batches of small pictures, one photo a thread at full size, and the features.
    `progress(done, total)` counts the files.
    """
    wanted = [(row, path) for row, path in enumerate(paths) if path is not None]
    features = np.empty((len(wanted), embedder.dim), dtype=np.float32)
    rows: list[int] = []
    problems: dict[int, str] = {}

    def shrink(path: Path) -> Result:
        try:
            image = load(path)
        except refusal as error:
            return str(error)
        return np.asarray(image.resize((embedder.size, embedder.size), Image.Resampling.BICUBIC))

    done = 0
    for chunk, results in _decode_ahead(wanted, shrink):
        # Always a full batch: its shape decides the last bits, and copies of a photo must agree to the bit.
        batch = np.zeros((BATCH, embedder.size, embedder.size, 3), dtype=np.uint8)
        start = len(rows)
        for (row, _), result in zip(chunk, results, strict=True):
            if isinstance(result, str):
                problems[row] = result
            else:
                batch[len(rows) - start] = result
                rows.append(row)
        if len(rows) > start:
            found = embedder(torch.from_numpy(batch).permute(0, 3, 1, 2))
            features[start : len(rows)] = found[: len(rows) - start].numpy()
        done += len(chunk)
        if progress is not None:
            progress(done, len(wanted))
    return Embedded(features[: len(rows)], np.array(rows, dtype=np.int64), problems)


def _decode_ahead(wanted: Wanted, shrink: Callable[[Path], Result]) -> Iterator[tuple[Wanted, list[Result]]]:
    """Batches of results in order; the next batch is being decoded while the caller uses one."""
    with ThreadPoolExecutor(WORKERS) as pool:

        def submit(start: int) -> Iterator[Result]:
            return pool.map(shrink, [path for _, path in wanted[start : start + BATCH]])

        current = submit(0)
        for start in range(0, len(wanted), BATCH):
            following = submit(start + BATCH)
            yield wanted[start : start + BATCH], list(current)
            current = following
