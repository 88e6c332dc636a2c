"""Connected components: SciPy on the CPU, min-label propagation with pointer jumping on CUDA."""

import torch
from scipy import sparse
from scipy.sparse import csgraph
from torch import Tensor

JOINED_AT_ONCE = 2**23
"""Edges that are joined at once on a CPU; this does not affect the result."""


def connected_components(rows: Tensor, cols: Tensor, n: int) -> Tensor:
    """Label each of `n` nodes with the lowest index in its component; edges are undirected."""
    if rows.device.type == "cpu":
        return _components_scipy(rows, cols, n)
    return components_by_jumping(rows, cols, n)


def components_by_jumping(rows: Tensor, cols: Tensor, n: int) -> Tensor:
    """The parallel algorithm, for any device: every node follows a parent pointer to a lower index.

    Each round offers both ends of an edge, and their parents, the grandparent of the other end, then halves
    all chains by pointer jumping. Pointers never leave a component, so the algorithm ends with every pointer
    at the lowest index of its component.
    """
    source, target = torch.cat([rows, cols]), torch.cat([cols, rows])
    parent = torch.arange(n, device=rows.device)
    while True:
        grand = parent[parent]
        offer = grand[target]
        lower = parent.scatter_reduce(0, parent[source], offer, "amin")
        lower = lower.scatter_reduce(0, source, offer, "amin").minimum(grand)
        if torch.equal(lower, parent):
            return parent
        parent = lower


def _components_scipy(rows: Tensor, cols: Tensor, n: int) -> Tensor:
    root = torch.arange(n)
    for start in range(0, max(len(rows), 1), JOINED_AT_ONCE):
        # The first edges join most nodes, so that few of the others are left.
        ends = (root[part[start : start + JOINED_AT_ONCE]] for part in (rows, cols))
        source, target = ends if start == 0 else _different(*ends)
        ones = torch.ones(len(source), dtype=torch.bool).numpy()
        matrix = sparse.coo_array((ones, (source.numpy(), target.numpy())), shape=(n, n)).tocsr()
        count, labels = csgraph.connected_components(matrix, directed=False)
        component = torch.as_tensor(labels).long()
        lowest = torch.full((count,), n).scatter_reduce(0, component, torch.arange(n), "amin")
        root = lowest[component][root]
    return root


def _different(source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    apart = source != target
    return source[apart], target[apart]
