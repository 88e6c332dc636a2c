"""Approximate neighbors for large sets by faiss (extra `ann`), with measured recall."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from ..errors import extra
from .knn import Neighbors, nearest_neighbors

RECALL = 0.97
"""Fraction of the true neighbors that must be found on the sample before the full search runs."""
SAMPLE = 256
"""Evenly spaced points on which recall is measured."""
ANN_BLOCK = 16_384
"""Queries per call, so that progress is shown and interrupts are handled."""


class ApproximateNeighbors(NamedTuple):
    """Neighbors, and their recall measured on a sample."""

    neighbors: Neighbors
    recall: float


def approximate_neighbors(
    z: Tensor, k: int, *, recall: float = RECALL, progress: Callable[[int, int], None] | None = None
) -> ApproximateNeighbors:
    """Cosine neighbors from the nearest cells of a k-means index.

    The number of cells searched doubles until a sample of points reaches `recall`; on data without clusters
    this may take as long as exact search. Seeded, so runs are reproducible. Runs on the CPU.
    """
    faiss = load_faiss()
    unit = normalize(z.float(), dim=1).cpu()
    n, k = len(unit), min(k, len(unit) - 1)
    if k < 1:
        raise ValueError(f"no neighbors among {n} points")
    points = unit.numpy()
    cells = max(1, 2 ** round(math.log2(n) / 2))
    index: Any = faiss.IndexIVFFlat(
        faiss.IndexFlatIP(unit.shape[1]), unit.shape[1], cells, faiss.METRIC_INNER_PRODUCT
    )
    index.cp.seed, index.cp.niter, index.cp.max_points_per_centroid = 1, 10, 64
    index.cp.min_points_per_centroid = 1
    index.train(points)
    index.add(points)
    sample = torch.unique_consecutive(
        torch.linspace(0, n - 1, min(SAMPLE, n), dtype=torch.float64).round().long()
    )
    truth = nearest_neighbors(unit, k + 1, queries=unit[sample]).indices
    index.nprobe = min(8, cells)
    while True:
        found = _without_self(index.search(points[sample.numpy()], k + 1), sample, k)
        reached = _recall(found.indices, truth, sample, k)
        if reached >= recall or index.nprobe >= cells:
            break
        index.nprobe = min(2 * index.nprobe, cells)
    parts = []
    for start in range(0, n, ANN_BLOCK):
        rows = torch.arange(start, min(start + ANN_BLOCK, n))
        parts.append(_without_self(index.search(points[start : start + ANN_BLOCK], k + 1), rows, k))
        if progress is not None:
            progress(int(rows[-1]) + 1, n)
    neighbors = Neighbors(*(torch.cat(column) for column in zip(*parts, strict=True)))
    _complete(neighbors, unit, k)
    return ApproximateNeighbors(neighbors, reached)


def load_faiss() -> Any:
    """The faiss module, or an `ImportError` that names the extra."""
    try:
        import faiss
    except ImportError as error:
        raise ImportError(f"approximate neighbors need {extra('ann')}") from error
    return faiss


def _without_self(found: Any, rows: Tensor, k: int) -> Neighbors:
    """Drop each point from its own list, or the last entry if the point is not in it; ties are ordered by
    index.
    """
    values, names = (torch.as_tensor(part) for part in found)
    own = names == rows.unsqueeze(1)
    own[:, -1] |= ~own.any(1)
    values, names = values[~own].reshape(-1, k), names[~own].reshape(-1, k)
    names, order = names.sort(1)
    values, ranked = values.gather(1, order).sort(dim=1, descending=True, stable=True)
    return Neighbors(names.gather(1, ranked), values)


def _recall(found: Tensor, truth: Tensor, rows: Tensor, k: int) -> float:
    """Fraction of the k true neighbors found; `truth` may contain the point itself."""
    names = _without_self((-torch.arange(k + 1.0).repeat(len(truth), 1), truth), rows, k).indices
    return float((names.unsqueeze(2) == found.unsqueeze(1)).any(2).float().mean())


def _complete(neighbors: Neighbors, unit: Tensor, k: int) -> None:
    """Search exactly for points whose cells held fewer than k others (marked −1)."""
    short = (neighbors.indices < 0).any(1).nonzero().squeeze(1)
    if len(short):
        exact = nearest_neighbors(unit, k + 1, queries=unit[short])
        full = _without_self((exact.similarities, exact.indices), short, k)
        neighbors.indices[short], neighbors.similarities[short] = full
