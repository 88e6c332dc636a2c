"""Near-duplicates: samples so much closer together than mere neighbors are that they show the same thing.

By features alone, how close that is depends on how many dimensions the data has. Of neighbors that lie
evenly about a sample in D dimensions, one is within r times the distance of a farther one with probability
r^D: common in two dimensions, next to never in twenty. D is measured on the neighbor lists, and r is where
that is rarer than a tolerance. Photos have a perceptual hash besides, and r is then larger, since both must
agree.
"""

import numpy as np
import torch
from torch import Tensor

from ..graph import Neighbors
from .inputs import Codes

BEYOND = 10
"""Mere neighbors, beyond its duplicates, that a sample is compared with."""
REACH = 3 * BEYOND
"""Neighbors of a sample that are looked at; more where the graph has more."""
TOLERANCE, TOLERANCE_HASHED = 1e-4, 2e-2
"""Probability with which a mere neighbor may be as close, by features alone and where hashes must agree."""
MOST, MOST_HASHED = 0.65, 0.8
"""Of the distance of the mere neighbors, in any number of dimensions."""
RESOLUTION = 1e-3
"""Distances of unit vectors that float32 can't tell from none."""
LARGEST_ALONE = 20
"""Samples that features alone may join: more that lie so close may be a class."""
HASH_BITS = 16
"""Bits of 63 in which hashes of one photo may differ; those of others differ in 31, within 4."""
FLOOD = 0.5
"""Of the typical distance: where a whole neighbor list is closer, hashes alone decide."""
SPREAD_SAMPLE = 200
"""Samples that tell the typical distance."""


def find_duplicates(unit: Tensor, neighbors: Neighbors, hashes: Codes | None = None) -> Codes | None:
    """The group of each of the `unit` rows, named by its first row; None where there are no duplicates.

    `neighbors` are by cosine. All members of a group are near-duplicates of each other (complete linkage), so
    that no chain of merely similar samples forms a group.
    """
    distances = _chord(neighbors.similarities)
    if distances.shape[1] <= BEYOND:
        return None
    limits = distance_limits(unit, distances, hashed=hashes is not None)
    bits = _as_signs(hashes) if hashes is not None else None
    within = distances <= limits.unsqueeze(1)
    rows, columns = within.nonzero(as_tuple=True)
    others, apart = neighbors.indices[rows, columns], distances[rows, columns]
    close = apart <= limits[others]
    if bits is not None:
        close &= (bits[rows] * bits[others]).sum(1) >= 64 - 2 * HASH_BITS
    rows, others, apart = rows[close], others[close], apart[close]
    if len(rows) == 0:
        return None
    order = np.lexsort((others.numpy(), rows.numpy(), apart.numpy()))
    pairs = np.column_stack([rows.numpy(), others.numpy()])[order]

    def all_close(some: list[int], more: list[int]) -> bool:
        fit = _chord(unit[some] @ unit[more].T) <= torch.minimum(limits[some].unsqueeze(1), limits[more])
        if bits is not None:
            fit &= bits[some] @ bits[more].T >= 64 - 2 * HASH_BITS
        return bool(fit.all())

    group = np.arange(len(unit))
    members = {int(row): [int(row)] for row in np.unique(pairs)}
    refused: set[tuple[int, int, int, int]] = set()
    for one, other in pairs.tolist():
        a, b = sorted((int(group[one]), int(group[other])))
        if a == b:
            continue
        tried = a, b, len(members[a]), len(members[b])
        if tried in refused:
            continue
        if not all_close(members[a], members[b]):
            refused.add(tried)
            continue
        group[members[b]] = a
        members[a] += members.pop(b)
    return group if (group != np.arange(len(group))).any() else None


def distance_limits(unit: Tensor, distances: Tensor, *, hashed: bool) -> Tensor:
    """How far from each sample its near-duplicates may lie, by the sorted `distances` of its neighbors.

    A fraction of the distance of those beyond. Where the nearest m lie so close against the one BEYOND places
    behind them, for the largest such m, they are the duplicates; where none do, the first is compared.
    """
    count, reach = distances.shape
    ratio = distance_ratio(distances, hashed=hashed)
    place = torch.arange(reach - 1 if hashed else min(reach, LARGEST_ALONE) - 1)
    limits = ratio * distances[:, (place + BEYOND).clamp(max=reach - 1)]
    last = torch.where(distances[:, : len(place)] <= limits, place, 0).amax(1)
    limit = limits[torch.arange(count), last]
    if hashed:
        flood = FLOOD * _typical_distance(unit)
        limit = torch.where(distances[:, -1] <= flood, flood, limit)
    return torch.where(limit > RESOLUTION, limit, -1)


def distance_ratio(distances: Tensor, *, hashed: bool) -> float:
    """r of this module: the tolerance to the power of 1/D, D being the maximum-likelihood dimension.

    In D dimensions D · log(d_b / d_a) of the a-th and b-th neighbors is 1/a + … + 1/(b − 1) on average.
    """
    tolerance, most = (TOLERANCE_HASHED, MOST_HASHED) if hashed else (TOLERANCE, MOST)
    b = min(2 * BEYOND, distances.shape[1])
    a = b // 2
    near, far = distances[:, a - 1], distances[:, b - 1]
    apart = near > 0
    if not bool(apart.any()):
        return 0.0
    stretch = float((far[apart] / near[apart]).log().mean())
    dimension = sum(1 / j for j in range(a, b)) / max(stretch, 1e-9)
    return float(min(most, tolerance ** (1 / dimension)))


def _typical_distance(unit: Tensor) -> float:
    """Between samples that have nothing to do with each other, also where most are of one group."""
    some = unit[torch.linspace(0, len(unit) - 1, min(SPREAD_SAMPLE, len(unit))).round().long()]
    return float(_chord(some @ some.T).quantile(0.9))


def _chord(cosine: Tensor) -> Tensor:
    """The distance of unit vectors."""
    return (2 - 2 * cosine).clamp(min=0).sqrt()


def _as_signs(hashes: Codes) -> Tensor:
    """Bits as 1 and −1: the product of two rows is 64 less twice the bits that differ."""
    bits = np.unpackbits(hashes.astype("<i8").view(np.uint8).reshape(-1, 8), axis=1)
    return torch.as_tensor(bits.astype(np.float32) * 2 - 1)
