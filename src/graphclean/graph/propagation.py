"""Eq. 1 and 2 of the paper: edge weights, and label propagation for all classes together."""

import math

import torch
from scipy import sparse
from torch import Tensor

from ..config.settings import Symmetrize
from ..distributed.group import ALONE, Group
from ..errors import check_choice
from .csr import Graph, edge_rows, from_edges, in_contract, row_sums, to_scipy

SOLVER_TOLERANCE = 1e-6
"""Default bound on the relative error of a propagated column in the 2-norm."""
CPU_COLUMNS = 32
"""Columns per product on the CPU: more exceed its cache, fewer read the graph too often."""
PROBES = 32
"""Nodes on which self-influence is measured exactly."""
LEAST_DIVIDED = 2_000_000
"""Edges times classes from which dividing the classes among processes takes less time than the exchange."""
WALK = 3
"""Steps of a walk before it returns: longer ones return with a probability of α⁷ at most."""
SUMMED_AT_ONCE = 2**18
"""Nodes whose two-step returns are summed at once."""
MOSTLY_TWO_STEPS = 0.5
"""α up to which a node's return probability is nearly proportional to its two-step return probability."""


def weight_graph(graph: Graph, *, gamma: float = 1.0, symmetrize: Symmetrize = "max") -> Tensor:
    """Eq. 1: W = [similarity]₊^γ, symmetrized.

    `max` takes the larger of the two directions (the paper's undirected graph); `sum` adds them, so that
    mutual edges count twice (the authors' release). Negative similarities get weight 0.
    """
    check_choice("symmetrize", symmetrize, Symmetrize)
    graph = in_contract(graph)
    values = graph.values().clamp(min=0) ** gamma
    rows, cols = edge_rows(graph), graph.col_indices().long()
    live = (values > 0) & (rows != cols)
    rows, cols, values = rows[live], cols[live], values[live]
    if values.device.type == "cpu":
        return _symmetrize_scipy(rows, cols, values, graph.shape[0], symmetrize)
    return symmetrize_by_sorting(rows, cols, values, graph.shape[0], symmetrize)


def symmetrize_by_sorting(rows: Tensor, cols: Tensor, values: Tensor, n: int, how: Symmetrize) -> Tensor:
    """Combine W with its transpose, for any device: both directions of all edges in one sort."""
    keys, order = torch.cat([rows * n + cols, cols * n + rows]).sort(stable=True)
    values = torch.cat([values, values])[order]
    # An edge stands here once, or twice in a row where both directions are neighbors.
    twice = keys[1:] == keys[:-1]
    first, second = values[:-1][twice], values[1:][twice]
    values[:-1][twice] = first + second if how == "sum" else torch.maximum(first, second)
    keep = torch.ones_like(keys, dtype=torch.bool)
    keep[1:] = ~twice
    keys, values = keys[keep], values[keep]
    return from_edges(keys // n, keys % n, values, n)


def _symmetrize_scipy(rows: Tensor, cols: Tensor, values: Tensor, n: int, how: Symmetrize) -> Tensor:
    """The same, ten times faster on the CPU: SciPy transposes by counting instead of sorting."""
    W = to_scipy(from_edges(rows, cols, values, n))
    both = W + W.T if how == "sum" else W.maximum(W.T)
    both = both.tocsr()
    both.sort_indices()
    indptr, indices, data = (torch.as_tensor(part) for part in (both.indptr, both.indices, both.data))
    return torch.sparse_csr_tensor(indptr, indices, data, (n, n), check_invariants=False)


def normalize_graph(weights: Tensor) -> Tensor:
    """S = D^-½ W D^-½. A node without edges gets a zero row instead of a division by zero."""
    rows, cols = edge_rows(weights), weights.col_indices().long()
    degree = row_sums(weights, weights.values())
    scale = torch.where(degree > 0, degree.rsqrt(), 0)
    values = weights.values() * scale[rows] * scale[cols]
    return torch.sparse_csr_tensor(
        weights.crow_indices(), weights.col_indices(), values, weights.shape, check_invariants=False
    )


def propagate(S: Tensor, Y: Tensor, *, alpha: float = 0.5, tolerance: float = SOLVER_TOLERANCE) -> Tensor:
    """Eq. 2: the minimizer Ỹ of J, i.e. the solution of (I − αS) Ỹ = (1 − α) Y, all columns at once.

    Chebyshev semi-iteration: the eigenvalues of αS lie in [−α, α], so the number of steps that reduces the
    error of every column below `tolerance` times its norm is known in advance (12 for α = 0.5 and 1e-6): no
    inner products, no convergence test, no host sync.
    """
    if not 0 <= alpha < 1:
        raise ValueError(f"alpha must be in [0, 1), not {alpha}")
    if alpha == 0:
        return Y.clone()
    if Y.device.type == "cpu" and Y.shape[1] > CPU_COLUMNS:
        parts = torch.split(Y, CPU_COLUMNS, dim=1)
        return torch.cat([propagate(S, part, alpha=alpha, tolerance=tolerance) for part in parts], 1)
    b = (1 - alpha) * Y
    steps = math.ceil(math.acosh(1 / tolerance) / math.acosh(1 / alpha))
    before, x = torch.zeros_like(b), b
    omega = 2.0
    for _ in range(steps - 1):
        omega = 1 / (1 - alpha**2 * omega / 4)
        following = torch.sparse.mm(S, x).mul_(alpha).add_(b).sub_(before).mul_(omega).add_(before)
        before, x = x, following
    return x


def divide_propagation(S: Tensor, Y: Tensor, group: Group, *, alpha: float, tolerance: float) -> Tensor:
    """`propagate`, for which each process of a group takes some classes: they do not depend on each other."""
    classes = Y.shape[1]
    if not group.several or classes < group.size or S.values().numel() * classes < LEAST_DIVIDED:
        return propagate(S, Y, alpha=alpha, tolerance=tolerance)
    own = propagate(S, Y[:, group.part(classes)].contiguous(), alpha=alpha, tolerance=tolerance)
    return group.gather(own.T.contiguous(), classes).T.contiguous()


def balance_classes(Y: Tensor) -> Tensor:
    """Divide each non-empty column by its sum, so that large classes do not outvote small ones."""
    total = Y.sum(0)
    return Y / torch.where(total > 0, total, 1)


def self_influence(
    S: Tensor, *, alpha: float = 0.5, probes: int = PROBES, tolerance: float = SOLVER_TOLERANCE
) -> Tensor:
    """The diagonal of M = (I − αS)⁻¹: the weight of a node's own label in its propagated row.

    Two-step returns give 1 + α² Σ_j S_ij². Longer returns are measured on `probes` evenly spaced nodes, and
    the two-step term of all nodes is scaled to match: if left out, they would remain in leave-one-out
    evidence as a trace of the sample's own label, which with many classes exceeds 1/K. For α above
    `MOSTLY_TWO_STEPS` most returns are long, and long walks return to nodes of high degree: see
    `_fit_returns`.
    """
    excess = alpha**2 * row_sums(S, S.values() ** 2)
    if probes > 0 and alpha > 0:
        n = S.shape[0]
        spaced = torch.linspace(0, n - 1, min(probes, n), dtype=torch.float64, device=S.device)
        nodes = torch.unique_consecutive(spaced.round().long())
        columns = torch.arange(len(nodes), device=S.device)
        unit = torch.zeros(n, len(nodes), dtype=S.dtype, device=S.device)
        unit[nodes, columns] = 1
        exact = propagate(S, unit, alpha=alpha, tolerance=tolerance)[nodes, columns] / (1 - alpha) - 1
        if alpha > MOSTLY_TWO_STEPS:
            reached = propagate(S, torch.ones_like(unit[:, :1]), alpha=alpha, tolerance=tolerance).squeeze(1)
            exact = torch.maximum(exact, excess[nodes])
            excess = _fit_returns(excess, reached, nodes, exact).clamp(max=alpha / (1 - alpha))
        else:
            two_steps = excess[nodes].sum()
            excess = excess * torch.where(two_steps > 0, exact.sum() / two_steps, 1)
        excess[nodes] = exact
    return 1 + excess


def self_influence_by_walks(S: Tensor, *, alpha: float = 0.5, probes: int = PROBES) -> Tensor:
    """`self_influence` for large graphs and α up to `MOSTLY_TWO_STEPS`: walks from the probes only, of up to
    `WALK` steps and back, touch a small part of the graph.
    """
    matrix, n = to_scipy(S), S.shape[0]
    squares = torch.empty(n, dtype=S.dtype)
    for start in range(0, n, SUMMED_AT_ONCE):
        part = matrix[start : start + SUMMED_AT_ONCE]
        squares[start : start + part.shape[0]] = torch.as_tensor(part.multiply(part).sum(1))
    excess = alpha**2 * squares
    nodes = torch.linspace(0, n - 1, min(probes, n), dtype=torch.float64).round().long()
    nodes = torch.unique_consecutive(nodes)
    exact = torch.zeros(len(nodes), dtype=torch.float64)
    for at, node in enumerate(nodes.tolist()):
        # Walks of t steps return with probability <e Sᵃ, e Sᵇ> for any a + b = t, as S is symmetric.
        walk = [sparse.csr_array(([1.0], ([0], [node])), shape=(1, n))]
        for _ in range(WALK):
            walk.append((walk[-1] @ matrix).tocsr())
        for steps in range(2, 2 * WALK + 1):
            a, b = walk[steps // 2], walk[steps - steps // 2]
            exact[at] += alpha**steps * a.multiply(b).sum()
    two_steps = excess[nodes].sum().double()
    factor = torch.where(two_steps > 0, exact.sum() / two_steps, 1)
    excess = excess * factor.to(excess)
    excess[nodes] = exact.to(excess)
    return 1 + excess


def _fit_returns(two_steps: Tensor, reached: Tensor, nodes: Tensor, exact: Tensor) -> Tensor:
    """All returns of every node: a power of its two-step returns times a power of the weight it receives from
    all nodes.

    The exponents and a factor are fitted by least squares to the logarithms of the `exact` values. No node
    returns less than in two steps.
    """
    alone = two_steps == 0
    shape = torch.stack([two_steps.log(), reached.log(), torch.ones_like(reached)], 1)
    known = nodes[~alone[nodes]]
    if len(known) == 0:
        return two_steps
    wanted = exact[~alone[nodes]].log().unsqueeze(1)
    # On the host, where a driver exists for features that say the same, as on a regular graph.
    powers = torch.linalg.lstsq(shape[known].double().cpu(), wanted.double().cpu(), driver="gelsd").solution
    returns = (shape @ powers.to(shape)).squeeze(1).exp()
    return torch.where(alone, 0, torch.maximum(returns, two_steps))


def gather_evidence(
    S: Tensor,
    Y: Tensor,
    *,
    alpha: float = 0.5,
    class_balance: bool = False,
    leave_one_out: bool = False,
    probes: int = PROBES,
    tolerance: float = SOLVER_TOLERANCE,
    group: Group = ALONE,
    own: Tensor | None = None,
) -> Tensor:
    """Soft labels from propagation: clipped at 0, every row summing to 1.

    Without `leave_one_out` this is the paper's Ỹ; with it, the contribution of a node's own label is removed,
    so that a sample is judged by the others alone. `own` is the self-influence if it is known. A row without
    evidence is uniform.
    """
    if class_balance:
        Y = balance_classes(Y)
    live = Y.any(0)
    columns = Y if bool(live.all()) else Y[:, live]
    spread = divide_propagation(S, columns, group, alpha=alpha, tolerance=tolerance)
    if leave_one_out:
        if own is None:
            own = self_influence(S, alpha=alpha, probes=probes, tolerance=tolerance)
        spread = spread / (1 - alpha) - own.unsqueeze(1) * columns
        # What is left of rounding must not pass for evidence.
        spread = torch.where(spread > 10 * tolerance * columns.amax(0), spread, 0)
    soft = torch.zeros_like(Y)
    soft[:, live] = spread.clamp(min=0)
    total = soft.sum(1, keepdim=True)
    return torch.where(total > 0, soft / torch.where(total > 0, total, 1), 1 / Y.shape[1])
