import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.sparse import csgraph

from graphclean.config import GraphSettings
from graphclean.graph import (
    GraphCleaner,
    knn_graph,
    nearest_neighbors,
    to_scipy,
    weight_graph,
)
from graphclean.graph.selection import confident_edges, select_components
from tests.builders import assert_same_tensors
from tests.graph.oracles import brute_neighbors, brute_selection, dense_normalized, dense_soft

PAPER = GraphSettings(k=4, gamma=1, symmetrize="max", class_balance=False, lcc_edges="any", eta=0.6)
RELEASE = GraphSettings(k=4, eta=0.6)
STRICT = GraphSettings(k=4, eta=0.9, leave_one_out=True)


def blobs(n: int, n_classes: int, noise: float, seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Clustered points, their noisy labels, and logits that point to the true class."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.arange(n) % n_classes
    centers = torch.randn(n_classes, 5, generator=generator, dtype=torch.float64) * 2
    z = centers[truth] + torch.randn(n, 5, generator=generator, dtype=torch.float64)
    wrong = torch.rand(n, generator=generator) < noise
    labels = torch.where(wrong, torch.randint(0, n_classes, (n,), generator=generator), truth)
    logits = torch.nn.functional.one_hot(truth, n_classes) + torch.randn(n, n_classes, generator=generator)
    return z, labels, logits


def brute_ngc(
    z: np.ndarray, given: np.ndarray, logits: list[np.ndarray], n_classes: int, s: GraphSettings
) -> list[tuple[np.ndarray, ...]]:
    """The whole graph step of every epoch, dense and in a few lines."""
    n, ensemble, previous, epochs = len(z), np.zeros((len(z), n_classes)), None, []
    unit = z / np.linalg.norm(z, axis=1, keepdims=True)
    edges = np.zeros((n, n), bool)
    np.put_along_axis(edges, brute_neighbors(z, s.k), True, axis=1)
    S = dense_normalized(np.where(edges, unit @ unit.T, 0), s.gamma, s.symmetrize)
    for epoch, raw in enumerate(logits):
        ensemble = s.ensemble * ensemble + (1 - s.ensemble) * raw
        T = ensemble / (1 - s.ensemble ** (epoch + 1))
        p = np.exp(T) / np.exp(T).sum(1, keepdims=True)
        if previous is None:
            Y = np.eye(n_classes)[given]
        else:
            Y = np.where(previous[2][:, None], np.eye(n_classes)[previous[0]], p)
        soft = dense_soft(S, Y, s.alpha, s.class_balance, s.leave_one_out)
        previous = brute_selection(edges, soft, given, s.eta, s.lcc_edges == "mutual")
        epochs.append((*previous, soft))
    return epochs


@pytest.mark.parametrize("base", [PAPER, RELEASE], ids=["paper", "release"])
@pytest.mark.parametrize("seed", range(4))
def test_equals_a_brute_force_ngc_over_epochs(base: GraphSettings, seed: int) -> None:
    z, labels, logits = blobs(50, 4, 0.4, seed)
    per_epoch = [logits * scale for scale in (0.5, 1.0, 3.0)]
    cleaner = GraphCleaner(labels, 4, base)
    expected = brute_ngc(z.numpy(), labels.numpy(), [x.double().numpy() for x in per_epoch], 4, base)
    for raw, (wanted_labels, wanted_confident, wanted_selected, soft) in zip(
        per_epoch, expected, strict=True
    ):
        cleaned = cleaner.step(z, raw)
        np.testing.assert_allclose(cleaned.soft_labels.numpy(), soft, atol=2e-5)
        np.testing.assert_array_equal(cleaned.labels.numpy(), wanted_labels)
        np.testing.assert_array_equal(cleaned.confident.numpy(), wanted_confident)
        np.testing.assert_array_equal(cleaned.selected.numpy(), wanted_selected)


def test_excluded_nodes_are_not_confident_and_connect_nothing() -> None:
    z, labels, logits = blobs(50, 4, 0.4, 1)
    excluded = torch.zeros(len(labels), dtype=torch.bool)
    excluded[::3] = True
    free = GraphCleaner(labels, 4, RELEASE).step(z, logits)
    cleaner = GraphCleaner(labels, 4, RELEASE)
    cleaned = cleaner.step(z, logits, excluded=excluded)
    assert torch.equal(cleaned.soft_labels, free.soft_labels)
    assert torch.equal(cleaned.labels, free.labels)
    assert torch.equal(cleaned.confident, free.confident & ~excluded)
    assert free.selected[excluded].any()
    assert not cleaned.selected[excluded].any()
    assert not cleaned.degrees[excluded].any()
    graph = knn_graph(nearest_neighbors(z, RELEASE.k))
    expected = select_components(
        *confident_edges(graph, cleaned.confident), cleaned.labels, cleaned.confident, 4, RELEASE.lcc_edges
    )
    assert torch.equal(cleaned.selected, expected)
    assert torch.equal(cleaner.selected, cleaned.selected)


def test_degrees_count_edges_between_confident_nodes() -> None:
    z, labels, logits = blobs(50, 4, 0.4, 1)
    cleaned = GraphCleaner(labels, 4, RELEASE).step(z, logits)
    edges = to_scipy(knn_graph(nearest_neighbors(z, 4))).toarray() != 0
    confident = cleaned.confident.numpy()
    expected = [
        sum(int(edges[i, j]) + int(edges[j, i]) for j in range(50) if confident[i] and confident[j])
        for i in range(50)
    ]
    assert cleaned.degrees.tolist() == expected


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 999),
    n=st.integers(4, 32),
    n_classes=st.integers(2, 5),
    leave_one_out=st.booleans(),
    lcc_edges=st.sampled_from(["any", "mutual"]),
)
def test_properties(seed: int, n: int, n_classes: int, leave_one_out: bool, lcc_edges: str) -> None:
    z, labels, logits = blobs(n, n_classes, 0.5, seed)
    chosen = dataclasses.replace(RELEASE, leave_one_out=leave_one_out, lcc_edges=lcc_edges)
    first = GraphCleaner(labels, n_classes, chosen).step(z, logits)
    assert (first.confident | ~first.selected).all()
    torch.testing.assert_close(first.soft_labels.sum(1), torch.ones(n, dtype=torch.float64))
    edges = to_scipy(knn_graph(nearest_neighbors(z, 4))).toarray() != 0
    for c in range(n_classes):
        nodes = (first.selected & (first.labels == c)).nonzero().squeeze(1).numpy()
        if len(nodes):
            part = sparse.csr_array((edges | edges.T)[np.ix_(nodes, nodes)])
            assert csgraph.connected_components(part)[0] == 1
    order = torch.as_tensor(np.random.default_rng(seed).permutation(n))
    shuffled = GraphCleaner(labels[order], n_classes, chosen).step(z[order], logits[order])
    torch.testing.assert_close(shuffled.soft_labels, first.soft_labels[order], atol=1e-6, rtol=0)
    sizes = [torch.bincount(x.labels[x.selected], minlength=n_classes) for x in (first, shuffled)]
    assert torch.equal(*sizes)


@pytest.mark.parametrize("n_classes", [2, 1000])
def test_few_and_many_classes_clean_well_separated_clusters(n_classes: int) -> None:
    generator = torch.Generator().manual_seed(0)
    truth = torch.arange(4 * n_classes) % n_classes if n_classes > 2 else torch.arange(60) % 2
    z = torch.randn(n_classes, 32, generator=generator)[truth] + 0.01 * torch.randn(
        len(truth), 32, generator=generator
    )
    labels = truth.clone()
    labels[0] = 1
    settings = GraphSettings(k=3, leave_one_out=True, lcc_edges="any")
    cleaned = GraphCleaner(labels, n_classes, settings).step(z, torch.zeros(len(truth), n_classes))
    assert cleaned.labels[0] == 0
    assert cleaned.selected.float().mean() > 0.9
    assert torch.equal(cleaned.labels[cleaned.selected], truth[cleaned.selected])


def test_accepts_a_graph_in_place_of_embeddings() -> None:
    z, labels, logits = blobs(50, 4, 0.4, 2)
    graph = knn_graph(nearest_neighbors(z, 4))
    results = [
        GraphCleaner(labels, 4, RELEASE).step(*args, graph=g)
        for args, g in [((z, logits), None), ((None, logits), graph), ((None, logits), to_scipy(graph))]
    ]
    for other in results[1:]:
        assert_same_tensors(results[0], other)


def test_state_carries_over() -> None:
    z, labels, logits = blobs(50, 4, 0.4, 3)
    straight = GraphCleaner(labels, 4, RELEASE)
    straight.step(z, logits)
    resumed = GraphCleaner(labels, 4, RELEASE)
    resumed.load_state_dict(straight.state_dict())
    assert_same_tensors(straight.step(z, 2 * logits), resumed.step(z, 2 * logits))
    with pytest.raises(ValueError, match="other settings: eta, k"):
        GraphCleaner(labels, 4, GraphSettings(eta=0.5)).load_state_dict(straight.state_dict())
    with pytest.raises(ValueError, match="other labels"):
        GraphCleaner((labels + 1) % 4, 4, RELEASE).load_state_dict(straight.state_dict())
    with pytest.raises(ValueError, match="with 4 classes, not 5"):
        GraphCleaner(labels, 5, RELEASE).load_state_dict(straight.state_dict())
    with pytest.raises(ValueError, match="not the state of a GraphCleaner: there is no epoch in it"):
        GraphCleaner(labels, 4, RELEASE).load_state_dict({"model": {}})


@pytest.mark.parametrize(
    ("z", "labels"),
    [
        (torch.ones(9, 3), torch.arange(9) % 3),  # all points identical
        (torch.eye(6), torch.arange(6) % 3),  # all points orthogonal: no edge weighs anything
        (torch.randn(3, 2, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 1])),  # N <= k
        (torch.randn(9, 2, generator=torch.Generator().manual_seed(0)), torch.full((9,), -1)),  # no labels
        (torch.randn(9, 2, generator=torch.Generator().manual_seed(0)), torch.full((9,), 2)),  # empty classes
    ],
)
@pytest.mark.parametrize("leave_one_out", [False, True])
def test_odd_inputs_give_finite_rows_that_sum_to_one(
    z: torch.Tensor, labels: torch.Tensor, leave_one_out: bool
) -> None:
    cleaner = GraphCleaner(labels, 3, GraphSettings(k=5, leave_one_out=leave_one_out))
    for _ in range(2):
        cleaned = cleaner.step(z, torch.zeros(len(z), 3))
        torch.testing.assert_close(cleaned.soft_labels.sum(1), torch.ones(len(z)))
        assert (cleaned.confident | ~cleaned.selected).all()


def test_half_precision_and_gradients_are_taken() -> None:
    z, labels, logits = blobs(50, 4, 0.4, 2)
    half = z.to(torch.bfloat16).requires_grad_()
    cleaned = GraphCleaner(labels, 4, RELEASE).step(half, logits)
    assert_same_tensors(cleaned, GraphCleaner(labels, 4, RELEASE).step(half.detach().float(), logits))


def test_a_step_within_autocast_is_the_same() -> None:
    z, labels, logits = blobs(50, 4, 0.4, 2)
    z = z.float()
    with torch.autocast("cpu", torch.bfloat16):
        cleaned = GraphCleaner(labels, 4, RELEASE).step(z, logits)
    assert_same_tensors(cleaned, GraphCleaner(labels, 4, RELEASE).step(z, logits))


@pytest.mark.parametrize("shape", [(9,), (3,), (9, 1), (1, 3), (9, 4), (8, 3)])
def test_logits_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    """Some would be taken for those of every sample, or of every class."""
    with pytest.raises(ValueError, match=r"logits are of shape .*, not \(9, 3\): samples, classes"):
        GraphCleaner(torch.arange(9) % 3, 3).step(torch.randn(9, 2), torch.zeros(shape))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["z", "logits"])
def test_what_is_no_number_is_refused_and_leaves_no_trace(name: str, bad: float) -> None:
    z, labels, logits = blobs(50, 4, 0.4, 2)
    cleaner = GraphCleaner(labels, 4, RELEASE)
    spoiled = {"z": z.clone(), "logits": logits.clone()}
    spoiled[name][7, 1] = bad
    with pytest.raises(ValueError, match=f"{name} holds NaN or infinite values"):
        cleaner.step(**spoiled)
    assert cleaner.epoch == 0
    assert_same_tensors(cleaner.step(z, logits), GraphCleaner(labels, 4, RELEASE).step(z, logits))


def test_what_a_loop_writes_into_labels_or_results_changes_nothing() -> None:
    z, labels, logits = blobs(50, 4, 0.4, 2)
    mine, theirs = labels.clone(), GraphCleaner(labels, 4, RELEASE)
    cleaner = GraphCleaner(mine, 4, RELEASE)
    theirs.step(z, logits)
    first = cleaner.step(z, logits)
    mine[first.selected] = first.labels[first.selected]
    first.labels.zero_()
    first.selected.zero_()
    assert_same_tensors(cleaner.step(z, logits), theirs.step(z, logits))


def test_without_noise_correction_the_start_itself_is_judged() -> None:
    z, given, logits = blobs(50, 4, 0.4, 2)
    given[:5] = -1
    cleaner = GraphCleaner(given, 4, dataclasses.replace(RELEASE, correct=False))
    first = cleaner.step(z, logits)
    one_hot = torch.nn.functional.one_hot(given.clamp(min=0), 4).float()
    one_hot[:5] = 0.25
    assert torch.equal(first.soft_labels, one_hot)
    assert torch.equal(first.confident, given >= 0)
    assert torch.equal(first.labels[5:], given[5:])
    second = cleaner.step(z, logits)
    chosen = first.selected
    assert 0 < chosen.sum() < 45
    assert torch.equal(second.soft_labels[chosen], one_hot[chosen])
    # The same logits twice: their temporal ensemble is the logits themselves.
    torch.testing.assert_close(second.soft_labels[~chosen], logits.softmax(1)[~chosen])


def test_without_confidence_selection_every_node_stays_in_the_graph() -> None:
    z, given, logits = blobs(50, 4, 0.4, 3)
    plain = GraphCleaner(given, 4, STRICT).step(z, logits)
    without = GraphCleaner(given, 4, dataclasses.replace(STRICT, confidence=False)).step(z, logits)
    assert not plain.confident.all()
    assert without.confident.all()
    assert torch.equal(without.labels, plain.labels)
    edges = to_scipy(knn_graph(nearest_neighbors(z, 4))).toarray() != 0
    assert without.degrees.tolist() == (edges.sum(0) + edges.sum(1)).tolist()
    mutual = edges & edges.T
    for c in range(4):
        nodes = np.flatnonzero(without.labels.numpy() == c)
        _, part = csgraph.connected_components(sparse.csr_array(mutual[np.ix_(nodes, nodes)]))
        assert without.selected.numpy()[nodes].tolist() == (part == np.bincount(part).argmax()).tolist()


def test_without_geometry_selection_all_that_is_confident_is_selected() -> None:
    z, given, logits = blobs(50, 4, 0.4, 3)
    plain = GraphCleaner(given, 4, STRICT).step(z, logits)
    without = GraphCleaner(given, 4, dataclasses.replace(STRICT, geometry=False)).step(z, logits)
    assert torch.equal(without.confident, plain.confident)
    assert torch.equal(without.selected, plain.confident)
    assert not torch.equal(plain.selected, plain.confident)


def test_wrong_sizes_and_labels_are_refused() -> None:
    with pytest.raises(ValueError, match="symmetrize must be one of max, sum"):
        GraphSettings(symmetrize="mean")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="label 3 is outside the 3 classes"):
        GraphCleaner(torch.tensor([0, 3]), 3)
    with pytest.raises(ValueError, match="5 nodes for 4 labels"):
        GraphCleaner(torch.zeros(4, dtype=torch.int64), 2).step(torch.eye(5), torch.zeros(4, 2))
    with pytest.raises(ValueError, match="needs embeddings z or a graph"):
        GraphCleaner(torch.zeros(4, dtype=torch.int64), 2).step(None, torch.zeros(4, 2))
    for labels in (torch.tensor([0.5, 1.0]), torch.zeros(4, 1, dtype=torch.int64)):
        with pytest.raises(ValueError, match="labels are one whole number a sample, not torch"):
            GraphCleaner(labels, 2)


def test_what_is_no_tensor_is_refused_by_name() -> None:
    labels = torch.arange(4) % 2
    with pytest.raises(TypeError, match=r"labels: a tensor is needed, not list; use torch\.as_tensor"):
        GraphCleaner([0, 1, 0, 1], 2)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="z: a tensor is needed, not ndarray"):
        GraphCleaner(labels, 2).step(torch.eye(4).numpy(), torch.zeros(4, 2))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="logits: a tensor is needed, not ndarray"):
        GraphCleaner(labels, 2).step(torch.eye(4), torch.zeros(4, 2).numpy())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"settings are GraphSettings\(k=20, …\), not dict"):
        GraphCleaner(labels, 2, {"k": 20})  # type: ignore[arg-type]


@pytest.mark.parametrize("k", [0, 2.5, "30"])
def test_k_is_a_whole_number(k: object) -> None:
    with pytest.raises(ValueError, match="k must be auto, or a whole number of at least 1"):
        GraphSettings(k=k)  # type: ignore[arg-type]


def test_a_misspelled_choice_does_not_pass_for_another() -> None:
    graph = knn_graph(nearest_neighbors(torch.eye(4), 2))
    with pytest.raises(ValueError, match="symmetrize must be one of max, sum"):
        weight_graph(graph, symmetrize="mean")  # type: ignore[arg-type]
    labels = torch.zeros(4, dtype=torch.int64)
    with pytest.raises(ValueError, match="edges must be one of any, mutual"):
        select_components(labels, labels, labels, labels == 0, 1, "both")  # type: ignore[arg-type]


@pytest.mark.parametrize("settings", [PAPER, RELEASE, STRICT])
def test_what_people_decided_is_held_at_every_step(settings: GraphSettings) -> None:
    """Against the evidence too; what they found to be OOD is never selected, and nobody's neighbor."""
    z, labels, logits = blobs(80, 4, 0.3, 0)
    decided = torch.full((80,), -1)
    decided[:10], decided[10:20] = (labels[:10] + 1) % 4, 4
    given = torch.where(decided >= 0, torch.where(decided < 4, decided, -1), labels)
    cleaner = GraphCleaner(given, 4, settings, decided=decided)
    for _ in range(3):
        cleaned = cleaner.step(z, logits)
        assert torch.equal(cleaned.labels[:10], decided[:10])
        assert cleaned.selected[:10].all()
        assert not cleaned.selected[10:20].any()
        assert not cleaned.degrees[10:20].any()
    nobody = GraphCleaner(labels, 4, settings, decided=torch.full((80,), -1))
    assert_same_tensors(nobody.step(z, logits), GraphCleaner(labels, 4, settings).step(z, logits))
