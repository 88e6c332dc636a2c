import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphclean.graph import components
from graphclean.graph.components import components_by_jumping, connected_components


def lowest_of_component(rows: torch.Tensor, cols: torch.Tensor, n: int) -> list[int]:
    """A plain flood fill."""
    neighbors: list[set[int]] = [set() for _ in range(n)]
    for a, b in zip(rows.tolist(), cols.tolist(), strict=True):
        neighbors[a].add(b)
        neighbors[b].add(a)
    label = [-1] * n
    for start in range(n):
        stack = [start] if label[start] < 0 else []
        while stack:
            node = stack.pop()
            if label[node] < 0:
                label[node] = start
                stack.extend(neighbors[node])
    return label


@settings(max_examples=100, deadline=None)
@given(n=st.integers(1, 80), edges=st.integers(0, 120), seed=st.integers(0, 9999))
def test_both_algorithms_find_the_components(n: int, edges: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, cols = torch.as_tensor(rng.integers(0, n, (2, edges)))
    expected = lowest_of_component(rows, cols, n)
    assert connected_components(rows, cols, n).tolist() == expected
    assert components_by_jumping(rows, cols, n).tolist() == expected


@pytest.mark.parametrize("n", [10_000])
def test_long_chains_and_large_random_graphs_agree(n: int) -> None:
    rng = np.random.default_rng(0)
    order = torch.as_tensor(rng.permutation(n))
    chain = order[:-1], order[1:]
    assert (components_by_jumping(*chain, n) == 0).all()
    sparse_pairs = torch.as_tensor(rng.integers(0, n, (2, n // 2)))
    assert torch.equal(components_by_jumping(*sparse_pairs, n), connected_components(*sparse_pairs, n))


def test_edges_that_are_joined_in_parts_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, cols = torch.randint(0, 300, (2, 250), generator=torch.Generator().manual_seed(0))
    whole = connected_components(rows, cols, 300)
    monkeypatch.setattr(components, "JOINED_AT_ONCE", 40)
    assert torch.equal(connected_components(rows, cols, 300), whole)
    assert 50 < len(whole.unique()) < 300
