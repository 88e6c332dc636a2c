"""Approximate neighbors for large sets, with recall measured on exact rows.

Points are grouped around centers found by k-means. A point is compared with the points of the groups whose
centers are nearest to it, group by group, so that each comparison is a product of matrices, where inverted
lists compare row by row. How many groups it takes is read off the groups in which the true neighbors of a
sample are, so it is known before the search.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize

from .knn import Neighbors, _top, nearest_neighbors
from .ranking import Ranking

RECALL = 0.97
"""Fraction of the true neighbors that must be in the groups searched, by the sample."""
SAMPLE = 2000
"""Evenly spaced points whose true neighbors are found."""
KMEANS_ROUNDS = 6
"""Rounds of k-means, each on so many points per group:"""
TRAINING_POINTS = 32
ASSIGNED_AT_ONCE = 8192
"""Points whose groups are found at once."""
MASK_CELLS = 2**26
"""Points times groups for which it is known at once whether a point visits a group."""
QUERY_ROWS = 2**16
"""Points searched for at once."""
TILE_CELLS = {"cpu": 2**20, "cuda": 2**28}
"""Similarities computed at once: on a CPU they stay in its cache."""


HALVED = 200_000
"""Of more points, indices are int32."""


class ApproximateNeighbors(NamedTuple):
    """Neighbors, and their recall measured on a sample."""

    neighbors: Neighbors
    recall: float


class Groups(NamedTuple):
    """Points by group."""

    centers: Tensor
    order: Tensor
    """The points, group by group."""
    ends: Tensor
    """Where each group begins in `order`, and where the last one ends."""
    of: Tensor
    """The group of each point."""


@torch.no_grad()
def approximate_neighbors(
    z: Tensor, k: int, *, recall: float = RECALL, progress: Callable[[int, int], None] | None = None
) -> ApproximateNeighbors:
    """Cosine neighbors from the nearest groups of a k-means; ties are ordered by index.

    As many groups are searched as hold the fraction `recall` of the true neighbors of a sample; on data
    without clusters that may be most of them. Seeded, so runs are reproducible.
    """
    unit = normalize(z.float(), dim=1)
    n, k = len(unit), min(k, len(unit) - 1)
    if k < 1:
        raise ValueError(f"no neighbors among {n} points")
    groups = find_groups(unit, 2 ** round(math.log2(n) / 2))
    visits, reached = _choose_visits(unit, groups, k, recall)
    points = unit[groups.order]
    neighbors = Neighbors(
        torch.empty(n, k, dtype=torch.int32 if n > HALVED else torch.int64, device=unit.device),
        torch.empty(n, k, dtype=unit.dtype, device=unit.device),
    )
    step = max(1024, min(QUERY_ROWS, MASK_CELLS // len(groups.centers)))
    for start in range(0, n, step):
        block = slice(start, min(start + step, n))
        rows = groups.order[block]
        found = _search(points, block, groups, visits, k + 1)
        names = torch.where(found.indices >= 0, groups.order[found.indices], -1)
        mine = _without_self(Neighbors(names, found.similarities), rows, k)
        neighbors.indices[rows] = mine.indices.to(neighbors.indices.dtype)
        neighbors.similarities[rows] = mine.similarities
        if progress is not None:
            progress(block.stop, n)
    _complete(neighbors, unit, k)
    return ApproximateNeighbors(neighbors, reached)


def find_groups(unit: Tensor, count: int) -> Groups:
    """Group unit rows by k-means on the sphere, fitted to a sample of them."""
    n = len(unit)
    generator = torch.Generator().manual_seed(1)
    some = torch.randperm(n, generator=generator)[: max(count, TRAINING_POINTS * count)].to(unit.device)
    sample = unit[some.sort().values]
    centers = sample[torch.randperm(len(sample), generator=generator)[:count].to(unit.device)]
    for _ in range(KMEANS_ROUNDS):
        centers = _means(sample, _nearest_center(sample, centers), centers)
    of = _nearest_center(unit, centers)
    centers = _means(unit, of, centers)
    order = of.argsort(stable=True)
    ends = torch.zeros(count + 1, dtype=torch.int64, device=unit.device)
    torch.cumsum(torch.bincount(of, minlength=count), 0, out=ends[1:])
    return Groups(centers, order, ends, of)


def _nearest_center(unit: Tensor, centers: Tensor) -> Tensor:
    return torch.cat([(part @ centers.T).argmax(1) for part in torch.split(unit, ASSIGNED_AT_ONCE)])


def _means(unit: Tensor, of: Tensor, before: Tensor) -> Tensor:
    """The direction of each group; that of an empty one stays."""
    total = torch.zeros_like(before).index_add_(0, of, unit)
    return torch.where(total.any(1, keepdim=True), normalize(total, dim=1), before)


def _choose_visits(unit: Tensor, groups: Groups, k: int, recall: float) -> tuple[int, float]:
    """How many groups each point visits, and the fraction of true neighbors in those groups, by a sample."""
    n, count = len(unit), len(groups.centers)
    sample = torch.unique_consecutive(
        torch.linspace(0, n - 1, min(SAMPLE, n), dtype=torch.float64).round().long()
    ).to(unit.device)
    truth = nearest_neighbors(unit, k + 1, queries=unit[sample])
    names = _without_self(truth, sample, k).indices
    scores = unit[sample] @ groups.centers.T
    theirs = scores.gather(1, groups.of[names])
    # A group is visited when fewer than that many centers are nearer.
    nearer = torch.stack([(scores > one.unsqueeze(1)).sum(1) for one in theirs.T], 1)
    found = torch.bincount(nearer.flatten(), minlength=count).cumsum(0).double() / nearer.numel()
    visits = min(int((found < recall).sum()) + 1, count)
    return visits, float(found[visits - 1])


def _search(points: Tensor, block: slice, groups: Groups, visits: int, k: int) -> Neighbors:
    """The k best points, by their place in `points`, for a block of these, each in the groups it visits."""
    queries, device = points[block], points.device
    best, ends = Ranking(len(queries), k, points), groups.ends.tolist()
    cells = TILE_CELLS.get(device.type, TILE_CELLS["cpu"])
    rows = torch.arange(len(queries), device=device)
    own = groups.of[groups.order[block]]
    visited = torch.empty(len(queries), len(groups.centers), dtype=torch.bool, device=device)
    for part in torch.split(rows, ASSIGNED_AT_ONCE):
        scores = queries[part] @ groups.centers.T
        visited[part] = scores >= scores.topk(visits, dim=1).values[:, -1:]
    visited[rows, own] = False
    visited = visited.T.contiguous()

    def tiles(group: int, visitors: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        left, right = ends[group : group + 2]
        for part in torch.split(visitors, max(64, cells // max(right - left, 1))):
            yield part, queries[part] @ points[left:right].T

    # The own group is ranked as a whole, so that few points of the others are worth a look.
    for group in torch.unique_consecutive(own).tolist():
        for part, tile in tiles(group, (own == group).nonzero().squeeze(1)):
            found = _top(tile, min(k, tile.shape[1]))
            best.start(part, found.similarities, found.indices + ends[group])
    for group in visited.any(1).nonzero().squeeze(1).tolist():
        for part, tile in tiles(group, visited[group].nonzero().squeeze(1)):
            best.offer(part, tile, ends[group])
    best.merge()
    return Neighbors(best.indices, best.values)


def _without_self(found: Neighbors, rows: Tensor, k: int) -> Neighbors:
    """Drop each point from its own list, or the last entry if the point is not in it; ties are ordered by
    index.
    """
    names, values = found
    own = names == rows.unsqueeze(1)
    own[:, -1] |= ~own.any(1)
    values, names = values[~own].reshape(-1, k), names[~own].reshape(-1, k)
    names, order = names.sort(1)
    values, ranked = values.gather(1, order).sort(dim=1, descending=True, stable=True)
    return Neighbors(names.gather(1, ranked), values)


def _complete(neighbors: Neighbors, unit: Tensor, k: int) -> None:
    """Search exactly for points whose groups held fewer than k others (marked −1)."""
    short = (neighbors.indices < 0).any(1).nonzero().squeeze(1)
    if len(short):
        exact = nearest_neighbors(unit, k + 1, queries=unit[short])
        full = _without_self(exact, short, k)
        neighbors.indices[short] = full.indices.to(neighbors.indices.dtype)
        neighbors.similarities[short] = full.similarities
