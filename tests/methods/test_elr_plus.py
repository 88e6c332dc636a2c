"""ELR+ against its formulas; and where it is ELR."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax
from torch import nn

from graphclean.methods.blocks.supervised import labeled_partners
from graphclean.methods.elr_plus import STUDENTS, TEACHERS, ELRPlus, ElrPlusSettings
from graphclean.training.augment import draw_beta
from graphclean.training.method import Batch
from graphclean.training.networks import Ensemble, Output
from tests.methods import test_elr
from tests.methods.test_conditions import given, make

pytestmark = pytest.mark.usefixtures("one_thread")
N, K = 12, 4
SLOPE = {"main": 1.0, "second": 0.8, "main-teacher": 0.5, "second-teacher": -0.7}
"""Logits are that many times the inputs."""


def start(labels: np.ndarray, slope: dict[str, float] = SLOPE, **settings: float) -> tuple[ELRPlus, Any]:
    run: Any = SimpleNamespace(given=torch.as_tensor(labels), n_classes=K, device=torch.device("cpu"))
    run.new_network = nn.Identity
    run.generator = torch.Generator().manual_seed(3)
    run.weak_view = lambda inputs: inputs
    run.forward = lambda inputs, network: [Output(slope[network] * inputs, inputs)]
    run.settings, run.batch_size, run.epoch, run.step, run.part = SimpleNamespace(epochs=10), 4, 0, 0, 0
    method = ELRPlus(ElrPlusSettings(**settings))
    method.setup(run)
    return method, run


@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("beta", [0.7, 0.9])
def test_the_losses_are_those_of_the_formulas(alpha: float, beta: float) -> None:
    """Each network's targets come from the teacher of the other one, by the images as they are."""
    rng, labels, _ = test_elr.draw()
    labels[[2, 7]] = -1
    method, run = start(labels, mixup_alpha=alpha, beta=beta)
    store = np.zeros((2, N, K))
    mirror = torch.Generator().manual_seed(3)
    for step in range(8):
        run.part = step % 2
        index = rng.permutation(N)[:6]
        inputs = rng.normal(0, 2, (6, K)).astype(np.float32)
        found = method.losses(run, Batch(torch.as_tensor(index), torch.as_tensor(inputs), run.given[index]))
        y, labeled = labels[index], labels[index] >= 0
        lam, partner = 1.0, np.arange(6)
        if alpha:
            drawn = float(draw_beta(alpha, alpha, mirror))
            lam = max(drawn, 1 - drawn)
            partner = labeled_partners(torch.as_tensor(labeled), mirror).numpy()
        taught = softmax(SLOPE[TEACHERS[1 - run.part]] * inputs.astype(np.float64), 1).clip(1e-4, 1 - 1e-4)
        t = beta * store[run.part, index] + (1 - beta) * taught / taught.sum(1, keepdims=True)
        store[run.part, index] = t
        z = SLOPE[STUDENTS[run.part]] * (lam * inputs + (1 - lam) * inputs[partner]).astype(np.float64)
        rows, log_p = np.arange(6), log_softmax(z, 1)
        ce = -(lam * log_p[rows, y] + (1 - lam) * log_p[rows, y[partner]])[labeled].mean()
        q = lam * t + (1 - lam) * t[partner]
        regularization = np.log(1 - (q * softmax(z, 1).clip(1e-4, 1 - 1e-4)).sum(1)).mean()
        assert (float(found["ce"]), float(found["elr"])) == pytest.approx(
            (ce, regularization), rel=1e-4, abs=1e-5
        )
        np.testing.assert_allclose(method.targets.numpy(), store, atol=1e-6)


def test_with_one_network_that_teaches_itself_and_no_mixing_it_is_elr() -> None:
    rng, labels, _ = test_elr.draw()
    labels[4] = -1
    plus, run = start(labels, dict.fromkeys(SLOPE, 1.0), mixup_alpha=0)
    elr, other = test_elr.start(labels)
    for _ in range(4):
        index = rng.permutation(N)[:5].tolist()
        logits = torch.as_tensor(rng.normal(0, 2, (5, K)), dtype=torch.float32)
        rows = torch.as_tensor(index)
        found = plus.losses(run, Batch(rows, logits, run.given[rows]))
        torch.testing.assert_close(found, test_elr.step(elr, other, index, logits))
    torch.testing.assert_close(plus.targets[0], elr.targets)
    assert not plus.targets[1].any()


def test_the_teachers_memory_grows_to_the_releases_part_of_an_epoch() -> None:
    """390 steps of 128 samples: 0.997 once the ramp is over; with a tenth of the steps, its tenth power."""
    method, run = start(np.zeros(N, int))
    run.given = torch.zeros(390 * 128)
    run.settings = SimpleNamespace(epochs=200)
    for size, full in ((128, 0.997), (1280, 0.997**10)):
        run.batch_size = size
        run.epoch = 150
        assert method.decay(run) == pytest.approx(full)
        run.epoch = 0
        assert method.decay(run) == pytest.approx(full * np.exp(-5))
        run.epoch, run.step = 49, 390 * 128 // size  # a quarter of the run: half of the ramp
        assert method.decay(run) == pytest.approx(full * np.exp(-5 / 4))
        run.step = 0


def test_the_weight_ramps_up_where_wanted() -> None:
    _, labels, logits = test_elr.draw()
    rows = torch.arange(N)
    found = []
    for ramp in (0.0, 0.4):
        method, run = start(labels, lambda_ramp=ramp, mixup_alpha=0)
        run.epoch = 2
        found.append(float(method.losses(run, Batch(rows, torch.as_tensor(logits), run.given))["elr"]))
    assert found[1] == pytest.approx(found[0] * np.exp(-5 * 0.5**2))


def test_each_teacher_follows_its_own_student_and_both_students_predict() -> None:
    method = ELRPlus()
    made = make(method, given(64))
    made.epoch = made.settings.epochs - 1
    made._state = made._begin_part(None, None)
    before = {name: value.clone() for name, value in method.networks.named_parameters()}
    made._run_part(made._state, 2)
    moved = {
        name.split(".")[0]
        for name, value in method.networks.named_parameters()
        if not torch.equal(value, before[name])
    }
    assert moved == {"main", "main-teacher"}
    assert method.decay(made) < 1
    predictor = method.predictor()
    assert isinstance(predictor, Ensemble)
    assert list(predictor.members) == [method.networks[name] for name in STUDENTS]


def test_selected_are_those_whose_label_the_teachers_agree_with() -> None:
    method, run = start(np.arange(N) % K)
    method.targets[0] = torch.eye(K)[(torch.arange(N) + 1) % K] * 0.4
    method.targets[1, :5] = torch.eye(K)[torch.arange(5) % K] * 0.5
    selection = method.selection(run)
    assert selection.selected.tolist() == [True] * 5 + [False] * 7
    assert selection.labels[5:].tolist() == [(i + 1) % K for i in range(5, N)]


@pytest.mark.parametrize(
    "bad",
    [
        {"beta": 1.0},
        {"lambda_elr": -1.0},
        {"lambda_ramp": 2.0},
        {"mixup_alpha": -1.0},
        {"teacher_decay": 1.0},
    ],
)
def test_settings_out_of_range_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(bad))} must be"):
        ElrPlusSettings(**bad)
