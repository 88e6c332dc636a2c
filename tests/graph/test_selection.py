import numpy as np
import pytest
import torch

from graphclean.graph import (
    confident_edges,
    confident_labels,
    knn_graph,
    largest_components,
    mutual_edges,
    nearest_neighbors,
    to_scipy,
)
from graphclean.graph.selection import mutual_by_search
from tests.graph.oracles import brute_selection


def edges_of(pairs: list[tuple[int, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Undirected pairs as edges in both directions, ordered."""
    both = sorted([*pairs, *[(b, a) for a, b in pairs]])
    return torch.tensor([a for a, _ in both]), torch.tensor([b for _, b in both])


def test_given_label_stands_over_uniform_even_where_another_leads() -> None:
    soft = torch.tensor([[0.3, 0.5, 0.2], [0.5, 0.2, 0.3], [0.05, 0.05, 0.9], [0.9, 0.05, 0.05]])
    labels, confident = confident_labels(soft, torch.tensor([0, 2, 0, -1]), eta=0.8)
    assert labels.tolist() == [1, 0, 2, 0]
    assert confident.tolist() == [False, False, True, True]
    labels, confident = confident_labels(torch.tensor([[0.34, 0.5, 0.16]]), torch.tensor([0]), eta=0.8)
    assert (labels.tolist(), confident.tolist()) == ([0], [True])


def test_argmax_accepts_a_given_label_only_where_it_leads() -> None:
    soft = torch.tensor(
        [[0.34, 0.5, 0.16], [0.5, 0.34, 0.16], [0.05, 0.05, 0.9], [0.5, 0.3, 0.2], [0.9, 0.1, 0]]
    )
    labels, confident = confident_labels(soft, torch.tensor([0, 0, 0, -1, -1]), eta=0.8, accept="argmax")
    assert labels.tolist() == [1, 0, 2, 0, 0]
    assert confident.tolist() == [False, True, True, False, True]
    with pytest.raises(ValueError, match="accept must be one of uniform, argmax"):
        confident_labels(soft, torch.zeros(5).long(), eta=0.8, accept="largest")  # type: ignore[arg-type]


@pytest.mark.parametrize("n_classes", [2, 3, 7, 10, 1000])
@pytest.mark.parametrize("eta", [0.0, 0.8])
def test_a_uniform_row_is_never_confident(n_classes: int, eta: float) -> None:
    soft = torch.full((1, n_classes), 1.0)
    soft = soft / soft.sum(1, keepdim=True)
    assert not confident_labels(soft, torch.tensor([0]), eta=eta).confident.any()


def test_largest_component_per_class_with_ties_to_the_lowest_index() -> None:
    labels = torch.tensor([0, 0, 0, 1, 1, 1, 1, 0, 2])
    confident = torch.tensor([1, 1, 1, 1, 1, 1, 1, 1, 0], dtype=torch.bool)
    rows, cols = edges_of([(0, 1), (2, 7), (1, 3), (3, 4), (5, 6)])
    selected = largest_components(rows, cols, labels, confident, 4)
    # Class 0: {0, 1} ties with {2, 7}; class 1: {3, 4} with {5, 6}; class 2: none confident; class 3: empty.
    assert selected.nonzero().squeeze(1).tolist() == [0, 1, 3, 4]


def test_mutual_edges_need_both_directions() -> None:
    rows, cols = torch.tensor([0, 0, 1, 2]), torch.tensor([1, 2, 0, 1])
    nothing = torch.zeros(0, dtype=torch.int64)
    for find in (mutual_edges, mutual_by_search):
        assert [part.tolist() for part in find(rows, cols, 3)] == [[0, 1], [1, 0]]
        assert len(find(nothing, nothing, 3)[0]) == 0


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("mutual", [False, True])
def test_equals_a_node_by_node_selection(seed: int, mutual: bool) -> None:
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(50, 3, generator=generator, dtype=torch.float64)
    soft = torch.rand(50, 4, generator=generator, dtype=torch.float64).softmax(1) ** 3
    soft = soft / soft.sum(1, keepdim=True)
    given = torch.randint(-1, 4, (50,), generator=generator)
    graph = knn_graph(nearest_neighbors(z, 3))
    labels, confident = confident_labels(soft, given, eta=0.4)
    rows, cols = confident_edges(graph, confident)
    if mutual:
        searched = mutual_by_search(rows, cols, 50)
        rows, cols = mutual_edges(rows, cols, 50)
        assert torch.equal(torch.stack(searched), torch.stack((rows, cols)))
    selected = largest_components(rows, cols, labels, confident, 4)
    expected = brute_selection(to_scipy(graph).toarray() != 0, soft.numpy(), given.numpy(), 0.4, mutual)
    for found, wanted in zip((labels, confident, selected), expected, strict=True):
        np.testing.assert_array_equal(found.numpy(), wanted)
