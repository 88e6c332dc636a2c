"""C2D: a start without labels, and DivideMix from there."""

import dataclasses

import pytest
import torch

from graphclean.methods.c2d import C2D, C2DSettings
from graphclean.methods.dividemix import DivideMix, DivideMixSettings
from graphclean.training import EpochReport
from graphclean.training.method import Batch
from graphclean.training.self_supervised import SelfSupervisedStart
from tests.methods.test_conditions import SHORT, given, make

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_third_of_the_epochs_is_without_labels() -> None:
    reports: list[EpochReport] = []
    six = dataclasses.replace(SHORT, epochs=6)
    method = C2D()
    made = make(method, given(), settings=six)
    made.train(on_epoch=lambda report, _: reports.append(report))
    assert method.phases(6) == (0, 2)
    assert [report.losses["inst"] > 0 for report in reports] == [True] * 2 + [False] * 4
    assert [report.losses["ce"] > 0 for report in reports] == [False] * 2 + [True] * 4
    assert [report.losses["prior"] > 0 for report in reports] == [False] * 3 + [True] * 3
    assert reports[1].lr < reports[2].lr, "the rate starts over"


def test_no_label_has_a_part_in_the_start() -> None:
    ends = []
    for labels in (given(), given().flip(0)):
        method = C2D(C2DSettings(start_fraction=0.6))
        made = make(method, labels, settings=dataclasses.replace(SHORT, epochs=4))
        made.settings = dataclasses.replace(made.settings, epochs=2)
        made.train()
        ends.append(method.networks.state_dict())
    for name, value in ends[0].items():
        assert torch.equal(value, ends[1][name]), name


def test_its_loss_in_the_start_is_that_of_self_supervised_epochs() -> None:
    found = []
    for name in ("method", "start"):
        method = C2D()
        made = make(method, given())
        batch = next(iter(made.inputs.stream(torch.arange(8)[None])))
        one = Batch(torch.arange(8), batch, made.given[:8])
        if name == "method":
            found.append(method.losses(made, one))
        else:
            found.append(SelfSupervisedStart(("main", "second")).losses(made, one))
    torch.testing.assert_close(found[0], found[1], atol=0, rtol=0)


@pytest.mark.parametrize(("epochs", "start", "warmup"), [(60, 20, 4), (300, 99, 5), (360, 119, 5), (2, 1, 1)])
def test_warmup_is_shorter_and_follows_the_start(epochs: int, start: int, warmup: int) -> None:
    method = C2D()
    made = make(method, given(), settings=dataclasses.replace(SHORT, epochs=epochs))
    assert method.phases(epochs) == (0, start)
    assert method.warmup_end(made) == start + warmup
    assert (method.parts(start - 1), method.parts(start)) == (1, 2)


def test_epochs_without_labels_of_the_trainer_take_its_place_and_without_any_it_is_dividemix() -> None:
    method = C2D()
    make(method, given(), settings=dataclasses.replace(SHORT, self_supervised_epochs=2))
    assert method.phases(60) == (0,)
    plain = make(DivideMix(DivideMixSettings(warmup_epochs=1)), given()).train()
    same = make(C2D(C2DSettings(start_fraction=0, warmup_epochs=1)), given()).train()
    torch.testing.assert_close(same.logits, plain.logits, atol=1e-4, rtol=0)


@pytest.mark.parametrize("fraction", [-0.1, 1.0])
def test_a_start_without_an_end_is_refused(fraction: float) -> None:
    with pytest.raises(ValueError, match="start_fraction must be at least 0 and less than 1"):
        C2DSettings(start_fraction=fraction)
