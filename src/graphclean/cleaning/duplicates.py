"""Near-duplicates: samples so much closer together than mere neighbors are that they show the same thing.

By features alone, how close that is depends on how many dimensions the data has. Of neighbors that lie
evenly about a sample in D dimensions, one is within r times the distance of a farther one with probability
r^D: common in two dimensions, next to never in twenty. D is measured on the neighbor lists, and r is where
that is rarer than a tolerance. Photos have a perceptual hash besides, and r is then larger, since both must
agree.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from torch import Tensor

from ..graph import Neighbors, nearest_neighbors
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
SAME_BITS, HASH_BITS, GROUP_BITS = 4, 16, 24
"""Bits of 63 in which hashes hardly differ, in which those of a pair may, and of any two of a group; of other
photos they differ in 31, within 4.
"""
FLOOD = 0.5
"""Of the typical distance: where a whole neighbor list is closer, hashes alone decide."""
COMPARED_WITH = 5
"""Training samples, the nearest, that a new one may be a duplicate of."""
SPREAD_SAMPLE = 200
"""Samples that tell the typical distance."""


@dataclass(frozen=True)
class TrainingSamples:
    """Training samples by which others that show the same are known again."""

    unit: Tensor
    """The distinct ones, as unit rows."""
    limits: "Limits"
    rows: Codes
    """Which sample each is."""
    hashes: Codes | None

    @classmethod
    def gather(cls, unit: Tensor, neighbors: Neighbors, rows: Codes, hashes: Codes | None) -> Self:
        """From nodes of the graph, and the samples that they are of."""
        limits = Limits.find(unit, _chord(neighbors.similarities), hashed=hashes is not None)
        return cls(unit, limits, rows, hashes)

    def find(self, unit: Tensor, hashes: Codes | None = None) -> Codes:
        """The training sample that each of some unit rows is equal or nearly equal to; −1 where none is."""
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
    """The group of each of the `unit` rows, named by its first row; None where there are no duplicates.

    `neighbors` are by cosine. Groups are joined by their closest pair. No two members of a group lie farther
    apart than mere neighbors (complete linkage), so that no chain of merely similar samples forms one.
    """
    distances = _chord(neighbors.similarities)
    if distances.shape[1] <= BEYOND:
        return None
    limits = Limits.find(unit, distances, hashed=hashes is not None)
    signs = _as_signs(hashes) if hashes is not None else None
    rows, columns = (distances < limits.beyond.unsqueeze(1)).nonzero(as_tuple=True)
    others, apart = neighbors.indices[rows, columns], distances[rows, columns]
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


@dataclass(frozen=True)
class Limits:
    """How close near-duplicates of each sample are."""

    beyond: Tensor
    """The distance of the mere neighbors; −1 where float32 can't tell duplicates from these."""
    ratio: float
    """The fraction of it under which a sample is no mere neighbor."""

    @classmethod
    def find(cls, unit: Tensor, distances: Tensor, *, hashed: bool) -> Self:
        """By the sorted `distances` of neighbors.

        Where the nearest m lie close against the one BEYOND places behind them, for the largest such m, they
        are the duplicates; where none do, the first is compared.
        """
        count, reach = distances.shape
        ratio = distance_ratio(distances, hashed=hashed)
        place = torch.arange(reach - 1 if hashed else min(reach, LARGEST_ALONE) - 1)
        behind = distances[:, (place + BEYOND).clamp(max=reach - 1)]
        last = torch.where(distances[:, : len(place)] <= ratio * behind, place, 0).amax(1)
        beyond = behind[torch.arange(count), last]
        if hashed:
            flood = FLOOD * _typical_distance(unit)
            beyond = torch.where(distances[:, -1] <= flood, flood / max(ratio, FLOOD), beyond)
        return cls(torch.where(ratio * beyond > RESOLUTION, beyond, -1), ratio)

    def allow(self, apart: Tensor, rows: Tensor, agreement: Tensor | None) -> Tensor:
        """Whether what lies `apart` from samples may be near-duplicates of them: close by features alone, or
        by hashes that differ in few bits, where those that hardly differ allow for more distance.
        """
        limit = self.ratio * self.beyond[rows]
        if agreement is None:
            return apart < limit
        differ = _differing(agreement)
        return (differ <= HASH_BITS) & (apart < torch.where(differ <= SAME_BITS, self.beyond[rows], limit))


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


def _differing(agreement: Tensor) -> Tensor:
    """Bits in which hashes differ, by the products of their signs."""
    return (64 - agreement) / 2


def _as_signs(hashes: Codes) -> Tensor:
    """Bits as 1 and −1."""
    bits = np.unpackbits(hashes.astype("<i8").view(np.uint8).reshape(-1, 8), axis=1)
    return torch.as_tensor(bits.astype(np.float32) * 2 - 1)
