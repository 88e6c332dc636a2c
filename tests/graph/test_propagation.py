import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.semi_supervised import LabelSpreading

from graphclean.graph import (
    gather_evidence,
    knn_graph,
    nearest_neighbors,
    normalize_graph,
    propagate,
    self_influence,
    to_scipy,
    weight_graph,
)
from graphclean.graph.csr import from_edges
from graphclean.graph.propagation import symmetrize_by_sorting
from tests.graph.oracles import dense_normalized, dense_soft


def random_graph(n: int, seed: int, density: float = 0.2) -> sparse.csr_array:
    """A directed graph whose two directions differ in weight, with negative similarities among them."""
    rng = np.random.default_rng(seed)
    return sparse.csr_array(rng.uniform(-0.3, 1, (n, n)) * (rng.random((n, n)) < density) * (1 - np.eye(n)))


def labels(n: int, n_classes: int, seed: int) -> np.ndarray:
    return np.eye(n_classes)[np.random.default_rng(seed).integers(0, n_classes, n)]


@pytest.mark.parametrize("symmetrize", ["max", "sum"])
@pytest.mark.parametrize("gamma", [1.0, 3.0])
def test_normalized_graph_equals_the_dense_one(symmetrize: str, gamma: float) -> None:
    graph = random_graph(40, 1)
    S = normalize_graph(weight_graph(graph, gamma=gamma, symmetrize=symmetrize))
    np.testing.assert_allclose(
        to_scipy(S).toarray(), dense_normalized(graph.toarray(), gamma, symmetrize), atol=1e-12
    )


@pytest.mark.parametrize("symmetrize", ["max", "sum"])
def test_sorting_and_scipy_symmetrize_alike(symmetrize: str) -> None:
    graph = random_graph(80, 7)
    graph.data = np.abs(graph.data)
    triples = graph.tocoo()
    rows, cols = torch.as_tensor(triples.row).long(), torch.as_tensor(triples.col).long()
    by_sorting = symmetrize_by_sorting(rows, cols, torch.as_tensor(graph.data), 80, symmetrize)
    torch.testing.assert_close(by_sorting, weight_graph(graph, symmetrize=symmetrize))


@pytest.mark.parametrize("leave_one_out", [False, True])
@pytest.mark.parametrize("class_balance", [False, True])
@pytest.mark.parametrize("n_classes", [2, 7, 1000])
def test_soft_labels_equal_a_dense_solve(leave_one_out: bool, class_balance: bool, n_classes: int) -> None:
    graph, Y = random_graph(60, 2), labels(60, n_classes, 3)
    S = normalize_graph(weight_graph(graph))
    # With a probe at every node the diagonal of the inverse is exact.
    soft = gather_evidence(
        S,
        torch.as_tensor(Y),
        class_balance=class_balance,
        leave_one_out=leave_one_out,
        probes=60,
        tolerance=1e-10,
    )
    expected = dense_soft(dense_normalized(graph.toarray(), 1, "max"), Y, 0.5, class_balance, leave_one_out)
    np.testing.assert_allclose(soft.numpy(), expected, atol=1e-7)


@settings(max_examples=25, deadline=None)
@given(alpha=st.floats(0.05, 0.95), exponent=st.integers(2, 9), seed=st.integers(0, 99))
def test_error_stays_under_the_stated_tolerance(alpha: float, exponent: int, seed: int) -> None:
    tolerance = 10.0**-exponent
    S = normalize_graph(weight_graph(random_graph(40, seed)))
    Y = labels(40, 4, seed)
    exact = np.linalg.solve(np.eye(40) - alpha * to_scipy(S).toarray(), (1 - alpha) * Y)
    found = propagate(S, torch.as_tensor(Y), alpha=alpha, tolerance=tolerance).numpy()
    assert (np.linalg.norm(found - exact, axis=0) <= tolerance * np.linalg.norm(exact, axis=0) + 1e-14).all()


def test_agrees_with_label_spreading() -> None:
    """Scikit-learn's fixed point on the same affinity: Zhou's algorithm, the same system as Eq. 2."""
    n, n_classes = 60, 3
    weights = weight_graph(random_graph(n, 4, density=0.3))
    y = np.random.default_rng(5).integers(0, n_classes, n)
    y[::3] = -1
    W = to_scipy(weights).toarray()
    peer = LabelSpreading(kernel=lambda _a, _b: W, alpha=0.5, max_iter=1000, tol=1e-12)
    peer.fit(np.arange(n)[:, None], y)
    Y = np.where(y[:, None] == np.arange(n_classes), 1.0, 0.0)
    soft = gather_evidence(normalize_graph(weights), torch.as_tensor(Y), tolerance=1e-12)
    np.testing.assert_allclose(soft.numpy(), peer.label_distributions_, atol=1e-8)


def test_zero_alpha_keeps_the_labels_and_one_is_refused() -> None:
    S = normalize_graph(weight_graph(random_graph(10, 0)))
    Y = torch.as_tensor(labels(10, 2, 0))
    torch.testing.assert_close(propagate(S, Y, alpha=0), Y)
    with pytest.raises(ValueError, match=r"alpha must be in \[0, 1\)"):
        propagate(S, Y, alpha=1)


def test_own_weight_is_close_with_two_steps_closer_with_probes() -> None:
    z = torch.randn(400, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    S = normalize_graph(weight_graph(knn_graph(nearest_neighbors(z, 10)), symmetrize="sum"))
    exact = np.diag(np.linalg.inv(np.eye(400) - 0.5 * to_scipy(S).toarray()))
    plain = np.abs(self_influence(S, probes=0).numpy() - exact)
    probed = np.abs(self_influence(S).numpy() - exact)
    assert plain.max() < 0.03
    assert probed.mean() < 0.5 * plain.mean()
    np.testing.assert_allclose(self_influence(S, probes=400, tolerance=1e-10).numpy(), exact, atol=1e-8)


@pytest.mark.parametrize("alpha", [0.5, 0.8, 0.95])
@pytest.mark.parametrize("k", [10, 60])
def test_leave_one_out_evidence_is_that_of_the_dense_inverse(alpha: float, k: int) -> None:
    """Also where labels travel far: what the estimated diagonal misses is little next to the evidence."""
    generator = torch.Generator().manual_seed(0)
    classes = torch.randint(0, 8, (600,), generator=generator)
    z = torch.randn(8, 16, generator=generator, dtype=torch.float64)[classes]
    z = z + torch.randn(600, 16, generator=generator, dtype=torch.float64)
    given = torch.where(torch.rand(600, generator=generator) < 0.5, classes.flip(0), classes)
    S = normalize_graph(weight_graph(knn_graph(nearest_neighbors(z, k)), gamma=3, symmetrize="sum"))
    Y = torch.eye(8, dtype=torch.float64)[given]
    M = np.linalg.inv(np.eye(600) - alpha * to_scipy(S).toarray())
    exact = (M - np.diag(np.diag(M))) @ (Y / Y.sum(0)).numpy()
    exact /= exact.sum(1, keepdims=True)
    found = gather_evidence(S, Y, alpha=alpha, class_balance=True, leave_one_out=True).numpy()
    assert np.abs(found - exact).max() < 0.01
    assert (found.argmax(1) == exact.argmax(1)).mean() > 0.99


@pytest.mark.parametrize("alpha", [0.8, 0.95])
@pytest.mark.parametrize("spread", [0.5, 1.0])
def test_long_returns_are_twice_as_close_as_scaled_two_step_ones(alpha: float, spread: float) -> None:
    generator = torch.Generator().manual_seed(1)
    classes = torch.randint(0, 8, (800,), generator=generator)
    z = torch.randn(8, 16, generator=generator, dtype=torch.float64)[classes]
    z = z + spread * torch.randn(800, 16, generator=generator, dtype=torch.float64)
    S = normalize_graph(weight_graph(knn_graph(nearest_neighbors(z, 20)), gamma=3, symmetrize="sum"))
    dense = to_scipy(S).toarray()
    exact = np.diag(np.linalg.inv(np.eye(800) - alpha * dense)) - 1
    two_steps = alpha**2 * (dense**2).sum(1)
    scaled = two_steps * exact.sum() / two_steps.sum()
    found = self_influence(S, alpha=alpha).numpy() - 1
    error, of_scaled = (np.abs(one / exact - 1).mean() for one in (found, scaled))
    assert error < 0.5 * of_scaled
    single = self_influence(S.to(torch.float32), alpha=alpha).numpy() - 1
    assert np.abs(single / exact - 1).mean() == pytest.approx(error, abs=1e-3)


def test_long_returns_where_nodes_are_all_alike_or_alone() -> None:
    """On a ring every node returns alike, and features say the same of all; two more nodes have no edges."""
    n = 30
    rows = torch.arange(n).repeat_interleave(2)
    cols = (rows + torch.tensor([-1, 1]).repeat(n)) % n
    order = torch.argsort(rows * n + cols)
    ring = from_edges(rows[order], cols[order], torch.full((2 * n,), 0.5, dtype=torch.float64), n + 2)
    exact = np.diag(np.linalg.inv(np.eye(n + 2) - 0.9 * to_scipy(ring).toarray()))
    np.testing.assert_allclose(self_influence(ring, alpha=0.9, tolerance=1e-10).numpy(), exact, rtol=1e-6)
    nothing = from_edges(rows[:0], cols[:0], torch.zeros(0, dtype=torch.float64), 4)
    assert self_influence(nothing, alpha=0.9).tolist() == [1.0] * 4


def test_own_weight_without_probes_is_the_returns_over_two_steps() -> None:
    S = normalize_graph(weight_graph(random_graph(50, 4)))
    expected = 1 + 0.3**2 * (to_scipy(S).toarray() ** 2).sum(1)
    np.testing.assert_allclose(self_influence(S, alpha=0.3, probes=0).numpy(), expected, atol=1e-12)


def test_without_edges_an_own_label_weighs_one() -> None:
    """With more nodes than probes, among which there is nothing to scale by."""
    S = normalize_graph(weight_graph(sparse.csr_array((50, 50))))
    np.testing.assert_allclose(self_influence(S).numpy(), 1, atol=1e-6)


def test_self_loops_weigh_nothing() -> None:
    """Not even in a torch matrix, which is taken at its word."""
    dense = torch.tensor([[0.9, 0.5, 0.0], [0.0, 0.0, 0.4], [0.0, 0.0, 0.7]], dtype=torch.float64)
    weights = weight_graph(dense.to_sparse_csr())
    expected = [[0.0, 0.5, 0.0], [0.5, 0.0, 0.4], [0.0, 0.4, 0.0]]
    np.testing.assert_array_equal(to_scipy(weights).toarray(), expected)


def test_isolated_nodes_keep_their_label_or_have_no_evidence() -> None:
    graph = sparse.csr_array(np.array([[0, 1.0, 0], [1.0, 0, 0], [0, 0, 0]]))
    S = normalize_graph(weight_graph(graph))
    Y = torch.tensor([[1.0, 0], [0, 1.0], [0, 1.0]], dtype=torch.float64)
    assert gather_evidence(S, Y)[2].tolist() == [0, 1]
    left_out = gather_evidence(S, Y, leave_one_out=True, probes=3)
    torch.testing.assert_close(left_out[2], torch.tensor([0.5, 0.5], dtype=torch.float64))
    torch.testing.assert_close(left_out[0], torch.tensor([0.0, 1.0], dtype=torch.float64))


def test_negative_similarities_weigh_nothing() -> None:
    graph = sparse.csr_array(np.array([[0, -0.5], [-0.5, 0]]))
    assert weight_graph(graph, gamma=3).values().numel() == 0


def test_an_empty_class_stays_empty() -> None:
    S = normalize_graph(weight_graph(random_graph(30, 6)))
    Y = torch.as_tensor(labels(30, 3, 6))
    wide = torch.cat([Y, torch.zeros(30, 1, dtype=Y.dtype)], 1)
    soft = gather_evidence(S, wide, class_balance=True)
    assert (soft[:, 3] == 0).all()
    torch.testing.assert_close(soft[:, :3], gather_evidence(S, Y, class_balance=True))


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 999), leave_one_out=st.booleans())
def test_rows_sum_to_one_and_follow_a_permutation(seed: int, leave_one_out: bool) -> None:
    graph, Y = random_graph(25, seed, density=0.1), labels(25, 3, seed)
    order = np.random.default_rng(seed).permutation(25)

    def soft(graph: sparse.csr_array, Y: np.ndarray) -> np.ndarray:
        S = normalize_graph(weight_graph(graph))
        return gather_evidence(S, torch.as_tensor(Y), class_balance=True, leave_one_out=leave_one_out).numpy()

    straight = soft(graph, Y)
    np.testing.assert_allclose(straight.sum(1), 1, atol=1e-9)
    assert (straight >= 0).all()
    shuffled = soft(sparse.csr_array(graph.toarray()[np.ix_(order, order)]), Y[order])
    np.testing.assert_allclose(shuffled, straight[order], atol=1e-6)
