import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphclean.graph import knn, knn_graph, nearest_neighbors, to_scipy
from graphclean.graph.knn import GROUP, _largest
from tests.graph.oracles import brute_neighbors


def points(n: int, d: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@settings(max_examples=30, deadline=None)
@given(n=st.integers(2, 60), d=st.integers(2, 9), k=st.integers(1, 70), seed=st.integers(0, 999))
def test_equals_a_full_sort(n: int, d: int, k: int, seed: int) -> None:
    z = points(n, d, seed)
    found = nearest_neighbors(z, k)
    assert found.indices.shape == (n, min(k, n - 1))
    np.testing.assert_array_equal(found.indices.numpy(), brute_neighbors(z.numpy(), k))
    unit = torch.nn.functional.normalize(z, dim=1)
    torch.testing.assert_close(found.similarities, (unit @ unit.T).gather(1, found.indices))


@pytest.mark.parametrize("tile_bytes", [1, 9000, 40_000])
def test_tiles_do_not_change_the_result(tile_bytes: int) -> None:
    z = points(500, 8).round(decimals=1)[torch.arange(500) % 250]  # every point twice
    whole, tiled = nearest_neighbors(z, 7), nearest_neighbors(z, 7, tile_bytes=tile_bytes)
    torch.testing.assert_close(tiled.similarities, whole.similarities)
    apart = whole.similarities.diff(dim=1).abs().amin(1) > 1e-9
    torch.testing.assert_close(tiled.indices[apart], whole.indices[apart])


def test_identical_points_are_listed_by_index_without_self() -> None:
    found = nearest_neighbors(torch.ones(6, 3), 3)
    expected = [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2], [0, 1, 2], [0, 1, 2]]
    assert found.indices.tolist() == expected


def test_ties_at_the_cut_go_to_the_lowest_index() -> None:
    z = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0], [0.0, -1.0]])
    assert nearest_neighbors(z, 2).indices[0].tolist() == [1, 2]
    assert nearest_neighbors(z, 2, tile_bytes=1).indices[0].tolist() == [1, 2]


def test_queries_may_be_neighbors_of_their_own_copy() -> None:
    z = points(20, 4)
    found = nearest_neighbors(z, 50, queries=z[3:5])
    assert found.indices.shape == (2, 20)
    assert found.indices[:, 0].tolist() == [3, 4]


def test_one_point_has_no_neighbors() -> None:
    with pytest.raises(ValueError, match="no neighbors among 1 points"):
        nearest_neighbors(torch.ones(1, 2), 1)


def test_progress_reaches_the_total() -> None:
    calls: list[tuple[int, int]] = []
    nearest_neighbors(points(300, 4), 3, tile_bytes=1, progress=lambda done, n: calls.append((done, n)))
    assert len(calls) > 1
    assert calls[-1] == (300, 300)


def test_graph_is_sorted_csr_of_the_lists() -> None:
    found = nearest_neighbors(points(30, 4), 5)
    matrix = to_scipy(knn_graph(found))
    assert matrix.has_sorted_indices or bool((np.diff(matrix.indices.reshape(30, 5), axis=1) > 0).all())
    for i in range(30):
        assert set(matrix[[i]].indices) == set(found.indices[i].tolist())
    assert matrix[2, int(found.indices[2, 0])] == pytest.approx(float(found.similarities[2, 0]))


def test_wide_rows_in_two_steps_equal_one() -> None:
    tile = points(40, 7, seed=3).flatten().repeat(6).reshape(3, 560)
    tile = torch.cat([tile, points(3, 6000, seed=4)], 1)  # ties, and a rest that fills no group
    values, indices = _largest(tile, 8)
    assert tile.shape[1] // GROUP >= 32
    torch.testing.assert_close(values, tile.topk(8, dim=1).values)
    torch.testing.assert_close(tile.gather(1, indices), values)


def test_large_sets_equal_a_full_sort() -> None:
    z = points(9000, 6, seed=5)
    found = nearest_neighbors(z, 4, queries=z[:50])
    unit = torch.nn.functional.normalize(z, dim=1)
    ranked = (unit[:50] @ unit.T).sort(dim=1, descending=True, stable=True)
    assert torch.equal(found.indices, ranked.indices[:, :4])


@pytest.mark.parametrize("own", [True, False])
def test_streamed_tiles_give_what_plain_tiles_do(monkeypatch: pytest.MonkeyPatch, own: bool) -> None:
    """Also with duplicates, whose ties are ordered by index."""
    z = torch.randn(700, 6, generator=torch.Generator().manual_seed(0))
    z[500:600] = z[:100]
    z[600:] = z[7]
    queries = None if own else z[::3] + 0.01
    plain = nearest_neighbors(z, 9, queries=queries, tile_bytes=2**26)
    monkeypatch.setattr(knn, "STREAMED", 100)
    monkeypatch.setattr(knn, "STREAM_ROWS", 130)
    monkeypatch.setattr(knn, "STREAM_COLUMNS", 150)
    streamed = nearest_neighbors(z, 9, queries=queries)
    torch.testing.assert_close(streamed.similarities, plain.similarities)
    assert torch.equal(streamed.indices, plain.indices)
