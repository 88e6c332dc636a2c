"""Near-duplicates: samples so much closer than ordinary neighbors that they show the same thing.

For features alone, the necessary distance depends on the dimension of the data. If neighbors are spread
evenly around a sample in D dimensions, one of them is within r times the distance of a farther one with
probability r^D: common in two dimensions, almost impossible in twenty. D is estimated from the neighbor
lists, and r is chosen so that this probability equals a tolerance. Photos also have a perceptual hash; r is
then larger, because both criteria must agree.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from ..graph import Neighbors, nearest_neighbors
from .inputs import Codes
from .scale import row_blocks

BEYOND = 10
"""Rank, beyond its duplicates, of the ordinary neighbor that a sample is compared with."""
REACH = 3 * BEYOND
"""Neighbors of a sample that are examined; more if the graph has more."""
TOLERANCE, TOLERANCE_HASHED = 1e-4, 2e-2
"""Probability that an ordinary neighbor is as close: by features alone, and if hashes must agree too."""
MOST, MOST_HASHED = 0.65, 0.8
"""Upper bounds on r, in any number of dimensions."""
RESOLUTION = 1e-3
"""Smallest distance of unit vectors that float32 resolves."""
LARGEST_ALONE = 20
"""Largest group that features alone may join: a larger one could be a class."""
PACKED = 0.02
"""Fraction of the typical distance: a larger group within it would be an unusually tight class."""
SAME_BITS, HASH_BITS, GROUP_BITS = 4, 16, 24
"""Of 63 bits: the difference of nearly equal hashes, the limit for a pair, and the limit for any two members
of a group. Hashes of unrelated photos differ in 31 ± 4 bits.
"""
FLOOD = 0.5
"""Fraction of the typical distance: if a whole neighbor list is closer, hashes alone decide."""
COMPARED_WITH = 5
"""The nearest training samples that a new sample is compared with."""
SPREAD_SAMPLE = 200
"""Samples used to estimate the typical distance."""


@dataclass(frozen=True)
class TrainingSamples:
    """Training samples prepared for detecting duplicates among new samples."""

    unit: Tensor
    """The distinct samples as unit rows."""
    limits: "Limits"
    rows: Codes
    """The sample index of each row."""
    hashes: Codes | None

    @classmethod
    def gather(cls, unit: Tensor, neighbors: Neighbors, rows: Codes, hashes: Codes | None) -> Self:
        """Collect from the nodes of the graph and their samples."""
        limits = Limits.find(unit, neighbors.similarities, hashed=hashes is not None)
        return cls(unit, limits, rows, hashes)

    def find(self, unit: Tensor, hashes: Codes | None = None) -> Codes:
        """The training sample that each unit row duplicates; −1 if none."""
        near = nearest_neighbors(self.unit, COMPARED_WITH, queries=unit)
        close = torch.zeros_like(near.indices, dtype=torch.bool)
        if self.hashes is None or hashes is not None:
            agreement = None
            if self.hashes is not None and hashes is not None:
                agreement = torch.einsum(
                    "nb,nkb->nk", _as_signs(hashes), _as_signs(self.hashes)[near.indices]
                )
            close = self.limits.allow(_chord(near.similarities), near.indices, agreement)
        close |= (self.unit[near.indices] == unit.unsqueeze(1)).all(2)
        best = near.indices.gather(1, close.long().argmax(1, keepdim=True)).squeeze(1)
        return np.where(close.any(1).numpy(), self.rows[best.numpy()], -1)


def find_duplicates(unit: Tensor, neighbors: Neighbors, hashes: Codes | None = None) -> Codes | None:
    """The group of each `unit` row, named by its first row; None if there are no duplicates.

    `neighbors` are by cosine. Groups are merged in order of their closest pair. No two members of a group are
    farther apart than ordinary neighbors (complete linkage), so chains of merely similar samples never form a
    group.
    """
    if neighbors.similarities.shape[1] <= BEYOND:
        return None
    limits = Limits.find(unit, neighbors.similarities, hashed=hashes is not None)
    signs = _as_signs(hashes) if hashes is not None else None
    rows, others, apart = _closer_than(limits.beyond, neighbors)
    agreement = (signs[rows] * signs[others]).sum(1) if signs is not None else None
    close = limits.allow(apart, rows, agreement) & limits.allow(apart, others, agreement)
    rows, others, apart = rows[close], others[close], apart[close]
    if len(rows) == 0:
        return None
    order = np.lexsort((others.numpy(), rows.numpy(), apart.numpy()))
    pairs = np.column_stack([rows.numpy(), others.numpy()])[order]

    def all_close(some: list[int], more: list[int]) -> bool:
        limit = torch.minimum(limits.beyond[some].unsqueeze(1), limits.beyond[more])
        fit = _chord(unit[some] @ unit[more].T) < limit
        if signs is not None:
            fit &= _differing(signs[some] @ signs[more].T) <= GROUP_BITS
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


def count_packed(unit: Tensor, neighbors: Neighbors) -> int:
    """The number of samples in groups that are unusually tight, but too large for features alone to join."""
    similarities = neighbors.similarities
    if similarities.shape[1] < LARGEST_ALONE:
        return 0
    limit = min(PACKED, distance_ratio(similarities, hashed=False)) * _typical_distance(unit)
    return int((_chord(similarities[:, LARGEST_ALONE - 1]) <= limit).sum())


def _closer_than(limits: Tensor, neighbors: Neighbors) -> tuple[Tensor, Tensor, Tensor]:
    """Row, neighbor and distance of all pairs that are closer than the limit of the row."""
    parts = []
    for block in row_blocks(len(limits)):
        distances = _chord(neighbors.similarities[block])
        rows, columns = (distances < limits[block].unsqueeze(1)).nonzero(as_tuple=True)
        others = neighbors.indices[block][rows, columns].long()
        parts.append((rows + block.start, others, distances[rows, columns]))
    rows, others, apart = (torch.cat(part) for part in zip(*parts, strict=True))
    return rows, others, apart


@dataclass(frozen=True)
class Limits:
    """Distance limits for near-duplicates of each sample."""

    beyond: Tensor
    """The distance of ordinary neighbors; −1 if float32 can't separate duplicates from them."""
    ratio: float
    """The fraction of that distance below which a neighbor counts as a near-duplicate."""

    @classmethod
    def find(cls, unit: Tensor, similarities: Tensor, *, hashed: bool) -> Self:
        """Limits from the sorted `similarities` of neighbors.

        The nearest m neighbors are the duplicates, for the largest m such that they are close compared with
        the one BEYOND ranks behind them; if there is none, the first neighbor is used.
        """
        reach = similarities.shape[1]
        ratio = distance_ratio(similarities, hashed=hashed)
        flood = FLOOD * _typical_distance(unit) if hashed else None
        blocks = [
            cls._beyond(_chord(similarities[block]), reach, ratio, flood)
            for block in row_blocks(len(similarities))
        ]
        beyond = torch.cat(blocks)
        return cls(torch.where(ratio * beyond > RESOLUTION, beyond, -1), ratio)

    @staticmethod
    def _beyond(distances: Tensor, reach: int, ratio: float, flood: float | None) -> Tensor:
        hashed = flood is not None
        place = torch.arange(reach - 1 if hashed else min(reach, LARGEST_ALONE) - 1)
        behind = distances[:, (place + BEYOND).clamp(max=reach - 1)]
        last = torch.where(distances[:, : len(place)] <= ratio * behind, place, 0).amax(1)
        beyond = behind[torch.arange(len(distances)), last]
        if flood is not None:
            beyond = torch.where(distances[:, -1] <= flood, flood / max(ratio, FLOOD), beyond)
        return beyond

    def allow(self, apart: Tensor, rows: Tensor, agreement: Tensor | None) -> Tensor:
        """Whether pairs at distance `apart` may be near-duplicates: close by features alone, or with hashes
        that differ in few bits, where nearly equal hashes permit a larger distance.
        """
        limit = self.ratio * self.beyond[rows]
        if agreement is None:
            return apart < limit
        differ = _differing(agreement)
        return (differ <= HASH_BITS) & (apart < torch.where(differ <= SAME_BITS, self.beyond[rows], limit))


def distance_ratio(similarities: Tensor, *, hashed: bool) -> float:
    """r of this module: the tolerance to the power of 1/D, with the maximum-likelihood estimate of the
    dimension D.

    In D dimensions, D · log(d_b / d_a) of the a-th and b-th neighbors is 1/a + … + 1/(b − 1) on average.
    """
    tolerance, most = (TOLERANCE_HASHED, MOST_HASHED) if hashed else (TOLERANCE, MOST)
    b = min(2 * BEYOND, similarities.shape[1])
    a = b // 2
    near, far = (_chord(similarities[:, place - 1]) for place in (a, b))
    apart = near > 0
    if not bool(apart.any()):
        return 0.0
    stretch = float((far[apart] / near[apart]).log().mean())
    dimension = sum(1 / j for j in range(a, b)) / max(stretch, 1e-9)
    return float(min(most, tolerance ** (1 / dimension)))


def _typical_distance(unit: Tensor) -> float:
    """The distance between unrelated samples, robust to one group containing most of them."""
    some = unit[torch.linspace(0, len(unit) - 1, min(SPREAD_SAMPLE, len(unit))).round().long()]
    return float(_chord(some @ some.T).quantile(0.9))


def _chord(cosine: Tensor) -> Tensor:
    """The distance of unit vectors."""
    return (2 - 2 * cosine).clamp(min=0).sqrt()


def _differing(agreement: Tensor) -> Tensor:
    """The number of bits in which hashes differ, from the products of their signs."""
    return (64 - agreement) / 2


def _as_signs(hashes: Codes) -> Tensor:
    """Bits as ±1."""
    bits = np.unpackbits(hashes.astype("<i8").view(np.uint8).reshape(-1, 8), axis=1)
    return torch.as_tensor(bits.astype(np.float32) * 2 - 1)
