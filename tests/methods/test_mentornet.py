"""MentorNet's weights against their formulas: the running percentile, the curriculum, the dropout."""

import numpy as np
import pytest
import torch
from scipy.special import log_softmax

from graphclean.methods.mentornet import MentorNetPD, MentorNetPDSettings
from tests.methods.pairs import K, N, draw, start, step

QUIET = {"burn_in_dropout": 0.0, "dropout": 0.0}


def make(**settings: float) -> MentorNetPD:
    return MentorNetPD(MentorNetPDSettings(**{**QUIET, **settings}))


def losses_of(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    found: np.ndarray = -log_softmax(logits[:, :K].astype(np.float64), axis=1)[np.arange(N), labels]
    return found


def curriculum(over: np.ndarray, past: float, gamma: float) -> np.ndarray:
    """The formula, for a part of the epochs that is past."""
    if past < 0.18:
        return np.ones_like(over)
    if past < 0.9:
        return (over <= 0).astype(float)
    return np.clip(1 - over / gamma, 0, 1)


@pytest.mark.parametrize("epoch", [0, 17, 18, 50, 89, 90, 99])
@pytest.mark.parametrize("gamma", [1.0, 3.0])
def test_weights_are_those_of_the_curriculum(epoch: int, gamma: float) -> None:
    logits, labels = draw()
    method = make(gamma=gamma)
    run = start(method, labels, epoch=epoch, epochs=100)
    known, level = labels >= 0, 0.0
    for scale in (1.0, 0.5, 2.0):
        losses = losses_of(scale * logits, labels)
        level = 0.5 * level + 0.5 * np.percentile(losses[known], 75, method="nearest")
        found = step(method, run, np.float32(scale) * logits)
        weights = curriculum(losses - level, epoch / 100, gamma)
        assert float(method.level) == pytest.approx(level, rel=1e-5)
        np.testing.assert_allclose(method.weight_of, weights * known, atol=1e-5)
        assert float(found["ce"]) == pytest.approx((weights * losses)[known].mean(), rel=1e-4)
    assert method.selection(run).selected.tolist() == ((weights > 0.5) & known).tolist()
    assert method.metrics(run)["mean_weight"] == pytest.approx(weights[known].mean(), rel=1e-4)


@pytest.mark.parametrize("percentile", [0.0, 0.3, 0.75, 1.0])
def test_the_running_percentile_becomes_that_of_losses_that_stay(percentile: float) -> None:
    logits, labels = draw()
    method = make(loss_percentile=percentile)
    run = start(method, labels)
    for _ in range(30):
        step(method, run, logits)
    expected = np.percentile(losses_of(logits, labels)[labels >= 0], 100 * percentile, method="nearest")
    assert float(method.level) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("epoch", "left"), [(0, 0.5), (50, 0.95)])
def test_a_fraction_of_each_batch_is_left_out_at_random(epoch: int, left: float) -> None:
    """Exactly, and all labeled samples equally often."""
    logits, labels = draw(unlabeled=20)
    method = MentorNetPD(MentorNetPDSettings(loss_percentile=1.0, percentile_decay=0.0))
    run = start(method, labels, epoch=epoch, epochs=100)
    often = np.zeros(N)
    for _ in range(200):
        leaf = torch.tensor(logits, requires_grad=True)
        step(method, run, leaf)["ce"].backward()
        assert leaf.grad is not None
        learned = leaf.grad.abs().sum(1).numpy() > 0
        assert learned.sum() == int(left * 20)
        often += learned
    assert not often[:20].any()
    assert often[20:] / 200 == pytest.approx(left, abs=0.15)


def test_a_batch_without_labels_changes_nothing() -> None:
    logits, labels = draw()
    method = make()
    run = start(method, labels)
    step(method, run, logits)
    level = method.level.clone()
    run.given = torch.full((N,), -1)
    assert float(step(method, run, logits)["ce"]) == 0
    assert torch.equal(method.level, level)


@pytest.mark.parametrize(
    "bad",
    [
        {"loss_percentile": 1.1},
        {"burn_in": -0.1},
        {"percentile_decay": 1.0},
        {"dropout": 1.0},
        {"burn_in_dropout": -1.0},
        {"soften_from": 2.0},
        {"gamma": 0.0},
    ],
)
def test_settings_out_of_range_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(bad))} must be"):
        MentorNetPDSettings(**bad)
