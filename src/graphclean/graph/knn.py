"""Exact cosine k-nearest neighbours by tiles: bounded memory, ties settled, the same on CPU and CUDA."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from .csr import from_edges

TILE_BYTES = 256 * 2**20
"""Memory for one tile of similarities; the result does not depend on it."""


class Neighbours(NamedTuple):
    """The k nearest of each point, by falling similarity, equal ones by rising index."""

    indices: Tensor
    """(N, k) int64."""
    similarities: Tensor
    """(N, k), the cosine of each."""


def nearest_neighbours(
    z: Tensor,
    k: int,
    *,
    queries: Tensor | None = None,
    tile_bytes: int = TILE_BYTES,
    progress: Callable[[int, int], None] | None = None,
) -> Neighbours:
    """Find the `k` points of `z` nearest to every point of `z`, or of `queries` where given.

    A point is never its own neighbour, however many duplicates it has; without `queries` the result
    therefore has min(k, N - 1) columns, with them min(k, N). `progress(done, total)` is called per tile.
    """
    z = normalize(z, dim=1)
    own = queries is None
    q = z if queries is None else normalize(queries.to(z), dim=1)
    k = min(k, len(z) - own)
    if k < 1:
        raise ValueError(f"no neighbours among {len(z)} points for k = {k}")
    rows, columns = _tile_shape(len(q), len(z), k, z.element_size(), tile_bytes)
    indices = torch.empty(len(q), k, dtype=torch.int64, device=z.device)
    similarities = torch.empty(len(q), k, dtype=z.dtype, device=z.device)
    for start in range(0, len(q), rows):
        block = slice(start, min(start + rows, len(q)))
        best: Neighbours | None = None
        for left in range(0, len(z), columns):
            tile = q[block] @ z[left : left + columns].T
            if own:
                _mask_diagonal(tile, block.start - left)
            found = _top(tile, k)
            found = Neighbours(found.indices + left, found.similarities)
            best = found if best is None else _merge(best, found, k)
        assert best is not None
        indices[block], similarities[block] = best
        if progress is not None:
            progress(block.stop, len(q))
    return Neighbours(indices, similarities)


def knn_graph(neighbours: Neighbours, n: int | None = None) -> Tensor:
    """The neighbour lists as a directed CSR graph of similarities."""
    indices, order = neighbours.indices.sort(1)
    count, k = indices.shape
    rows = torch.arange(count, device=indices.device).repeat_interleave(k)
    values = neighbours.similarities.gather(1, order).flatten()
    return from_edges(rows, indices.flatten(), values, count if n is None else n)


def _tile_shape(n_queries: int, n: int, k: int, size: int, tile_bytes: int) -> tuple[int, int]:
    """Rows and columns of a tile: whole rows where they fit, and never fewer than 64 of them."""
    budget = max(1, tile_bytes // size)
    columns = min(n, max(budget // 64, 4 * k))
    rows = min(n_queries, max(64, budget // columns), 4096)
    return rows, columns


def _mask_diagonal(tile: Tensor, offset: int) -> None:
    """Rule out the pairs (i, i) in a tile whose row 0 stands `offset` columns to the right of column 0."""
    width = tile.shape[1]
    first = max(0, -offset)
    last = min(tile.shape[0], width - offset)
    if first < last:
        tile[first:last, first + offset : last + offset].fill_diagonal_(-torch.inf)


def _top(tile: Tensor, k: int) -> Neighbours:
    """The k largest of each row. `topk` leaves equal values in no stated order, so ties are settled here."""
    width = tile.shape[1]
    if width <= k:
        values, indices = tile.sort(dim=1, descending=True, stable=True)
        return Neighbours(indices, values)
    values, indices = tile.topk(k + 1, dim=1)
    # Equal values at the cut: topk may have kept the wrong ones. Equal values before it: any order.
    tied = (values[:, 1:] == values[:, :-1]).any(1).nonzero().squeeze(1)
    if len(tied):
        for part in torch.split(tied, 256):
            ranked = tile[part].sort(dim=1, descending=True, stable=True)
            values[part], indices[part] = ranked.values[:, : k + 1], ranked.indices[:, : k + 1]
    return Neighbours(indices[:, :k], values[:, :k])


def _merge(a: Neighbours, b: Neighbours, k: int) -> Neighbours:
    """Merge two ranked lists; all of `a` is below all of `b` by index, so a stable sort keeps the order."""
    values = torch.cat([a.similarities, b.similarities], 1)
    indices = torch.cat([a.indices, b.indices], 1)
    values, order = values.sort(dim=1, descending=True, stable=True)
    return Neighbours(indices.gather(1, order[:, :k]), values[:, :k])
