"""The seam for methods: networks, streams, parts and own optimizers, all of it resumed exactly."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from graphclean.training import EpochReport, InterruptedRun, Trainer
from graphclean.training.average import WeightAverage
from graphclean.training.batches import ResidentInputs
from graphclean.training.method import Batch, Method, MethodInfo, TrainerContext
from graphclean.training.networks import Ensemble
from tests.training.test_trainer import TINY, assert_same, digits

pytestmark = pytest.mark.usefixtures("one_thread")


@dataclasses.dataclass(frozen=True)
class NoSettings:
    """None."""


class Pair(Method):
    """Two networks in turn, each in a part of the epoch, on halves of the batch; a temperature of its own."""

    info = MethodInfo(name="pair", title="Two networks in turn", kind="selection", networks=2)
    Settings = NoSettings

    def __init__(self, stop: tuple[int, int, int] | None = None) -> None:
        super().__init__()
        self.stop, self.seen = stop, list[tuple[int, int, int]]()
        self.moved = list[dict[str, bool]]()

    def setup(self, run: TrainerContext) -> None:
        self.networks = nn.ModuleDict({"main": run.new_network(), "second": run.new_network()})
        self.weights = {"ce": 1.0, "scale": 0.1}
        self.temperature = nn.Parameter(torch.ones(()))
        self.register_buffer("counts", torch.zeros(len(run.given)))
        self.before = self.weights_now()

    def weights_now(self) -> dict[str, Tensor]:
        return {
            name: torch.cat([weights.detach().flatten() for weights in network.parameters()])
            for name, network in self.networks.items()
        }

    def predictor(self) -> nn.Module:
        return Ensemble(self.networks.values())

    def optimizers(self) -> dict[str, Optimizer]:
        return {"temperature": torch.optim.Adam([self.temperature], lr=0.01)}

    def parts(self, epoch: int) -> int:  # noqa: ARG002
        return 2

    def begin_epoch(self, run: TrainerContext) -> tuple[Tensor, ...]:
        return run.shuffle()[:, :32], run.shuffle()[:, :32]

    def losses(self, run: TrainerContext, first: Batch, second: Batch) -> dict[str, Tensor]:
        self.seen.append((run.epoch, run.part, run.step))
        name = ("main", "second")[run.part]
        views = torch.cat([run.weak_view(first.inputs), run.weak_view(second.inputs)])
        (out,) = run.forward(views, network=name)
        given = torch.cat([first.given, second.given])
        scaled = out.logits / self.temperature
        return {"ce": cross_entropy(scaled, given), "scale": (self.temperature - 2) ** 2}

    def after_step(self, run: TrainerContext, *batches: Any) -> None:
        for batch in batches:
            self.counts[batch.index] += 1
        now = self.weights_now()
        self.moved.append({name: not torch.equal(now[name], self.before[name]) for name in now})
        self.before = now
        if (run.epoch, run.part, run.step) == self.stop:
            assert isinstance(run, Trainer)
            run.request_stop()


def make(method: Pair, checkpoint: Path | None = None, **more: Any) -> Trainer:
    pixels, labels, _ = digits(120)
    settings = dataclasses.replace(TINY, epochs=3, batch_size=40, **more)
    return Trainer(ResidentInputs(pixels), labels, 8, settings, method, checkpoint=checkpoint)


def test_every_part_and_every_parameter_is_trained() -> None:
    method, reports = Pair(), list[EpochReport]()
    made = make(method)
    before = {name: value.clone() for name, value in method.state_dict().items()}
    made.train(on_epoch=lambda report, _: reports.append(report))
    assert method.seen == [(epoch, part, step) for epoch in range(3) for part in (0, 1) for step in range(3)]
    for name in ("main", "second"):
        moved = method.networks[name].classifier.weight
        assert not torch.equal(moved, before[f"networks.{name}.classifier.weight"])
    assert not torch.equal(*(before[f"networks.{name}.classifier.weight"] for name in ("main", "second")))
    assert 1 < method.temperature < 2
    assert method.counts.sum() == 2 * 32 * len(method.seen)
    one, other = {"main": True, "second": False}, {"main": False, "second": True}
    assert method.moved == 3 * (3 * [one] + 3 * [other]), "neither decay nor momentum move the other network"
    for report in reports:
        ce, scale = report.losses["ce"], report.losses["scale"]
        assert 0 < scale <= 1, "a mean over the steps of all parts"
        assert report.loss == pytest.approx(ce + 0.1 * scale)


def test_each_network_has_an_average_of_its_own_steps() -> None:
    """Against one that is updated by hand where the network was trained."""
    method = Pair()
    made = make(method, ema_decay=0.8)
    by_hand = {name: WeightAverage(network, 0.8) for name, network in method.networks.items()}
    plain = method.after_step

    def after_step(run: TrainerContext, *batches: Any) -> None:
        by_hand[("main", "second")[run.part]].update()
        plain(run, *batches)

    method.after_step = after_step  # type: ignore[method-assign]
    trained = made.train()
    for member, average in zip(trained.network.members, by_hand.values(), strict=True):  # type: ignore[arg-type]
        expected = average.save_state()
        assert expected.pop("updates") == 9
        torch.testing.assert_close(dict(member.state_dict()), expected, atol=0, rtol=0)


def test_networks_without_trained_weights_have_no_part_in_start_and_averages() -> None:
    class Frozen(Pair):
        def setup(self, run: TrainerContext) -> None:
            super().setup(run)
            self.networks["frozen"] = run.new_network().requires_grad_(False)
            self.before = self.weights_now()

    method = Frozen()
    made = make(method, ema_decay=0.8, self_supervised_epochs=1)
    before = method.networks["frozen"].state_dict()
    before = {name: value.clone() for name, value in before.items()}
    made.train()
    torch.testing.assert_close(dict(method.networks["frozen"].state_dict()), before, atol=0, rtol=0)
    assert not any(moved["frozen"] for moved in method.moved)


@pytest.mark.parametrize("more", [{}, {"ema_decay": 0.8, "self_supervised_epochs": 1}])
@pytest.mark.parametrize("stop", [(0, 0, 1), (1, 0, 0), (1, 0, 2), (1, 1, 1), (1, 1, 2), (2, 1, 2)])
def test_a_run_stopped_in_any_part_ends_as_if_nothing_had_been(
    tmp_path: Path, stop: tuple[int, int, int], more: dict[str, Any]
) -> None:
    whole, reports, later = Pair(), list[EpochReport](), list[EpochReport]()
    expected = make(whole, **more).train(on_epoch=lambda report, _: reports.append(report))
    with pytest.raises(InterruptedRun):
        make(Pair(stop), tmp_path, **more).train()
    resumed = Pair()
    found = make(resumed, tmp_path, **more).train(
        resume=True, on_epoch=lambda report, _: later.append(report)
    )
    assert_same(found, expected)
    torch.testing.assert_close(resumed.save_state(), whole.save_state(), atol=0, rtol=0)
    for ours, theirs in zip(later, reports[len(reports) - len(later) :], strict=True):
        same = [dataclasses.replace(report, seconds=0, clean_seconds=0) for report in (ours, theirs)]
        assert same[0] == same[1]


class Trunk(Method):
    """Classifies by a head of its own, and asks for the trunk's features of weak views."""

    info = MethodInfo(name="trunk", title="A head of its own", kind="ood")
    Settings = NoSettings

    def setup(self, run: TrainerContext) -> None:
        super().setup(run)
        self.heads["own"] = nn.Linear(128, run.n_classes)

    def begin_epoch(self, run: TrainerContext) -> tuple[Tensor, ...]:
        self.seen = run.embed(weak=True, features=True)
        return (run.shuffle(),)

    def losses(self, run: TrainerContext, batch: Batch) -> dict[str, Tensor]:
        (out,) = run.forward(run.weak_view(batch.inputs))
        return {"ce": cross_entropy(self.heads["own"](out.features), batch.given)}


def test_heads_are_trained_as_networks_are() -> None:
    """At the rate of the schedule, with momentum and decay: the classifier that has no loss stays."""
    pixels, labels, _ = digits(96)
    method = Trunk()
    made = Trainer(ResidentInputs(pixels), labels, 8, dataclasses.replace(TINY, epochs=2), method)
    before = {name: value.clone() for name, value in method.state_dict().items()}
    made.train()
    now = method.state_dict()
    assert not torch.equal(now["heads.own.weight"], before["heads.own.weight"])
    for name in ("classifier.weight", "projector.bias"):
        assert torch.equal(now[f"networks.main.{name}"], before[f"networks.main.{name}"])
    owners = [id(weights) for group in made.optimizers.sgd.param_groups for weights in group["params"]]
    assert id(method.heads["own"].weight) in owners


def test_a_pass_gives_features_and_weak_views_where_asked_for() -> None:
    pixels, labels, _ = digits(96)
    method = Trunk()
    made = Trainer(ResidentInputs(pixels), labels, 8, TINY, method)
    plain, full = made.embed(), made.embed(features=True)
    assert plain.features is None
    assert full.features is not None
    assert torch.equal(full.logits, plain.logits)
    assert full.features.shape == (96, 128)
    head = method.networks["main"].forward_head(full.features)
    torch.testing.assert_close((head.logits, head.z), (plain.logits, plain.z))
    weak = made.embed(weak=True, features=True)
    assert weak.features is not None
    assert not torch.equal(weak.features, full.features)
    still = dataclasses.replace(TINY, crop_padding=0)
    same = Trainer(ResidentInputs(pixels), labels, 8, still, Trunk())
    assert torch.equal(same.embed(weak=True).z, same.embed().z)
    rows = torch.tensor([7, 90, 2])
    some = made.embed(features=True, rows=rows)
    assert some.features is not None
    torch.testing.assert_close((some.features, some.logits), (full.features[rows], full.logits[rows]))
