"""Judging by an average of the weights: its arithmetic, where it is used, and where it is not."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import nn

from graphclean.methods.cross_entropy import CrossEntropy
from graphclean.training import EpochReport
from graphclean.training.average import WeightAverage
from graphclean.training.inference import embed_new
from graphclean.training.method import Selection, TrainerContext
from tests.training.test_trainer import TINY, Watched, assert_same, trainer

pytestmark = pytest.mark.usefixtures("one_thread")

PLAIN = {"weak": False, "features": False}
AVERAGED = dataclasses.replace(TINY, ema_decay=0.9)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))


def test_the_average_is_that_of_its_definition() -> None:
    """Against a plain loop in double precision, with the decay's start at 1/10, 2/11, …"""
    trained, decay = network(), 0.3
    average = WeightAverage(trained, decay)
    expected = {name: value.double().clone() for name, value in trained.state_dict().items()}
    for step in range(12):
        trained(torch.randn(5, 3))
        for weights in trained.parameters():
            weights.data.add_(torch.randn_like(weights))
        average.update()
        share = min(decay, (1 + step) / (10 + step))
        for name, value in trained.state_dict().items():
            if value.is_floating_point():
                expected[name] = share * expected[name] + (1 - share) * value.double()
            else:
                expected[name] = value.double()
    found = average.save_state()
    assert found.pop("updates") == 12
    assert found.keys() == expected.keys()
    for name, value in found.items():
        assert torch.allclose(value.double(), expected[name], atol=1e-6), name
    assert found["1.num_batches_tracked"] == 12
    assert not torch.equal(found["1.running_mean"], trained.state_dict()["1.running_mean"])


def test_judging_borrows_the_weights_and_gives_them_back_also_after_an_error() -> None:
    trained = network()
    average = WeightAverage(trained, 0.9)
    weights = trained[0].weight
    place = weights.data_ptr()
    for value in trained.parameters():
        value.data.add_(1)
    before = {name: value.clone() for name, value in trained.state_dict().items()}
    held = average.save_state()
    with average.judging():
        assert torch.equal(weights, held["0.weight"])
        assert trained[0].weight is weights  # the same tensor in the same place, as compiled code needs
        assert weights.data_ptr() == place
    with pytest.raises(KeyError), average.judging():
        raise KeyError
    for name, value in trained.state_dict().items():
        assert torch.equal(value, before[name]), name
    average.restart()
    assert torch.equal(average.save_state()["0.weight"], before["0.weight"])


@pytest.mark.parametrize("decay", [0.0, 0.9])
def test_steps_do_not_know_of_the_average_and_every_pass_is_by_it(decay: float) -> None:
    """Cross-entropy asks for no pass, so that its weights are the same with an average and without."""
    plain = trainer(TINY, CrossEntropy())
    plain.train()
    last = {name: value.clone() for name, value in plain.method.networks.state_dict().items()}
    made = trainer(dataclasses.replace(TINY, ema_decay=decay), CrossEntropy())
    kept: list[dict[str, torch.Tensor]] = []

    def keep(_report: EpochReport, _: Selection) -> None:
        kept[:] = [{name: value.clone() for name, value in made.method.networks.state_dict().items()}]

    result = made.train(on_epoch=keep)
    for name, value in kept[0].items():
        assert torch.equal(value, last[name]), name
    images = made.inputs.inputs  # type: ignore[attr-defined]
    z = embed_new(result.network, images).z
    assert torch.allclose(z, result.z, atol=1e-5)  # the network that is saved is the one that judged
    same = all(
        torch.equal(value, last[f"main.{name}"]) for name, value in result.network.state_dict().items()
    )
    assert same == (decay == 0)


def test_what_the_method_is_shown_is_the_average() -> None:
    """In the middle of training, where weights and average are apart."""
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    made = trainer(AVERAGED, Watched())
    plain = made.method.begin_epoch

    def begin(run: TrainerContext) -> Any:
        if run.epoch == 2:
            shown = run.embed().z
            weights = {name: value.clone() for name, value in made.method.networks.state_dict().items()}
            made._averages["main"].settle()
            seen.append((shown, made._embed(made.method.networks["main"], made.inputs, **PLAIN).z))
            made.method.networks.load_state_dict(weights)
            seen.append((shown, made._embed(made.method.networks["main"], made.inputs, **PLAIN).z))
        return plain(run)

    made.method.begin_epoch = begin  # type: ignore[method-assign]
    made.train()
    (shown, average), (_, weights) = seen
    assert torch.equal(shown, average)
    assert not torch.allclose(shown, weights, atol=1e-3)


def test_a_decay_of_next_to_nothing_is_the_weights() -> None:
    """So that judging by the average is judging by the last step's weights."""
    found = trainer(dataclasses.replace(TINY, ema_decay=1e-30)).train()
    assert_same(found, trainer().train())


@pytest.mark.parametrize("decay", [-0.1, 1.0])
def test_a_decay_that_is_none_is_refused(decay: float) -> None:
    with pytest.raises(ValueError, match="ema_decay must be at least 0 and less than 1"):
        dataclasses.replace(TINY, ema_decay=decay)
