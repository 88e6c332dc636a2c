"""Eq. 3 and 4 of the paper: confident nodes, then each class's largest connected component among them."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..config.settings import Accept, LccEdges
from ..errors import check_choice
from .acceptance import find_mistaken
from .components import connected_components
from .csr import Graph, edge_rows, from_edges, in_contract, to_scipy

COMPARED_AT_ONCE = 2**23
"""Edges whose ends are compared at once on a CPU."""


class Confident(NamedTuple):
    """Eq. 3: a hard pseudo-label for every node, and whether the node is confident."""

    labels: Tensor
    confident: Tensor


def confident_labels(soft: Tensor, given: Tensor, *, eta: float, accept: Accept = "uniform") -> Confident:
    """Eq. 3: keep the given label if its share exceeds 1/K; otherwise the largest share must exceed η.

    With `accept="argmax"` the given label is kept only if its share is the largest: many wrong labels exceed
    1/K if noise is class-dependent or if most labels are wrong. With `accept="auto"` it is kept above 1/K
    unless a class that is often mistaken for it is more likely (see `acceptance`), and always if it is the
    largest. A given label below 0 means unlabeled: only the second rule applies. A row without a leading
    class (no evidence: uniform) is never confident.
    """
    check_choice("accept", accept, Accept)
    over = _uniform(soft)
    top, argmax = soft.max(1)
    own = soft.gather(1, given.clamp(min=0).unsqueeze(1)).squeeze(1)
    stands = (given >= 0) & (own > over)
    if accept == "argmax":
        stands &= argmax == given
    elif accept == "auto":
        stands &= (argmax == given) | ~find_mistaken(soft, given)
    return Confident(torch.where(stands, given, argmax), stands | (top > max(eta, over)))


def _uniform(soft: Tensor) -> float:
    """Slightly above 1/K: a uniform row equals 1/K up to rounding and must not count as above."""
    return (1 + 8 * torch.finfo(soft.dtype).eps) / soft.shape[1]


def confident_edges(graph: Graph, confident: Tensor) -> tuple[Tensor, Tensor]:
    """The edges of a directed graph between two confident nodes, ordered by row, then column."""
    graph = in_contract(graph).to(confident.device)
    rows, cols = edge_rows(graph), graph.col_indices().long()
    keep = confident[rows] & confident[cols]
    return rows[keep], cols[keep]


def mutual_edges(rows: Tensor, cols: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Edges (ordered by row, then column) whose reverse is also present."""
    if rows.device.type == "cpu":
        ones = torch.ones(len(rows), dtype=torch.bool)
        edges = to_scipy(from_edges(rows, cols, ones, n))
        both = edges.multiply(edges.T).tocoo()
        return torch.as_tensor(both.row).long(), torch.as_tensor(both.col).long()
    return mutual_by_search(rows, cols, n)


def mutual_by_search(rows: Tensor, cols: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """The same for any device: look up every reversed edge among the edges."""
    keys, reverse = rows * n + cols, cols * n + rows
    at = torch.searchsorted(keys, reverse).clamp_(max=max(len(keys) - 1, 0))
    mutual = keys[at] == reverse
    return rows[mutual], cols[mutual]


def largest_components(
    rows: Tensor, cols: Tensor, labels: Tensor, confident: Tensor, n_classes: int
) -> Tensor:
    """Eq. 4: the largest connected component of each class's confident nodes; ties go to the lowest index.

    `rows` and `cols` are edges between confident nodes. A class without confident nodes selects nothing.
    """
    n = len(labels)
    if rows.device.type == "cpu":
        ends = zip(torch.split(rows, COMPARED_AT_ONCE), torch.split(cols, COMPARED_AT_ONCE), strict=True)
        same = torch.cat([labels[source] == labels[target] for source, target in ends])
        if not bool(same.all()):
            rows, cols = rows[same], cols[same]
    else:
        same = labels[rows] == labels[cols]
        rows, cols = rows[same], cols[same]
    root = connected_components(rows, cols, n)
    size = torch.bincount(root, minlength=n)[root]
    # Larger components first, then lower roots: one number to compare.
    rank = torch.where(confident, size * n + (n - 1 - root), -1)
    best = torch.full((n_classes,), -1, device=labels.device).scatter_reduce(0, labels, rank, "amax")
    return confident & (rank == best[labels])


def select_components(
    rows: Tensor, cols: Tensor, labels: Tensor, confident: Tensor, n_classes: int, edges: LccEdges
) -> Tensor:
    """Geometry selection: the largest components, by all edges between confident nodes or by mutual ones."""
    check_choice("edges", edges, LccEdges)
    if edges == "mutual":
        rows, cols = mutual_edges(rows, cols, len(labels))
    return largest_components(rows, cols, labels, confident, n_classes)
