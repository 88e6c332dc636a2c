"""S = D^-½ (A + Aᵀ) D^-½ from neighbor lists, block by block: memory for S and little more."""

import torch
from scipy import sparse
from torch import Tensor

from .csr import row_sums
from .knn import Neighbors

EDGES_AT_ONCE = 2**23
"""Edges of A that are transposed at once; this does not affect the result."""


def symmetric_graph(neighbors: Neighbors) -> Tensor:
    """`normalize_graph` of `weight_graph` with γ = 1 and `symmetrize="sum"`, on the CPU."""
    n, k = neighbors.indices.shape
    step = max(1, EDGES_AT_ONCE // k)
    blocks = [(first, min(first + step, n)) for first in range(0, n, step)]
    counts, columns, values = [], [], []
    for first, last in blocks:
        both = _rows(neighbors, first, last)
        counts.append(torch.as_tensor(both.indptr).diff())
        columns.append(torch.as_tensor(both.indices).int())
        values.append(torch.as_tensor(both.data))
    indptr = torch.zeros(n + 1, dtype=torch.int64)
    torch.cumsum(_joined(counts), 0, out=indptr[1:])
    kind = torch.int32 if int(indptr[-1]) < 2**31 else torch.int64
    W = torch.sparse_csr_tensor(
        indptr.to(kind), _joined(columns).to(kind), _joined(values), (n, n), check_invariants=False
    )
    return _normalize(W, blocks)


def _rows(neighbors: Neighbors, first: int, last: int) -> sparse.csr_array:
    """The rows of A + Aᵀ from `first` to before `last`."""
    (n, k), (names, weights) = neighbors.indices.shape, neighbors
    shape = last - first, n
    own, ends = weights[first:last].clamp(min=0).flatten(), torch.arange(0, (last - first) * k + 1, k)
    # A copy, as it is sorted in place.
    parts = own.numpy(), names[first:last].flatten().clone().numpy(), ends.numpy()
    forth = sparse.csr_array(parts, shape=shape)
    row, place = ((names >= first) & (names < last)).nonzero(as_tuple=True)
    to, back_weights = names[row, place] - first, weights[row, place].clamp(min=0)
    back = sparse.coo_array((back_weights.numpy(), (to.numpy(), row.numpy())), shape=shape).tocsr()
    forth.sort_indices()
    back.sort_indices()
    both = sparse.csr_array(forth + back)
    both.sort_indices()
    both.eliminate_zeros()
    return both


def _joined(parts: list[Tensor]) -> Tensor:
    """All parts in one tensor; each is freed as soon as it was copied."""
    whole = torch.empty(sum(map(len, parts)), dtype=parts[0].dtype)
    at = 0
    while parts:
        part = parts.pop(0)
        whole[at : at + len(part)] = part
        at += len(part)
    return whole


def _normalize(W: Tensor, blocks: list[tuple[int, int]]) -> Tensor:
    """D^-½ W D^-½, in the place of W."""
    indptr, columns, values = W.crow_indices(), W.col_indices(), W.values()
    degree = row_sums(W, values)
    scale = torch.where(degree > 0, degree.rsqrt(), 0)
    for first, last in blocks:
        part = slice(int(indptr[first]), int(indptr[last]))
        counts = indptr[first : last + 1].long().diff()
        values[part] *= scale[first:last].repeat_interleave(counts)
        values[part] *= scale[columns[part]]
    return W
