"""Decoupling against its formula, and what it does where the networks never disagree."""

import dataclasses

import pytest
import torch

from graphclean.methods.decoupling import Decoupling, DecouplingSettings
from graphclean.training.method import TrainerContext
from tests.methods.pairs import K, N, draw, oracle_disagreement, oracle_losses, start, step
from tests.methods.test_conditions import SHORT, given, make


@pytest.mark.parametrize("agreeing", [0, N - 6, N])
def test_it_learns_where_the_networks_disagree(agreeing: int) -> None:
    """Divided by what it learns from, but by a tenth of the batch at least."""
    logits, labels = draw()
    logits[:agreeing, K:] = logits[:agreeing, :K]
    method = Decoupling()
    run = start(method, labels)
    found = step(method, run, logits)
    mask = (labels >= 0) & oracle_disagreement(logits)
    assert mask.any() == (agreeing < N)
    for name, losses in zip(("ce", "ce_second"), oracle_losses(logits, labels), strict=True):
        expected = losses[mask].sum() / max(0.1 * (N - 3), mask.sum())
        assert float(found[name]) == pytest.approx(expected, rel=1e-5)
    assert method.metrics(run)["disagreement"] == pytest.approx(oracle_disagreement(logits).mean())


def test_the_first_epochs_learn_from_all() -> None:
    logits, labels = draw()
    method = Decoupling()
    found = step(method, start(method, labels, epoch=0), logits)
    for name, losses in zip(("ce", "ce_second"), oracle_losses(logits, labels), strict=True):
        assert float(found[name]) == pytest.approx(losses[labels >= 0].mean(), rel=1e-5)


class Twins(Decoupling):
    """Two networks with the same first weights."""

    def setup(self, run: TrainerContext) -> None:
        super().setup(run)
        self.networks["second"].load_state_dict(self.networks["main"].state_dict())
        self.first = {name: value.detach().clone() for name, value in self.networks.named_parameters()}


@pytest.mark.parametrize("warmup", [0, 1])
def test_equal_networks_stay_as_they_are(warmup: int) -> None:
    """Without warm-up they never learn anything, and with it they stay equal."""
    settings = dataclasses.replace(SHORT, weight_decay=0.0)
    made = make(Twins(DecouplingSettings(warmup_epochs=warmup)), given(), settings=settings)
    made.train()
    method = made.method
    assert isinstance(method, Twins)
    now = dict(method.networks.named_parameters())
    assert all(torch.equal(now[name], value) for name, value in method.first.items()) == (warmup == 0)
    pairs = zip(*(method.networks[name].parameters() for name in ("main", "second")), strict=True)
    assert all(torch.equal(*pair) for pair in pairs)


def test_a_batch_without_labels_teaches_nothing() -> None:
    logits, labels = draw(unlabeled=N)
    method = Decoupling()
    found = step(method, start(method, labels), logits)
    assert [float(loss) for loss in found.values()] == [0, 0]


def test_a_warm_up_of_less_than_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="warmup_epochs must be at least 0"):
        DecouplingSettings(warmup_epochs=-1)


def test_both_networks_are_told_apart_by_their_weights() -> None:
    made = make(Decoupling(), given())
    first, second = (made.method.networks[name].classifier.weight for name in ("main", "second"))
    assert not torch.equal(first, second)
    assert made.method.predictor() is made.method.networks["main"]
