"""Exact cosine k-nearest neighbors in tiles: bounded memory, deterministic ties, the same on CPU and CUDA."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from ..distributed.group import Group
from .csr import from_edges
from .ranking import Ranking

TILE_BYTES = {"cpu": 2**26, "cuda": 2**31}
"""Memory for one tile of similarities, by device; it does not affect the result."""


STREAMED = 2**15
"""From this many points on a CPU, rows are ranked tile by tile as similarities are computed."""
STREAM_ROWS, STREAM_COLUMNS = 1024, 2048
"""A tile that stays in the cache."""
GROUP = 128
"""Columns per group in the two-step top-k."""
LEAST_DIVIDED_ROWS = 4096
"""Rows from which dividing the search among processes takes less time than the exchange."""


class Neighbors(NamedTuple):
    """The k nearest neighbors of each point, by decreasing similarity; ties are ordered by index."""

    indices: Tensor
    """(N, k) int64."""
    similarities: Tensor
    """(N, k) cosine similarities."""


@torch.no_grad()
def nearest_neighbors(
    z: Tensor,
    k: int,
    *,
    queries: Tensor | None = None,
    rows: slice | None = None,
    tile_bytes: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Neighbors:
    """Find the `k` points of `z` nearest to every point of `z`, or of `queries` if given.

    A point is never its own neighbor, however many duplicates it has; without `queries` the result therefore
    has min(k, N − 1) columns, with `queries` min(k, N). Only some consecutive `rows` of `z` can be searched
    for. `progress(done, total)` is called once per tile.
    """
    z = normalize(z, dim=1)
    own = queries is None
    q = z if queries is None else normalize(queries.to(z), dim=1)
    first = 0
    if rows is not None:
        first, q = rows.start, q[rows]
    k = min(k, len(z) - own)
    if k < 1:
        raise ValueError(f"no neighbors among {len(z)} points for k = {k}")
    if tile_bytes is None and z.device.type == "cpu" and len(z) >= STREAMED > 8 * k:
        return _stream(q, z, k, first if own else None, progress)
    budget = tile_bytes if tile_bytes is not None else TILE_BYTES.get(z.device.type, TILE_BYTES["cpu"])
    height, columns = _tile_shape(len(q), len(z), k, z.element_size(), budget)
    indices = torch.empty(len(q), k, dtype=torch.int64, device=z.device)
    similarities = torch.empty(len(q), k, dtype=z.dtype, device=z.device)
    # One buffer for all tiles: fresh memory for each would cost the CPU more than the products.
    buffer = torch.empty(height * columns, dtype=z.dtype, device=z.device)
    for start in range(0, len(q), height):
        block = slice(start, min(start + height, len(q)))
        best: Neighbors | None = None
        for left in range(0, len(z), columns):
            part = z[left : left + columns]
            shape = (block.stop - block.start, len(part))
            tile = torch.mm(q[block], part.T, out=buffer[: shape[0] * shape[1]].view(shape))
            if own:
                _mask_diagonal(tile, first + block.start - left)
            found = _top(tile, k)
            found = Neighbors(found.indices + left, found.similarities)
            best = found if best is None else _merge(best, found, k)
        assert best is not None
        indices[block], similarities[block] = best
        if progress is not None:
            progress(block.stop, len(q))
    return Neighbors(indices, similarities)


def divide_neighbors(z: Tensor, k: int, group: Group) -> Neighbors:
    """`nearest_neighbors` of z, for which each process of a group searches for its part of the rows.

    Every process has all of z, which is small next to a network's work: only results are exchanged, and a
    second top-k, as over parts of z, is not needed.
    """
    if not group.several or len(z) < LEAST_DIVIDED_ROWS:
        return nearest_neighbors(z, k)
    found = nearest_neighbors(z, k, rows=group.part(len(z)))
    return Neighbors(*(group.gather(part, len(z)) for part in found))


def _stream(
    q: Tensor, z: Tensor, k: int, own: int | None, progress: Callable[[int, int], None] | None
) -> Neighbors:
    """The same result from tiles in the cache, of which only scores above a row's k-th best are ranked.

    `own` is the row of z that q begins with, if q is a part of z.
    """
    parts = []
    buffer = torch.empty(STREAM_ROWS * STREAM_COLUMNS, dtype=z.dtype)
    for start in range(0, len(q), STREAM_ROWS):
        block = q[start : start + STREAM_ROWS]
        best, rows = Ranking(len(block), k, z), torch.arange(len(block))
        for left in range(0, len(z), STREAM_COLUMNS):
            part = z[left : left + STREAM_COLUMNS]
            shape = len(block), len(part)
            tile = torch.mm(block, part.T, out=buffer[: shape[0] * shape[1]].view(shape))
            if own is not None:
                _mask_diagonal(tile, own + start - left)
            if left:
                best.offer(rows, tile, left)
            else:
                found = _top(tile, k)
                best.start(rows, found.similarities, found.indices)
        best.merge()
        parts.append(Neighbors(best.indices, best.values))
        if progress is not None:
            progress(start + len(block), len(q))
    return Neighbors(*(torch.cat(column) for column in zip(*parts, strict=True)))


def knn_graph(neighbors: Neighbors, n: int | None = None) -> Tensor:
    """The neighbor lists as a directed CSR graph of similarities."""
    indices, order = neighbors.indices.sort(1)
    count, k = indices.shape
    rows = torch.arange(count, device=indices.device).repeat_interleave(k)
    values = neighbors.similarities.gather(1, order).flatten()
    return from_edges(rows, indices.flatten(), values, count if n is None else n)


def _tile_shape(n_queries: int, n: int, k: int, size: int, tile_bytes: int) -> tuple[int, int]:
    """Rows and columns of a tile: whole rows if they fit, and at least 64 rows."""
    budget = max(1, tile_bytes // size)
    columns = min(n, max(budget // 64, 4 * k))
    rows = min(n_queries, max(64, budget // columns), 4096)
    return rows, columns


def _mask_diagonal(tile: Tensor, offset: int) -> None:
    """Mask the pairs (i, i) of a tile in which row 0 belongs at column `offset`."""
    width = tile.shape[1]
    first = max(0, -offset)
    last = min(tile.shape[0], width - offset)
    if first < last:
        tile[first:last, first + offset : last + offset].fill_diagonal_(-torch.inf)


def _top(tile: Tensor, k: int) -> Neighbors:
    """The k largest values of each row, with ties in index order, which `topk` does not guarantee."""
    width = tile.shape[1]
    if width <= k:
        values, indices = tile.sort(dim=1, descending=True, stable=True)
        return Neighbors(indices, values)
    values, indices = _largest(tile, k + 1)
    tied = values[:, 1:] == values[:, :-1]
    inside = tied.any(1).nonzero().squeeze(1)
    if len(inside):
        # Equal values stand in any order: by index first, then by value without upsetting that.
        ordered, order = indices[inside].sort(dim=1)
        ranked = values[inside].gather(1, order).sort(dim=1, descending=True, stable=True)
        values[inside], indices[inside] = ranked.values, ordered.gather(1, ranked.indices)
    # Equal values across the cut: topk may have kept the wrong ones, so the whole row is ranked.
    for part in torch.split(tied[:, -1].nonzero().squeeze(1), 256):
        if len(part):
            ranked = tile[part].sort(dim=1, descending=True, stable=True)
            values[part], indices[part] = ranked.values[:, : k + 1], ranked.indices[:, : k + 1]
    return Neighbors(indices[:, :k], values[:, :k])


def _largest(tile: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """`topk` of wide rows in two steps, three times as fast on a GPU.

    The k groups with the largest maxima contain the k largest values: if one of these were in another group,
    k groups would each contain a value at least as large.
    """
    groups = tile.shape[1] // GROUP
    if groups < 4 * k:
        values, indices = tile.topk(k, dim=1)
        return values, indices
    width = groups * GROUP
    grouped = tile[:, :width].reshape(-1, groups, GROUP)
    best = grouped.amax(2).topk(k, dim=1, sorted=False).indices
    inside = torch.arange(GROUP, device=tile.device)
    columns = (best.unsqueeze(2) * GROUP + inside).flatten(1)
    rest = torch.arange(width, tile.shape[1], device=tile.device).expand(len(tile), -1)
    columns = torch.cat([columns, rest], 1)
    values, at = tile.gather(1, columns).topk(k, dim=1)
    return values, columns.gather(1, at)


def _merge(a: Neighbors, b: Neighbors, k: int) -> Neighbors:
    """Merge two ranked lists; all indices of `a` are below those of `b`, so a stable sort keeps ties in
    order.
    """
    values = torch.cat([a.similarities, b.similarities], 1)
    indices = torch.cat([a.indices, b.indices], 1)
    values, order = values.sort(dim=1, descending=True, stable=True)
    return Neighbors(indices.gather(1, order[:, :k]), values[:, :k])
