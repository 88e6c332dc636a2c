"""Plain few-line versions of the paper's equations, dense and slow, that the package is tested against."""

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

Array = NDArray[np.float64]


def brute_neighbors(z: Array, k: int) -> NDArray[np.int64]:
    """Cosine neighbors by a full sort: by similarity, then index, self left out."""
    unit = z / np.linalg.norm(z, axis=1, keepdims=True)
    similarity = unit @ unit.T
    lists = []
    for i in range(len(z)):
        others = [j for j in range(len(z)) if j != i]
        others.sort(key=lambda j: (-similarity[i, j], j))
        lists.append(others[:k])
    return np.array(lists)


def dense_normalized(graph: Array, gamma: float, symmetrize: str) -> Array:
    """D^-½ W D^-½ of Eq. 1 and 2 for a dense matrix of directed similarities."""
    directed = np.clip(graph, 0, None) ** gamma * (graph != 0)
    W = np.maximum(directed, directed.T) if symmetrize == "max" else directed + directed.T
    degree = W.sum(1)
    scale = np.zeros_like(degree)
    scale[degree > 0] = degree[degree > 0] ** -0.5
    return scale[:, None] * W * scale[None, :]


def dense_soft(S: Array, Y: Array, alpha: float, class_balance: bool, leave_one_out: bool) -> Array:
    """Soft labels by a dense inverse."""
    if class_balance:
        Y = np.stack([column / column.sum() if column.sum() else column for column in Y.T], 1)
    M = np.linalg.inv(np.eye(len(S)) - alpha * S)
    soft = M @ Y if not leave_one_out else M @ Y - np.diag(M)[:, None] * Y
    soft = np.where(soft > 1e-12, soft, 0)
    rows = [row / row.sum() if row.sum() > 0 else np.full(len(row), 1 / len(row)) for row in soft]
    return np.array(rows)


def brute_selection(
    edges: NDArray[np.bool_], soft: Array, given: NDArray[np.int64], eta: float, mutual: bool
) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
    """Algorithm 1, one node and one class at a time: pseudo-labels, confident, selected."""
    n, n_classes = soft.shape
    labels, confident = np.zeros(n, int), np.zeros(n, bool)
    for i in range(n):
        if given[i] >= 0 and soft[i, given[i]] > 1 / n_classes + 1e-9:
            labels[i], confident[i] = given[i], True
        else:
            labels[i], confident[i] = soft[i].argmax(), soft[i].max() > eta
    linked = edges & edges.T if mutual else edges | edges.T
    selected = np.zeros(n, bool)
    for c in range(n_classes):
        nodes = np.flatnonzero(confident & (labels == c))
        if len(nodes) == 0:
            continue
        _, component = csgraph.connected_components(sparse.csr_array(linked[np.ix_(nodes, nodes)]))
        sizes = np.bincount(component)
        # Components are numbered by their lowest node, so argmax settles ties to the lowest index.
        selected[nodes[component == sizes.argmax()]] = True
    return labels, confident, selected
