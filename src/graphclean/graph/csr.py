"""The graph contract: a square torch CSR tensor whose row i lists the edges that leave node i.

Values are similarities or weights, columns are sorted within a row, and there are no self-loops. Functions
that take a graph also accept SciPy sparse matrices, so graphs built elsewhere work unchanged.
"""

import warnings
from typing import TypeAlias

import torch
from scipy import sparse
from torch import Tensor

# Torch says once a process that its CSR layout may still change, and that it does not check what it is given;
# the few calls used here are tested, and what comes from outside is checked in `as_csr`. Torch is heard out
# here: a filter that stays would be lost where others set theirs, as pytest does for every test.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", UserWarning)
    torch.sparse_csr_tensor([0, 1], [0], [1.0], (1, 1))

Graph: TypeAlias = Tensor | sparse.csr_array | sparse.csr_matrix


def from_edges(rows: Tensor, cols: Tensor, values: Tensor, n: int) -> Tensor:
    """Build a CSR graph of `n` nodes from edges already ordered by row, then by column."""
    indptr = torch.zeros(n + 1, dtype=torch.int64, device=rows.device)
    torch.cumsum(torch.bincount(rows, minlength=n), 0, out=indptr[1:])
    # 32-bit indices halve the memory traffic, and spare MKL a conversion at every product.
    kind = torch.int32 if len(cols) < 2**31 else torch.int64
    return torch.sparse_csr_tensor(indptr.to(kind), cols.to(kind), values, (n, n), check_invariants=False)


def as_csr(graph: Graph, *, device: torch.device | None = None) -> Tensor:
    """Convert a torch or SciPy sparse matrix to the contract: sorted, without self-loops; non-finite values
    are refused.
    """
    if isinstance(graph, Tensor):
        if graph.layout == torch.sparse_csr:
            places = torch.stack([edge_rows(graph), graph.col_indices().long()])
            graph = torch.sparse_coo_tensor(places, graph.values(), graph.shape, check_invariants=False)
        if graph.layout != torch.sparse_coo:
            raise ValueError(f"a graph is a sparse CSR matrix, not a tensor of layout {graph.layout}")
        coo = graph.coalesce()
        rows, cols, values = coo.indices()[0], coo.indices()[1], coo.values()
    elif sparse.issparse(graph):
        matrix = sparse.csr_array(graph)
        matrix.sum_duplicates()
        triples = matrix.tocoo()
        # A copy: the arrays may be read-only, which torch has no tensors for.
        rows, cols, values = (torch.tensor(part) for part in (triples.row, triples.col, triples.data))
        rows, cols = rows.long(), cols.long()
    else:
        raise TypeError(f"a graph is a torch or SciPy sparse matrix, not {type(graph).__name__}")
    if graph.shape[0] != graph.shape[1]:
        raise ValueError(f"a graph is square, this matrix is {graph.shape[0]} × {graph.shape[1]}")
    if not torch.isfinite(values).all():
        raise ValueError("the graph has weights that are NaN or infinite")
    keep = rows != cols
    device = device if device is not None else values.device
    rows, cols, values = (part[keep].to(device) for part in (rows, cols, values))
    return from_edges(rows, cols, values if values.is_floating_point() else values.float(), graph.shape[0])


def in_contract(graph: Graph) -> Tensor:
    """A torch CSR tensor unchanged (trusted, so that nothing is checked twice); anything else through
    `as_csr`.
    """
    return graph if isinstance(graph, Tensor) and graph.layout == torch.sparse_csr else as_csr(graph)


def to_scipy(graph: Tensor) -> sparse.csr_array:
    """The same graph as a SciPy CSR array (copied to the CPU if necessary)."""
    parts = (graph.values(), graph.col_indices(), graph.crow_indices())
    data, indices, indptr = (part.cpu().numpy() for part in parts)
    return sparse.csr_array((data, indices, indptr), shape=(graph.shape[0], graph.shape[1]))


def edge_rows(graph: Tensor) -> Tensor:
    """The row of every stored edge, in storage order."""
    indptr = graph.crow_indices().long()
    nodes = torch.arange(graph.shape[0], device=indptr.device)
    return torch.repeat_interleave(nodes, indptr.diff(), output_size=graph.col_indices().numel())


def row_sums(graph: Tensor, values: Tensor) -> Tensor:
    """Sum `values`, one per stored edge, over each row in a fixed order, so that runs are reproducible."""
    indptr = graph.crow_indices().long()
    return torch.segment_reduce(values, "sum", offsets=indptr, initial=0)
