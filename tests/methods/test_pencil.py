"""PENCIL against its formulas: labels move by their own gradient, and only while they are learned."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax
from torch import nn

from graphclean.methods.pencil import Pencil, PencilSettings
from graphclean.training.method import Batch
from graphclean.training.networks import Output
from graphclean.training.schedule import total_loss
from tests.methods.test_conditions import SHORT, given, make

N, K = 8, 5
GIVEN = np.array([0, 1, 2, -1, 4, 0, 1, -1])
EPOCHS = 100


def start(epoch: int, **settings: float) -> tuple[Pencil, Any]:
    """The method in an epoch of 100, and a run whose network takes its inputs for logits."""
    run: Any = SimpleNamespace(given=torch.as_tensor(GIVEN), n_classes=K, device=torch.device("cpu"))
    run.epoch, run.settings = epoch, dataclasses.replace(SHORT, epochs=EPOCHS)
    run.new_network = nn.Identity
    run.weak_view = lambda inputs: inputs
    run.forward = lambda *batches: [Output(logits=batch, z=batch) for batch in batches]
    method = Pencil(PencilSettings(**settings))
    method.setup(run)
    return method, run


def draw(seed: int = 0) -> torch.Tensor:
    return 2 * torch.randn(N, K, generator=torch.Generator().manual_seed(seed))


def step(method: Pencil, run: Any, logits: torch.Tensor) -> dict[str, float]:
    """As the trainer makes it."""
    batch = Batch(torch.arange(N), logits.clone().requires_grad_(), run.given)
    losses = method.losses(run, batch)
    total_loss(losses, method.weights).backward()  # type: ignore[no-untyped-call]
    method.after_step(run, batch)
    return {name: float(loss.detach()) for name, loss in losses.items()}


def spread(method: Pencil) -> np.ndarray:
    """Label logits that are no longer one-hot."""
    method.label_logits += draw(7)
    return method.label_logits.double().numpy().copy()


def test_labels_start_as_given() -> None:
    method, _ = start(0)
    labels = method.label_logits.softmax(1)
    for row, label in zip(labels, GIVEN, strict=True):
        if label >= 0:
            assert float(row[label]) == pytest.approx(np.exp(10) / (np.exp(10) + K - 1))
        else:
            torch.testing.assert_close(row, torch.full((K,), 1 / K))


def test_stages_have_their_own_losses_and_labels_move_in_the_second_alone() -> None:
    for epoch, names in ((0, {"ce"}), (21, {"ce"}), (22, {"kl", "compatibility", "entropy"}), (63, {"kl"})):
        method, run = start(epoch)
        before = method.label_logits.clone()
        assert set(step(method, run, draw())) == names
        moved = (method.label_logits != before).any(1)
        assert moved.tolist() == [epoch == 22 and label >= 0 for label in GIVEN]
        assert not method.label_logits.requires_grad


def test_losses_are_those_of_the_formulas() -> None:
    method, run = start(30)
    label_logits, logits = spread(method), draw()
    found = step(method, run, logits)
    log_p, label = log_softmax(logits.double().numpy(), axis=1), softmax(label_logits, axis=1)
    p, rows = np.exp(log_p), GIVEN >= 0
    kl = (p * (log_p - np.log(label))).sum(1)
    kept = -log_softmax(label, axis=1)[np.arange(N), GIVEN]
    entropy = -(p * log_p).sum(1)
    for name, each in (("kl", kl), ("compatibility", kept), ("entropy", entropy)):
        assert found[name] == pytest.approx(each[rows].mean(), rel=1e-5)
    assert method.weights == {"ce": 1, "kl": 1 / K, "compatibility": 1 / K, "entropy": 0.4 / K}


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_labels_move_down_their_own_gradient(alpha: float) -> None:
    """Of the KL divergence it is yd − p; 41 epochs of 100 learn labels, and each has its part of the way."""
    method, run = start(30, alpha=alpha, label_lr=41.0)
    before, logits = spread(method), draw()
    step(method, run, logits)
    label, p = softmax(before, axis=1), softmax(logits.double().numpy(), axis=1)
    past = softmax(label, axis=1) - np.eye(K)[GIVEN]
    gradient = label - p + alpha * label * (past - (label * past).sum(1, keepdims=True))
    expected = before - gradient * (GIVEN >= 0)[:, None]
    np.testing.assert_allclose(method.label_logits.numpy(), expected, atol=1e-5)


def test_what_a_label_does_is_the_same_in_a_larger_batch() -> None:
    rows = draw()
    moved = []
    for repeats in (1, 3):
        method, run = start(30)
        run.given = run.given.repeat(repeats)
        method.setup(run)
        batch = Batch(torch.arange(N * repeats), rows.repeat(repeats, 1), run.given)
        total_loss(method.losses(run, batch), method.weights).backward()  # type: ignore[no-untyped-call]
        method.after_step(run, batch)
        moved.append(method.label_logits[:N].clone())
    torch.testing.assert_close(*moved)


def test_predictions_that_stay_change_a_label_unless_it_is_held() -> None:
    """At alpha 1 labels follow a sure prediction; at 4, the release's 0.4 on ten classes, none does."""
    sure = torch.zeros(N, K)
    sure[:, 3] = 12
    for settings, changed in (({}, True), ({"label_lr": 0.0}, False), ({"alpha": 4.0}, False)):
        method, run = start(30, **settings)
        for _ in range(41):
            step(method, run, sure)
        labels, labeled = method.selection(run).labels.numpy(), GIVEN >= 0
        assert (labels[labeled] == 3).all() == changed
        assert (labels[labeled] == GIVEN[labeled]).all() != changed
    method, _ = start(30, label_lr=0.0)
    assert torch.equal(method.label_logits, start(0)[0].label_logits)


def test_the_papers_own_term_would_let_no_label_leave_its_class() -> None:
    """−log yd_y at the paper's weight balances a sure prediction where both labels are equally probable."""
    leaf = torch.tensor([10.0, 0.0], requires_grad=True)
    p = torch.tensor([1e-6, 1 - 1e-6])
    for _ in range(2000):
        log_label = leaf.log_softmax(0)
        loss = (p * (p.log() - log_label)).sum() - log_label[0]
        (gradient,) = torch.autograd.grad(loss, leaf)
        leaf = (leaf - 0.5 * gradient).detach().requires_grad_()
    assert float(leaf.detach().softmax(0)[0]) >= 0.5


def test_the_learning_rate_starts_over_where_labels_are_final() -> None:
    method = Pencil()
    assert method.phases(320) == (0, 202)
    assert method.phases(60) == (0, 38)
    assert method._stages(60) == (13, 38)
    assert Pencil(PencilSettings(0.0, 0.0)).phases(10) == (0,)


def test_a_run_too_short_to_learn_labels_says_so() -> None:
    for epochs, said in ((1, True), (2, True), (3, False)):
        made = make(Pencil(), given(), settings=dataclasses.replace(SHORT, epochs=epochs))
        assert any("no epoch learned labels" in note for note in made.train().notes) == said


def test_selected_are_all_labeled_samples_under_their_last_label() -> None:
    method, run = start(30)
    method.label_logits[0, 3] = 20
    chosen = method.selection(run)
    assert chosen.labels.tolist()[:3] == [3, 1, 2]
    assert chosen.selected.tolist() == (GIVEN >= 0).tolist()


@pytest.mark.parametrize(
    "bad", [{"classify_until": 0.7}, {"correct_until": 1.2}, {"label_lr": -1.0}, {"alpha": np.nan}]
)
def test_settings_out_of_range_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(bad))}.* must be"):
        PencilSettings(**bad)
