"""Early-Learning Regularization against its formulas, and its memory of every sample."""

import inspect
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax
from torch import nn

from graphclean.methods import elr
from graphclean.methods.elr import ELR, ElrSettings
from graphclean.training.method import Batch
from graphclean.training.networks import Output

N, K = 12, 4


def start(given: np.ndarray, **settings: float) -> tuple[ELR, Any]:
    """The method, and a run whose network takes its inputs for logits."""
    run: Any = SimpleNamespace(given=torch.as_tensor(given), n_classes=K, device=torch.device("cpu"))
    run.new_network = nn.Identity
    run.weak_view = lambda inputs: inputs
    run.forward = lambda *batches: [Output(logits=batch, z=batch) for batch in batches]
    method = ELR(ElrSettings(**settings))
    method.setup(run)
    return method, run


def step(method: ELR, run: Any, index: list[int], logits: np.ndarray | torch.Tensor) -> dict[str, Any]:
    rows = torch.as_tensor(index)
    return method.losses(run, Batch(rows, torch.as_tensor(logits), run.given[rows]))


class Oracle:
    """The formulas in float64, a sample at a time."""

    def __init__(self, beta: float) -> None:
        self.beta, self.t = beta, np.zeros((N, K))

    def losses(self, index: list[int], logits: np.ndarray, given: np.ndarray) -> tuple[float, float]:
        ce, regularization = [], []
        for i, row in zip(index, logits, strict=True):
            p = np.clip(softmax(row), 1e-4, 1 - 1e-4)
            self.t[i] = self.beta * self.t[i] + (1 - self.beta) * p / p.sum()
            regularization.append(np.log(1 - self.t[i] @ p))
            if given[i] >= 0:
                ce.append(-log_softmax(row)[given[i]])
        return float(np.mean(ce)) if ce else 0.0, float(np.mean(regularization))


def draw(seed: int = 0, scale: float = 2.0) -> tuple[np.random.Generator, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    given = rng.integers(0, K, N)
    return rng, given, rng.normal(0, scale, (N, K)).astype(np.float32)


@pytest.mark.parametrize("beta", [0.0, 0.7, 0.9])
@pytest.mark.parametrize("scale", [2.0, 30.0])
def test_losses_are_those_of_the_formulas(beta: float, scale: float) -> None:
    """Over several epochs of batches in any order; at the larger scale probabilities are clipped."""
    rng, given, _ = draw(scale=scale)
    given[[2, 7]] = -1
    (method, run), oracle = start(given, beta=beta), Oracle(beta)
    for _ in range(5):
        for index in rng.permutation(N).reshape(3, 4).tolist():
            logits = rng.normal(0, scale, (4, K)).astype(np.float32)
            found = step(method, run, index, logits)
            expected = oracle.losses(index, logits.astype(np.float64), given)
            assert (float(found["ce"]), float(found["elr"])) == pytest.approx(expected, rel=1e-4, abs=1e-5)
        np.testing.assert_allclose(method.targets.numpy(), oracle.t, atol=1e-6)


def test_the_memory_of_a_sample_changes_with_it_alone() -> None:
    rng, given, logits = draw()
    method, run = start(given)
    assert not method.targets.any()
    step(method, run, [5, 1], logits[[5, 1]])
    first = method.targets.clone()
    assert first.any(1).nonzero().flatten().tolist() == [1, 5]
    step(method, run, [1, 8], rng.normal(size=(2, K)).astype(np.float32))
    assert torch.equal(method.targets[5], first[5])
    assert not torch.equal(method.targets[1], first[1])
    # The same samples in another order within the batch are remembered alike.
    again, other = start(given)
    step(again, other, [1, 5], logits[[1, 5]])
    assert torch.equal(again.targets, first)
    # A row that fills up a batch is no second update.
    filled, other = start(given)
    step(filled, other, [5, 1, 5], logits[[5, 1, 5]])
    torch.testing.assert_close(filled.targets, first)


def test_rows_of_the_memory_sum_to_what_has_been_seen() -> None:
    _, given, logits = draw()
    method, run = start(given, beta=0.7)
    for n in range(1, 6):
        step(method, run, list(range(N)), n * logits)
        torch.testing.assert_close(method.targets.sum(1), torch.full((N,), 1 - 0.7**n))


@pytest.mark.parametrize("lambda_elr", [0.0, 3.0])
def test_the_gradient_is_that_of_the_paper(lambda_elr: float) -> None:
    """p − y + λ p (⟨p, t⟩ − t) / (1 − ⟨p, t⟩); at λ = 0 that of cross-entropy."""
    _, given, logits = draw(scale=1.0)
    method, run = start(given, lambda_elr=lambda_elr)
    rows = list(range(N))
    step(method, run, rows, logits[::-1].copy())
    leaf = torch.tensor(logits, requires_grad=True)
    losses = step(method, run, rows, leaf)
    assert set(losses) == set(method.weights)
    assert method.weights == {"ce": 1.0, "elr": lambda_elr}
    torch.stack([method.weights[name] * loss for name, loss in losses.items()]).sum().backward()
    assert not method.targets.requires_grad
    p, t = softmax(logits.astype(np.float64), axis=1), method.targets.double().numpy()
    dot = (p * t).sum(1, keepdims=True)
    expected = p - np.eye(K)[given] + lambda_elr * p * (dot - t) / (1 - dot)
    assert leaf.grad is not None
    np.testing.assert_allclose(leaf.grad.numpy(), expected / N, atol=1e-5)


def test_certain_predictions_leave_finite_losses() -> None:
    given = np.arange(N) % K
    method, run = start(given, beta=0.0)
    for _ in range(3):
        found = step(method, run, list(range(N)), 1000 * np.eye(K, dtype=np.float32)[given])
        assert np.isfinite([float(loss) for loss in found.values()]).all()
    assert float(found["elr"]) < -5


def test_without_any_label_there_is_the_regularization_alone() -> None:
    _, _, logits = draw()
    method, run = start(np.full(N, -1))
    found = step(method, run, list(range(N)), logits)
    assert found["ce"] == 0
    assert found["elr"] < 0
    assert not method.selection(run).selected.any()


def test_selected_are_those_whose_label_their_predictions_agree_with() -> None:
    given = np.arange(N) % K
    method, run = start(given)
    predicted = given.copy()
    predicted[:3] = (given[:3] + 1) % K
    for _ in range(2):
        step(method, run, list(range(N)), 5 * np.eye(K, dtype=np.float32)[predicted])
    selection = method.selection(run)
    assert selection.labels.tolist() == predicted.tolist()
    assert selection.selected.tolist() == [False] * 3 + [True] * (N - 3)


@pytest.mark.parametrize("bad", [{"beta": 1.0}, {"beta": -0.1}, {"lambda_elr": -1.0}, {"lambda_elr": np.nan}])
def test_settings_out_of_range_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(bad))} must be at least 0"):
        ElrSettings(**bad)


def test_a_method_is_short_to_write() -> None:
    assert len(inspect.getsource(elr).splitlines()) < 80
