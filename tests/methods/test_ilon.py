"""ILON: its losses by hand, its rounds, and what it takes for outliers."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from graphclean.methods.ilon import ILON, IlonSettings, pair_contrast
from graphclean.training import Trainer
from graphclean.training.batches import ResidentInputs
from graphclean.training.method import Batch
from graphclean.training.networks import Output
from tests.methods.test_conditions import SHORT, given, make
from tests.training.test_trainer import TINY, digits

pytestmark = pytest.mark.usefixtures("one_thread")


def test_the_contrast_of_pairs_by_hand() -> None:
    """Two clean of class 0, one clean of class 1, two noisy, one without a label."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    labels, noisy = [0, 0, 1, 0, 1, -1], [False, False, False, True, True, False]
    total, pairs = 0.0, 0
    for i in range(6):
        for j in range(6):
            if i == j or -1 in (labels[i], labels[j]) or (noisy[i] and noisy[j]):
                continue
            d = np.linalg.norm(x[i] - x[j])
            alike = labels[i] == labels[j] and not noisy[i] and not noisy[j]
            total += d**2 if alike else max(0, 1.2 - d) ** 2
            pairs += 1
    assert pairs == 6 + 12
    found = pair_contrast(torch.tensor(x), torch.tensor(labels), torch.tensor(noisy), 1.2)
    assert float(found) == pytest.approx(total / pairs)


def test_equal_features_have_a_gradient_and_no_pair_has_no_loss() -> None:
    same = torch.ones(3, 1, requires_grad=True)
    loss = pair_contrast(same, torch.tensor([0, 0, 1]), torch.zeros(3, dtype=torch.bool), 1.0)
    (gradient,) = torch.autograd.grad(loss, same)
    assert gradient.isfinite().all()
    none = pair_contrast(same, torch.tensor([0, -1, -1]), torch.zeros(3, dtype=torch.bool), 1.0)
    assert float(none.detach()) == 0


def test_noisy_samples_weigh_what_is_left_of_their_probability() -> None:
    labels = given()
    method = ILON(IlonSettings())
    made = make(method, labels)
    method.outlier[:4] = torch.tensor([0.9, 0.6, 0.5, 0.2])
    logits = torch.randn(8, 8, generator=torch.Generator().manual_seed(0))
    made.forward = lambda *_, **__: [Output(logits, logits, logits)]  # type: ignore[method-assign]
    batch = Batch(torch.arange(8), digits(8)[0], labels[:8])
    found = method.losses(made, batch)
    assert found.keys() == {"ce"}, "no contrast before the first round"
    each = -logits.log_softmax(1)[torch.arange(8), labels[:8]]
    weight = torch.tensor([0.1, 0.4, 1, 1, 1, 1, 1, 1])
    torch.testing.assert_close(found["ce"], (each * weight).mean())
    made.epoch = 1
    assert method.losses(made, batch).keys() == {"ce", "contrast"}


def test_rounds_follow_the_number_of_epochs() -> None:
    """Of 100 epochs every second from the fifth on, as in the paper's order; of few, each but the first."""
    method = ILON(IlonSettings())
    made = make(method, given(), settings=dataclasses.replace(SHORT, epochs=100))
    asked: list[int] = []
    method.find_outliers = lambda run: asked.append(run.epoch)  # type: ignore[method-assign]
    for made.epoch in range(100):
        method.begin_epoch(made)
    assert asked == list(range(5, 100, 2))
    asked.clear()
    made.settings = dataclasses.replace(SHORT, epochs=3)
    for made.epoch in range(3):
        method.begin_epoch(made)
    assert asked == [1, 2]


def test_factors_add_up_over_rounds_and_what_people_decided_is_no_outlier() -> None:
    method = ILON(IlonSettings(k=3))
    made = make(method, torch.zeros(16, dtype=torch.long))
    places = torch.randn(2, 16, 3, generator=torch.Generator().manual_seed(0))
    places[:, 5] = torch.tensor([-30.0, 0.1, 0.1])
    found = []
    for place in places:
        made.embed = lambda place=place, **_: Output(place, place, place)  # type: ignore[misc]
        method.find_outliers(made)
        found.append(method.factors.clone())
    alone = ILON(IlonSettings(k=3))
    other = make(alone, torch.zeros(16, dtype=torch.long))
    other.embed = made.embed
    alone.find_outliers(other)
    torch.testing.assert_close(found[1] - found[0], alone.factors)
    assert method.rounds == 2
    assert method.outlier.argmax() == method.factors.argmax()
    assert not bool(method.selection(made).selected[method.factors.argmax()])
    made.decided = torch.zeros(16, dtype=torch.long)
    method.find_outliers(made)
    assert not method.outlier.any()


@pytest.mark.slow
def test_wrong_labels_of_digits_are_more_often_outliers() -> None:
    pixels, labels, truth = digits(800)
    method = ILON()
    Trainer(ResidentInputs(pixels), labels, 8, TINY, method).train()
    wrong = labels != truth
    noisy = method.outlier > 0.5
    assert noisy[wrong].float().mean() > 1.5 * noisy[~wrong].float().mean()


@pytest.mark.parametrize(
    "bad",
    [
        {"k": 0}, {"warmup_fraction": 1.1}, {"round_fraction": 0.0}, {"margin": 0.0},
        {"lambda_contrast": -1.0},
    ],
)  # fmt: skip
def test_settings_out_of_range_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        IlonSettings(**bad)
