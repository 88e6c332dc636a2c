import pytest
import torch

from graphclean.graph import (
    Neighbors,
    knn_graph,
    nearest_neighbors,
    normalize_graph,
    propagation,
    symmetric,
    weight_graph,
)
from graphclean.graph.propagation import self_influence, self_influence_by_walks
from graphclean.graph.symmetric import symmetric_graph


def lists(n: int, k: int) -> Neighbors:
    """Neighbors of points with and without clusters; far ones have negative similarities."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(n, 5, generator=generator)
    z[: n // 2] += 2
    return nearest_neighbors(z, k)


@pytest.mark.parametrize("edges", [2**25, 100])
@pytest.mark.parametrize("k", [3, 40])
def test_equals_the_graph_built_in_one_piece(monkeypatch: pytest.MonkeyPatch, edges: int, k: int) -> None:
    monkeypatch.setattr(symmetric, "EDGES_AT_ONCE", edges)
    found = lists(60, k)
    expected = normalize_graph(weight_graph(knn_graph(found), symmetrize="sum"))
    for kind in (torch.int64, torch.int32):
        S = symmetric_graph(Neighbors(found.indices.to(kind), found.similarities))
        assert torch.equal(S.crow_indices(), expected.crow_indices())
        assert torch.equal(S.col_indices(), expected.col_indices())
        assert torch.equal(S.values(), expected.values())


def test_walks_find_the_self_influence_of_the_whole_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the dense inverse on the probes, by `self_influence` elsewhere."""
    monkeypatch.setattr(propagation, "SUMMED_AT_ONCE", 150)
    S = symmetric_graph(lists(400, 10))
    found = self_influence_by_walks(S)
    exact = torch.linalg.inv(torch.eye(400) - 0.5 * S.to_dense()).diagonal()
    probes = torch.linspace(0, 399, propagation.PROBES, dtype=torch.float64).round().long()
    torch.testing.assert_close(found[probes] - 1, exact[probes] - 1, rtol=0.03, atol=0)
    torch.testing.assert_close(found - 1, self_influence(S) - 1, rtol=0.03, atol=0)
