"""From embeddings to leave-one-out evidence of each sample's class."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor

from ..graph import (
    Neighbors,
    confident_edges,
    gather_evidence,
    normalize_graph,
    self_influence,
    weight_graph,
)
from ..graph.propagation import self_influence_by_walks
from ..graph.symmetric import symmetric_graph
from .inputs import Array, Codes, Floats, Labels, as_float32
from .scale import is_large, row_blocks

Edges: TypeAlias = tuple[Tensor, Tensor]

NAMED_NEIGHBORS = 5
"""Neighbors listed for each sample in the verdict table."""


@dataclass(frozen=True)
class Standardizer:
    """Standardize every feature over the training set, then normalize every row to length 1."""

    mean: Floats
    scale: Floats
    """Both have the dtype of the features."""

    @classmethod
    def fit(cls, z: Floats) -> "Standardizer":
        """Learn mean and standard deviation; a constant feature is uninformative and gets scale 0."""
        mean, deviation = column_moments(z)
        live = deviation > 8 * np.finfo(np.float32 if z.dtype == np.float16 else z.dtype).eps * np.maximum(
            np.abs(mean), 1e-30
        )
        scale: Floats = np.where(live, 1 / np.where(live, deviation, 1), 0)
        if z.dtype != np.float64:
            return cls(mean.astype(np.float32), scale.astype(np.float32))
        return cls(mean, scale)

    @classmethod
    def rescale_only(cls, z: Floats) -> "Standardizer":
        """Raw features up to one common scale, so that features with a larger variance have more weight."""
        size, some = float(np.sqrt(mean_square(z))), as_float32(z[0])
        return cls(np.zeros_like(some), np.full_like(some, 1 / size))

    @property
    def double(self) -> bool:
        """Whether features need float64 because they are far from zero."""
        return self.mean.dtype == np.float64

    def __call__(self, z: Floats) -> Tensor:
        """Unit rows, as a tensor."""
        unit = torch.empty(z.shape)
        for block in row_blocks(len(z)):
            unit[block] = torch.nn.functional.normalize(self.rescale(z[block]), dim=1)
        return unit

    def rescale(self, z: Floats) -> Tensor:
        """The first step alone: every feature to mean 0 and standard deviation 1, rows of any length."""
        return torch.as_tensor(((as_float32(z) - self.mean) * self.scale).astype(np.float32, copy=False))


def column_moments(z: Floats) -> tuple[Array, Array]:
    """Mean and standard deviation of each column, in double precision; block by block on large sets."""
    if not is_large(len(z)):
        return z.mean(0, dtype=np.float64), z.std(0, dtype=np.float64)
    mean = sum(z[block].sum(0, dtype=np.float64) for block in row_blocks(len(z))) / len(z)
    square = sum(np.square(z[block] - mean).sum(0) for block in row_blocks(len(z)))
    return np.asarray(mean), np.asarray(np.sqrt(square / len(z)))


def mean_square(z: Floats) -> float:
    """The mean of all squares, in double precision."""
    if not is_large(len(z)):
        return float(np.mean(np.square(z, dtype=np.float64)))
    return float(sum(np.square(z[block], dtype=np.float64).sum() for block in row_blocks(len(z))) / z.size)


@dataclass(frozen=True)
class Copies:
    """Copies of a sample, exact ones and near-duplicates, share one node of the graph: they never vote for
    each other, and models fitted to labels count them once.
    """

    first: Codes
    """The first row of each node, in input order, which represents the others."""
    node: Codes
    """The node of every row."""

    @classmethod
    def find(cls, z: Floats) -> "Copies":
        """Group the rows of `z` that are bitwise equal."""
        n = len(z)
        suspects = _equal_by_sum(z) if is_large(n) else np.arange(n)
        if len(suspects) == 0:
            return cls.none(n)
        some = z if len(suspects) == n else z[suspects]
        rows = np.ascontiguousarray(some + z.dtype.type(0))  # −0.0 and 0.0 are the same number
        _, first, node = np.unique(
            rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel(),
            return_index=True,
            return_inverse=True,
        )
        original = np.arange(n)
        original[suspects] = suspects[first[node.ravel()]]
        firsts, number = np.unique(original, return_inverse=True)
        return cls(firsts, number)

    @classmethod
    def none(cls, n: int) -> "Copies":
        """Every row is its own node."""
        return cls(np.arange(n), np.arange(n))

    @property
    def alone(self) -> bool:
        """Whether no row has a copy."""
        return len(self.first) == len(self.node)

    def join(self, group: Codes) -> "Copies":
        """Merge nodes; `group` holds the first node of each node's group."""
        first, node = np.unique(group, return_inverse=True)
        return Copies(self.first[first], node[self.node])

    def average(self, values: Array) -> Array:
        """The mean over the copies of each node."""
        if self.alone:
            return values
        total = np.zeros((len(self.first), values.shape[1]))
        np.add.at(total, self.node, values)
        return np.asarray(total / np.bincount(self.node)[:, None])

    def groups(self) -> pd.Series:
        """A group number from 1, in input order, for rows that have copies; missing for all others."""
        sizes = np.bincount(self.node)
        number = np.where(sizes > 1, (sizes > 1).cumsum(), 0)[self.node]
        return pd.Series(number, dtype="Int64").where(number > 0)

    def share_decisions(self, labels: Labels) -> Labels:
        """Extend a human decision on one copy to those that nobody reviewed."""
        if labels.decided is None:
            return labels
        found = self.one_each(labels).decided
        assert found is not None
        return replace(labels, decided=np.where(labels.decided < 0, found[self.node], labels.decided))

    def one_each(self, labels: Labels) -> Labels:
        """One label per node."""
        return labels.take(self.voices(labels.codes, labels.decided))

    def voices(self, codes: Codes, decided: Codes | None = None) -> Codes:
        """For each node, the row whose label counts: the first reviewed copy, else the first labeled one."""
        undecided = decided < 0 if decided is not None else np.ones(len(self.node), dtype=bool)
        order = np.lexsort((codes < 0, undecided, self.node))
        return np.asarray(order[np.searchsorted(self.node[order], np.arange(len(self.first)))])

    def spread_labels(self, labels: Codes, n_classes: int) -> Tensor:
        """Y of Eq. 2: a node's label, or the mix of its copies' labels; zeros if unlabeled."""
        Y = np.zeros((len(self.first), n_classes), dtype=np.float32)
        labeled = labels >= 0
        np.add.at(Y, (self.node[labeled], labels[labeled]), 1)
        total = Y.sum(1, keepdims=True)
        return torch.as_tensor(Y / np.maximum(total, 1))


class NodeGraph:
    """The graph of the nodes, for propagation: prepared once, and used for several sets of labels.

    γ = 1, both directions of an edge added, α = 0.5.
    """

    def __init__(self, S: Tensor, nearest: Codes, edges: Callable[[Tensor, Tensor], Edges]) -> None:
        self.S = S
        self.nearest = nearest
        """The nearest few neighbors of each node by similarity, then index; −1 if there are fewer."""
        self.edges = edges
        """The directed edges between marked nodes, at least those between nodes with the same label."""

    @classmethod
    def directed(cls, graph: Tensor) -> Self:
        """From a directed similarity graph."""
        S = normalize_graph(weight_graph(graph, gamma=1, symmetrize="sum"))
        return cls(S, nearest_nodes(graph), lambda marked, _: confident_edges(graph, marked))

    @classmethod
    def prefix(cls, neighbors: Neighbors, k: int) -> Self:
        """From the first `k` entries of longer neighbor lists."""
        first = Neighbors(*(part[:, :k] for part in neighbors))
        named = first.indices[:, :NAMED_NEIGHBORS].long().numpy()
        missing = ((0, 0), (0, NAMED_NEIGHBORS - named.shape[1]))
        nearest = np.pad(named, missing, constant_values=-1)
        return cls(symmetric_graph(first), nearest, lambda *of: _marked_edges(first.indices, *of))

    @cached_property
    def own(self) -> Tensor:
        """The self-influence of the nodes."""
        return self_influence_by_walks(self.S) if is_large(self.S.shape[0]) else self_influence(self.S)


@dataclass(frozen=True)
class Propagated:
    """One graph, and the labels propagated on it, one row per node."""

    k: int
    graph: NodeGraph
    evidence: Tensor
    """Leave-one-out: without the contribution of the node's own label; float64, of large sets float32."""

    def by_sample(self, copies: Copies) -> Tensor:
        """The evidence of every sample."""
        return self.evidence if copies.alone else self.evidence[torch.as_tensor(copies.node)]


def _equal_by_sum(z: Floats) -> Codes:
    """The rows of a large set that may have a copy: those with equal checksums."""
    words = np.dtype(f"u{z.dtype.itemsize}")
    odd = np.random.default_rng(0).integers(1, 2**62, z.shape[1]) * 2 + 1
    factors: npt.NDArray[Any] = np.asarray(odd, dtype=np.uint64)
    sums = np.empty(len(z), dtype=np.uint64)
    for block in row_blocks(len(z)):
        bits = np.ascontiguousarray(z[block] + z.dtype.type(0)).view(words).astype(np.uint64)
        mixed = (bits * factors) ^ ((bits * factors) >> np.uint64(29))
        sums[block] = (mixed * factors[::-1]).sum(1, dtype=np.uint64)
    order: Codes = np.argsort(sums, kind="stable")
    ranked: npt.NDArray[Any] = sums[order]
    same = ranked[1:] == ranked[:-1]
    again = np.append(same, False) | np.append(False, same)
    return np.sort(order[again])


def propagate_labels(graph: NodeGraph, Y: Tensor, k: int) -> Propagated:
    """Leave-one-out evidence.

    No class balance: it overestimates small classes if sizes differ, and has no effect if they are equal.
    """
    evidence = gather_evidence(graph.S, Y.to(graph.S.dtype), leave_one_out=True, own=graph.own)
    return Propagated(k, graph, evidence if is_large(len(Y)) else evidence.double())


def _marked_edges(indices: Tensor, marked: Tensor, labels: Tensor) -> Edges:
    """The entries of neighbor lists between marked nodes with the same label, by row, then column."""
    parts = []
    for block in row_blocks(len(indices)):
        names = indices[block].sort(1).values.long()
        together = marked[names] & marked[block].unsqueeze(1)
        together &= labels[names] == labels[block].unsqueeze(1)
        row, place = together.nonzero(as_tuple=True)
        kind = torch.int32 if is_large(len(indices)) else torch.int64
        parts.append(((row + block.start).to(kind), names[row, place].to(kind)))
    rows, columns = (torch.cat(part) for part in zip(*parts, strict=True))
    return rows, columns


def nearest_nodes(graph: Tensor) -> Codes:
    """The nearest few neighbors of each node of a directed graph."""
    n = graph.shape[0]
    indptr = graph.crow_indices().long().numpy()
    cols, values = graph.col_indices().long().numpy(), graph.values().numpy()
    rows = np.repeat(np.arange(n), np.diff(indptr))
    order = np.lexsort((cols, -values, rows))
    place = np.arange(len(order)) - indptr[rows]
    keep = place < NAMED_NEIGHBORS
    named = np.full((n, NAMED_NEIGHBORS), -1, dtype=np.int64)
    named[rows[keep], place[keep]] = cols[order][keep]
    return named


def class_signal(evidence: Array, labels: Codes) -> float:
    """How far the neighbors' majority agrees with the given labels beyond chance, in standard errors."""
    propagated = (labels >= 0) & (evidence.max(1) > 1 / evidence.shape[1] + 1e-9)
    if not propagated.any():
        return 0.0
    y, guess = labels[propagated], evidence[propagated].argmax(1)
    n_classes = evidence.shape[1]
    given, guessed = (np.bincount(part, minlength=n_classes) for part in (y, guess))
    n = len(y)
    chance = float(given @ guessed) / n**2
    # Mean and variance of the agreement when the labels are shuffled over the samples.
    away = np.eye(n_classes) - (given / n)[:, None] - (guessed / n)[None, :] + chance
    variance = float(guessed @ away**2 @ given) / max(n - 1, 1)
    return float((int((y == guess).sum()) - n * chance) / np.sqrt(variance)) if variance > 0 else 0.0
