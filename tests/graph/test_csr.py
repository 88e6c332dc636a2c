import numpy as np
import pytest
import torch
from scipy import sparse

from graphclean.graph import as_csr, to_scipy

DENSE = np.array([[0, 0.5, 0.2], [0.1, 0, 0], [0, 0.3, 0]])


def unsorted_csr() -> torch.Tensor:
    """DENSE with its first row stored backwards."""
    indptr, indices = torch.tensor([0, 2, 3, 4]), torch.tensor([2, 1, 0, 1])
    return torch.sparse_csr_tensor(
        indptr, indices, torch.tensor([0.2, 0.5, 0.1, 0.3], dtype=torch.float64), (3, 3)
    )


@pytest.mark.parametrize(
    "graph",
    [
        sparse.csr_array(DENSE),
        sparse.csr_matrix(DENSE + 7 * np.eye(3)),  # self-loops are dropped
        sparse.coo_array(DENSE),
        torch.as_tensor(DENSE).to_sparse(),
        unsorted_csr(),
    ],
    ids=["array", "self-loops", "coo", "torch-coo", "torch-csr-unsorted"],
)
def test_every_kind_becomes_the_same_sorted_csr(graph: object) -> None:
    found = as_csr(graph)  # type: ignore[arg-type]
    assert found.layout == torch.sparse_csr
    assert found.col_indices().tolist() == [1, 2, 0, 1]
    np.testing.assert_array_equal(to_scipy(found).toarray(), DENSE)


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (torch.eye(3), "not a tensor of layout"),
        (sparse.csr_array(np.ones((2, 3))), "a graph is square, this matrix is 2 × 3"),
        (sparse.csr_array(np.array([[0, np.nan], [1, 0]])), "NaN or infinite"),
    ],
)
def test_what_is_no_graph_is_refused(graph: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        as_csr(graph)  # type: ignore[arg-type]


def test_arrays_are_not_graphs() -> None:
    with pytest.raises(TypeError, match="not ndarray"):
        as_csr(np.eye(3))  # type: ignore[arg-type]
