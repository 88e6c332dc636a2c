"""D2L: where it turns, what it then goes back to, and its targets."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import log_softmax

from graphclean.methods.d2l import D2L, D2LSettings, given_weight
from graphclean.training import InterruptedRun, Trainer
from graphclean.training.method import TrainerContext
from tests.methods.test_conditions import SHORT, given, make
from tests.methods.test_mixup import batch_of, run_of_logits

LONG = dataclasses.replace(SHORT, epochs=6)


class Scripted(D2L):
    """Is told the dimensionality before every epoch."""

    script = (9.0, 4.0, 3.0, 3.1, 8.0, 8.5)
    stop: int | None = None

    def setup(self, run: TrainerContext) -> None:
        super().setup(run)
        self.seen: list[dict[str, torch.Tensor]] = []
        """Weights before every epoch, then after it was begun."""

    def _measure(self, run: TrainerContext) -> float:
        super()._measure(run)
        return self.script[run.epoch]

    def begin_epoch(self, run: TrainerContext) -> tuple[torch.Tensor, ...]:
        network = self.networks["main"]
        self.seen.append({name: value.clone() for name, value in network.state_dict().items()})
        found = super().begin_epoch(run)
        self.seen.append({name: value.clone() for name, value in network.state_dict().items()})
        if run.epoch == self.stop:
            assert isinstance(run, Trainer)
            run.request_stop()
        return found


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(value, other[name]) for name, value in one.items())


SOON = D2LSettings(warmup_fraction=0.17, window=2)
"""Of six epochs one is warm-up, so that it may turn from the fourth on."""


def test_weights_go_back_by_an_epoch_where_the_dimensionality_jumps() -> None:
    """Before the fifth epoch: before the fourth it is above the last two, by less than two deviations."""
    made = make(Scripted(SOON), given(), settings=LONG)
    made.train()
    method = made.method
    assert isinstance(method, Scripted)
    assert int(method.turned) == 4
    before, after = method.seen[::2], method.seen[1::2]
    assert same(after[4], before[3])
    assert not same(after[4], before[4])
    for epoch in (0, 1, 2, 3, 5):
        assert same(after[epoch], before[epoch])
    assert method.notes(made) == []


@pytest.mark.parametrize(("warmup", "window"), [(0.5, 2), (0.25, 3), (1.0, 1)])
def test_it_does_not_turn_before_warmup_and_window(warmup: float, window: int) -> None:
    settings = dataclasses.replace(LONG, epochs=4)

    class Early(Scripted):
        script = (1.0, 2.0, 4.0, 9.0, 0.0, 0.0)

    made = make(Early(D2LSettings(warmup, window)), given(), settings=settings)
    trained = made.train()
    assert "no turning point" in trained.notes[0]
    assert float(made.method.alpha) == 1


def test_given_labels_weigh_less_with_the_epochs_and_the_dimensionality() -> None:
    lids = torch.tensor([9.0, 4.0, 3.0, 6.0])
    assert given_weight(lids, 0.5) == pytest.approx(np.exp(-0.5 * 6 / 3))
    assert given_weight(lids[:3], 0.5) == pytest.approx(np.exp(-0.5 * 3 / 4))
    assert given_weight(lids[:1], 0.0) == 1
    made = make(Scripted(SOON), given(), settings=LONG)
    reports: list[dict[str, Any]] = []
    made.train(on_epoch=lambda report, _: reports.append(report.own))
    assert [report["lid"] for report in reports] == pytest.approx(Scripted.script)
    expected = [1, 1, 1, 1, np.exp(-4 / 6 * 8 / 3), np.exp(-5 / 6 * 8.5 / 3)]
    assert [report["alpha"] for report in reports] == pytest.approx(expected)


@pytest.mark.parametrize("alpha", [1.0, 0.3])
def test_the_loss_is_that_of_the_formula(alpha: float) -> None:
    labels = [0, 3, -1, 1, 2]
    batch = batch_of(labels)
    method = make(D2L(), batch.given, 4).method
    assert isinstance(method, D2L)
    method.alpha.fill_(alpha)
    found = method.losses(run_of_logits(), batch)
    log_p = log_softmax(batch.inputs.double().numpy(), axis=1)
    expected = [
        -alpha * log_p[i, label] - (1 - alpha) * log_p[i].max()
        for i, label in enumerate(labels)
        if label >= 0
    ]
    assert float(found["ce"]) == pytest.approx(np.mean(expected), rel=1e-5)


def test_the_measure_is_that_of_random_samples_and_draws_nothing_from_the_run() -> None:
    made = make(D2L(), given(300), settings=dataclasses.replace(SHORT, batch_size=32))
    method = made.method
    assert isinstance(method, D2L)
    state = made.generator.get_state()
    first = method._measure(made)
    assert first > 0
    assert method._measure(made) == first
    assert torch.equal(made.generator.get_state(), state)
    made.epoch = 1
    assert method._measure(made) != first


def test_too_few_samples_repeat_the_last_measure() -> None:
    made = make(D2L(), given(2), settings=dataclasses.replace(SHORT, batch_size=2))
    method = made.method
    assert isinstance(method, D2L)
    assert method._measure(made) == 0
    method.lids[0], made.epoch = 3.0, 1
    assert method._measure(made) == 3


@pytest.mark.parametrize("stop", [3, 4, 5])
def test_a_run_resumed_around_the_turning_point_equals_a_whole_one(stop: int, tmp_path: Path) -> None:
    whole = make(Scripted(SOON), given(), settings=LONG)
    expected = whole.train()
    method = Scripted(SOON)
    method.stop = stop
    with pytest.raises(InterruptedRun):
        make(method, given(), checkpoint=tmp_path, settings=LONG).train()
    resumed = make(Scripted(SOON), given(), checkpoint=tmp_path, settings=LONG)
    found = resumed.train(resume=True)
    assert torch.equal(found.logits, expected.logits)
    states = resumed.method.save_state(), whole.method.save_state()
    torch.testing.assert_close(*states, atol=0, rtol=0)


@pytest.mark.parametrize("bad", [{"warmup_fraction": -0.1}, {"window": 0}])
def test_settings_out_of_range_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(bad))} must be"):
        D2LSettings(**bad)
