"""MLNT against a step of meta-learning by hand, and the labels that it tries."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax
from torch import nn

from graphclean.methods.mixup import Mixup, MixupSettings
from graphclean.methods.mlnt import MLNT, MlntSettings, Trial, nearest_labeled, perturb
from graphclean.training.method import Batch, Method, TrainerContext
from graphclean.training.networks import Output
from tests.methods.test_conditions import SHORT, given, make

N, D, K = 9, 4, 3
GIVEN = np.array([0, 1, 2, -1, 1, 0, 2, 2, -1])


class Linear(nn.Module):
    """Logits x Wᵀ, and a weight that nothing depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(K, D, generator=torch.Generator().manual_seed(0)).double())
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, x: torch.Tensor) -> Output:
        logits = x @ self.weight.T
        return Output(logits, logits)


def draw() -> tuple[np.ndarray, np.ndarray]:
    """Inputs, and what a teacher says of them."""
    rng = np.random.default_rng(1)
    return rng.normal(size=(N, D)), softmax(rng.normal(0, 2, (N, K)), axis=1)


def by_hand(
    w: np.ndarray, x: np.ndarray, target: np.ndarray, labels: np.ndarray, lr: float
) -> tuple[float, np.ndarray]:
    """The divergence after a step, and its gradient: the step's own slope changes with the weights too."""
    rows = labels >= 0
    n = max(rows.sum(), 1)
    p = softmax(x @ w.T, axis=1)
    stepped = w - lr * ((p - np.eye(K)[labels]) * rows[:, None]).T @ x / n
    log_after = log_softmax(x @ stepped.T, axis=1)
    divergence = (target * (np.log(target) - log_after)).sum(1).mean()
    outer = (np.exp(log_after) - target).T @ x / len(x)
    along = x @ outer.T
    bent = (p * along - p * (p * along).sum(1, keepdims=True)) * rows[:, None]
    return float(divergence), outer - lr * bent.T @ x / n


@pytest.mark.parametrize("lr", [0.0, 0.2, 3.0])
def test_the_gradient_is_that_of_second_order_by_hand(lr: float) -> None:
    x, target = draw()
    network = Linear()
    trial = Trial(network, torch.tensor(x), torch.tensor(target), lr)
    divergence = trial.divergence(torch.tensor(GIVEN))
    divergence.backward(inputs=trial.weights)  # type: ignore[no-untyped-call]
    expected, slope = by_hand(network.weight.detach().numpy(), x, target, GIVEN, lr)
    assert float(divergence.detach()) == pytest.approx(expected, rel=1e-5)
    assert network.weight.grad is not None
    np.testing.assert_allclose(network.weight.grad, slope, atol=1e-6)
    assert network.unused.grad is None


def test_without_a_step_it_is_the_divergence_from_the_teacher() -> None:
    x, target = draw()
    network = Linear()
    found = Trial(network, torch.tensor(x), torch.tensor(target), 0.0).divergence(torch.tensor(GIVEN))
    log_p = log_softmax(x @ network.weight.detach().numpy().T, axis=1)
    assert float(found.detach()) == pytest.approx((target * (np.log(target) - log_p)).sum(1).mean())


def test_a_step_adds_the_mean_over_trials_of_the_weighted_gradient() -> None:
    """With the labels as given in all of them, the same as of one."""
    made = make(MLNT(MlntSettings(meta_from=0.0, trials=3, perturbed=0.0, alpha=2.0)), given())
    method = made.method
    assert isinstance(method, MLNT)
    method.begin_epoch(made)
    views = torch.rand(8, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    student = method.networks["main"]
    before = {name: value.clone() for name, value in student.state_dict().items()}
    found = method._meta(made, views, made.given[:8], ramp=0.5)
    assert all(torch.equal(value, before[name]) for name, value in student.state_dict().items())
    gradient = {name: weights.grad for name, weights in student.named_parameters()}
    student.zero_grad()
    with torch.no_grad():
        target = method.networks["teacher"](views).logits.softmax(1)
    trial = Trial(student, views, target, 0.2)
    one = trial.divergence(made.given[:8])
    one.backward(inputs=trial.weights)  # type: ignore[no-untyped-call]
    torch.testing.assert_close(found, one.detach())
    some = False
    for name, weights in student.named_parameters():
        by_trials = gradient[name]
        assert (by_trials is None) == (weights.grad is None)
        if by_trials is not None and weights.grad is not None:
            torch.testing.assert_close(by_trials, 2.0 * 0.5 * weights.grad, atol=1e-6, rtol=1e-3)
            some = True
    assert some


def test_neighbors_are_the_nearest_labeled_others() -> None:
    features = torch.tensor([[0.0], [1.0], [2.1], [3.3], [9.0]])
    labeled = torch.tensor([True, False, True, True, True])
    near, count = nearest_labeled(features, labeled, 2)
    assert count.tolist() == [2, 2, 2, 2, 2]
    assert near.tolist() == [[2, 3], [0, 2], [3, 0], [2, 0], [3, 2]]
    near, count = nearest_labeled(features, labeled, 10)
    assert count.tolist() == [3, 4, 3, 3, 3]
    assert near[0, :3].tolist() == [2, 3, 4]


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_share_of_the_labels_become_those_of_neighbors(share: float) -> None:
    labels = torch.tensor([0, 1, 2, 3, -1, 5])
    near, count = nearest_labeled(torch.arange(6.0).unsqueeze(1), labels >= 0, 2)
    generator, changed, seen = torch.Generator().manual_seed(0), [], set()
    for _ in range(1000):
        found = perturb(labels, near, count, share, generator)
        assert int(found[4]) == -1, "no label is made up"
        for i in (0, 1, 2, 3, 5):
            assert int(found[i]) in {int(labels[i]), *labels[near[i]].tolist()}
        changed.append(int((found != labels).sum()))
        seen.add(int(found[0]))
    assert max(changed) <= round(share * 6)
    assert np.mean(changed) == pytest.approx(share * 5, abs=0.06)
    assert seen == ({0, 1, 2} if 0 < share < 1 else {1, 2} if share else {0})


def test_alone_in_its_batch_a_label_stays() -> None:
    labels = torch.tensor([-1, 2, -1])
    near, count = nearest_labeled(torch.rand(3, 2), labels >= 0, 10)
    assert count.tolist() == [1, 0, 1]
    assert torch.equal(perturb(labels, near, count, 1.0, torch.Generator()), labels)


def test_without_the_divergence_the_student_is_that_of_cross_entropy() -> None:
    students: list[dict[str, torch.Tensor]] = []
    methods: list[Method] = [MLNT(MlntSettings(meta_from=0.0, alpha=0.0)), Mixup(MixupSettings(0.0))]
    for method in methods:
        make(method, given()).train()
        students.append(method.networks["main"].state_dict())
    assert all(torch.equal(value, students[1][name]) for name, value in students[0].items())


def test_meta_learning_starts_from_cross_entropy_and_the_teacher_predicts() -> None:
    """In the last of three epochs."""
    seen: list[set[str]] = []

    class Watched(MLNT):
        def losses(self, run: TrainerContext, batch: Batch) -> dict[str, torch.Tensor]:
            found = super().losses(run, batch)
            seen.append(set(found))
            if run.epoch == 2 and run.step == 0:
                copied = self.networks["start"].state_dict()
                assert torch.equal(
                    copied["classifier.weight"], self.networks["main"].state_dict()["classifier.weight"]
                )
            return found

    made = make(Watched(MlntSettings(meta_from=0.67)), given())
    trained = made.train()
    assert seen == [{"ce"}] * 4 + [{"ce", "meta"}] * 2
    assert trained.network is made.method.networks["teacher"]
    assert trained.notes == []
    one = make(MLNT(MlntSettings(meta_from=1.0)), given())
    alone = one.train()
    assert alone.network is one.method.networks["main"]
    assert "cross-entropy alone" in alone.notes[0]


def test_its_phases_are_fractions_of_the_epochs() -> None:
    assert MLNT().phases(60) == (0, 50)
    assert MLNT(MlntSettings(meta_from=0.0)).phases(60) == (0,)
    short = dataclasses.replace(SHORT, epochs=1)
    assert make(MLNT(MlntSettings(meta_from=0.0, trials=1)), given(), settings=short).train().notes == []


@pytest.mark.parametrize(
    "bad", [{"meta_from": 1.1}, {"perturbed": -0.1}, {"trials": 0}, {"k": 0}, {"meta_lr": -1.0}]
)
def test_settings_out_of_range_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(bad))} must be"):
        MlntSettings(**bad)
