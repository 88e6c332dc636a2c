"""From embeddings to leave-one-out evidence of each sample's class."""

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ..graph import (
    Neighbors,
    gather_evidence,
    knn_graph,
    normalize_graph,
    weight_graph,
)
from .inputs import Array, Codes, Floats, Labels

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
        mean = z.mean(0, dtype=np.float64)
        deviation = z.std(0, dtype=np.float64)
        live = deviation > 8 * np.finfo(z.dtype).eps * np.maximum(np.abs(mean), 1e-30)
        scale: Floats = np.where(live, 1 / np.where(live, deviation, 1), 0)
        if z.dtype == np.float32:
            return cls(mean.astype(np.float32), scale.astype(np.float32))
        return cls(mean, scale)

    @classmethod
    def rescale_only(cls, z: Floats) -> "Standardizer":
        """Raw features up to one common scale, so that features with a larger variance have more weight."""
        size = float(np.sqrt(np.mean(np.square(z, dtype=np.float64))))
        return cls(np.zeros_like(z[0]), np.full_like(z[0], 1 / size))

    @property
    def double(self) -> bool:
        """Whether features need float64 because they are far from zero."""
        return self.mean.dtype == np.float64

    def __call__(self, z: Floats) -> Tensor:
        """Unit rows, as a tensor."""
        return torch.nn.functional.normalize(self.rescale(z), dim=1)

    def rescale(self, z: Floats) -> Tensor:
        """The first step alone: every feature to mean 0 and standard deviation 1, rows of any length."""
        return torch.as_tensor(((z - self.mean) * self.scale).astype(np.float32, copy=False))


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
        rows = np.ascontiguousarray(z + z.dtype.type(0))  # −0.0 and 0.0 are the same number
        _, first, node = np.unique(
            rows.view(np.dtype((np.void, rows.dtype.itemsize * rows.shape[1]))).ravel(),
            return_index=True,
            return_inverse=True,
        )
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        return cls(first[order].astype(np.int64), rank[node.ravel()].astype(np.int64))

    @classmethod
    def none(cls, n: int) -> "Copies":
        """Every row is its own node."""
        return cls(np.arange(n), np.arange(n))

    def join(self, group: Codes) -> "Copies":
        """Merge nodes; `group` holds the first node of each node's group."""
        first, node = np.unique(group, return_inverse=True)
        return Copies(self.first[first], node[self.node])

    def average(self, values: Array) -> Array:
        """The mean over the copies of each node."""
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


@dataclass(frozen=True)
class Propagated:
    """One graph, and the labels propagated on it, one row per node."""

    k: int
    graph: Tensor
    evidence: Tensor
    """Leave-one-out: without the contribution of the node's own label; float64."""

    def by_sample(self, copies: Copies) -> Tensor:
        """The evidence of every sample."""
        return self.evidence[torch.as_tensor(copies.node)]


def propagate_labels(graph: Tensor, Y: Tensor, k: int) -> Propagated:
    """Leave-one-out evidence on a directed similarity graph.

    γ = 1, both directions added, α = 0.5. No class balance: it overestimates small classes if sizes differ,
    and has no effect if they are equal.
    """
    S = normalize_graph(weight_graph(graph, gamma=1, symmetrize="sum"))
    return Propagated(k, graph, gather_evidence(S, Y.to(S.dtype), leave_one_out=True).double())


def prefix_graph(neighbors: Neighbors, k: int) -> Tensor:
    """The graph of the first `k` entries of longer neighbor lists."""
    return knn_graph(Neighbors(neighbors.indices[:, :k], neighbors.similarities[:, :k]))


def nearest_nodes(graph: Tensor) -> Codes:
    """The nearest few neighbors of each node by similarity, then index; −1 if there are fewer."""
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
