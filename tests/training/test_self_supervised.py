"""The start without labels: it uses none, it learns, and training goes on from its weights."""

import dataclasses
from pathlib import Path

import pytest
import torch
from torch import Tensor

from graphclean.methods.cross_entropy import CrossEntropy
from graphclean.training import DivergedError, InterruptedRun, Trainer
from graphclean.training.batches import ResidentInputs
from graphclean.training.losses import contrastive_losses
from graphclean.training.method import Batch
from graphclean.training.self_supervised import TEMPERATURE
from tests.training.test_trainer import TINY, assert_same, digits, ngc, trainer

pytestmark = pytest.mark.usefixtures("one_thread")

STARTED = dataclasses.replace(TINY, epochs=2, self_supervised_epochs=3)


def weights_after_the_start(labels: Tensor, pixels: Tensor) -> dict[str, Tensor]:
    made = Trainer(ResidentInputs(pixels), labels, 8, STARTED, CrossEntropy())
    found: dict[str, Tensor] = {}

    def keep(done: int, total: int) -> None:
        assert total == 3
        if done == total:
            found.update({name: value.clone() for name, value in made.method.networks.state_dict().items()})

    made.train(on_start=keep)
    return found


def test_no_label_has_a_part_in_it() -> None:
    """Other labels, fewer of them or none: the weights are the same to the bit."""
    pixels, labels, _ = digits(150)
    expected = weights_after_the_start(labels, pixels)
    permuted = labels[torch.randperm(150, generator=torch.Generator().manual_seed(1))]
    missing = torch.where(torch.arange(150) % 3 == 0, -1, labels)
    assert not torch.equal(permuted, labels)
    for others in (permuted, missing, torch.zeros_like(labels)):
        found = weights_after_the_start(others, pixels)
        for name, value in expected.items():
            assert torch.equal(found[name], value), name
    assert not torch.equal(
        weights_after_the_start(labels, pixels.flip(0))["main.trunk.0.weight"],
        expected["main.trunk.0.weight"],
    )


def test_the_classifier_waits_and_the_rest_learns() -> None:
    pixels, labels, _ = digits(150)
    first = trainer(STARTED, CrossEntropy(), n=150).method.networks.state_dict()
    found = weights_after_the_start(labels, pixels)
    for name, value in found.items():
        assert torch.equal(value, first[name]) == name.startswith("main.classifier"), name


@pytest.mark.slow
def test_classes_come_apart_that_nobody_named() -> None:
    """More of the 30 nearest are of the same class than by the first weights."""
    pixels, labels, truth = digits(600)

    def agreement(z: Tensor) -> float:
        similarity = z @ z.T
        similarity.fill_diagonal_(-1)
        return float((truth[similarity.topk(30).indices] == truth.unsqueeze(1)).float().mean())

    settings = dataclasses.replace(TINY, epochs=1, self_supervised_epochs=10, self_supervised_crop=1, lr=0.1)
    made = Trainer(ResidentInputs(pixels), labels, 8, settings, ngc())
    found = [agreement(made.embed().z)]
    losses: list[Tensor] = []
    plain = made._start.losses

    def watch(run: object, batch: object) -> dict[str, Tensor]:
        terms = plain(run, batch)  # type: ignore[arg-type]
        losses.append(terms["inst"].detach())
        return terms

    made._start.losses = watch  # type: ignore[method-assign]
    made.train(
        on_start=lambda done, total: found.append(agreement(made.embed().z)) if done == total else None
    )
    assert torch.stack(losses[-10:]).mean() < torch.stack(losses[:10]).mean() - 0.3
    assert found[1] > found[0] + 0.1


def test_its_loss_is_eq_5_of_both_views() -> None:
    made = trainer(STARTED)
    (order,) = made._start.begin_epoch(made)
    state = made.generator.get_state()
    images = made.inputs.inputs[order[0]]  # type: ignore[attr-defined]
    (loss,) = made._start.losses(made, Batch(order[0], images, made.given[order[0]])).values()
    made.generator.set_state(state)
    (out,) = made.forward(made.views(images, smallest=STARTED.self_supervised_crop))
    weak, strong = out.z.chunk(2)
    alone = torch.arange(len(weak))  # each a class of its own: no two are positives
    for positives in ("paper", "release"):
        expected = contrastive_losses(
            weak, strong, alone, torch.ones_like(alone), tau_inst=TEMPERATURE, positives=positives
        ).inst
        assert torch.allclose(loss, expected, atol=1e-6)


def test_its_learning_rate_is_a_cosine_of_its_own_and_momentum_starts_again() -> None:
    settings = dataclasses.replace(STARTED, lr_warmup_epochs=1.0)
    made = trainer(settings)
    rates: list[tuple[int, int, float]] = []
    plain = made._step

    def watch(batches: object) -> Tensor:
        rates.append((made.started, made.epoch, made.optimizers.lr))
        if (made.started, made.epoch, made.step) == (3, 0, 0):
            assert all(not state["momentum_buffer"].any() for state in made.optimizers.sgd.state.values())
        return plain(batches)  # type: ignore[arg-type]

    made._step = watch  # type: ignore[method-assign]
    made.train()
    steps = len(rates) // 5
    start, later = rates[: 3 * steps], rates[3 * steps :]
    assert {(started, epoch) for started, epoch, _ in start} == {(0, 0), (1, 0), (2, 0)}
    assert {(started, epoch) for started, epoch, _ in later} == {(3, 0), (3, 1)}
    for part in (start, later):
        assert part[0][2] < 0.001
        assert max(rate for *_, rate in part) > 0.5 * settings.lr
        assert part[-1][2] < 0.2 * settings.lr


@pytest.mark.parametrize("settings", [STARTED, dataclasses.replace(STARTED, ema_decay=0.8)])
@pytest.mark.parametrize(("started", "step"), [(0, 1), (1, 3), (2, 0), (2, 3), (3, 1)])
def test_it_is_resumed_exactly(tmp_path: Path, settings: object, started: int, step: int) -> None:
    """In the middle of an epoch of it, at the end of one and of all, and in the epoch after it."""
    assert isinstance(settings, type(TINY))
    made = trainer(settings, checkpoint=tmp_path)
    plain = made._step

    def stop(batches: object) -> Tensor:
        if (made.started, made.epoch, made.step) == (started, 0, step):
            made.request_stop()
        return plain(batches)  # type: ignore[arg-type]

    made._step = stop  # type: ignore[method-assign]
    with pytest.raises(InterruptedRun) as stopped:
        made.train()
    assert stopped.value.saved
    (saved,) = tmp_path.iterdir()
    within = f"-step-{step + 1:06}" if step < 3 else ""
    ended = started + (step == 3)
    assert saved.name in {
        f"epoch-00000-start-{started:05}{within}".replace("-start-00000", ""),
        f"epoch-00000-start-{ended:05}",
        f"epoch-00000-start-{ended:05}-step-000000",
    }
    resumed = trainer(settings, checkpoint=tmp_path)
    told: list[int] = []
    result = resumed.train(resume=True, on_start=lambda done, _: told.append(done))
    assert told == list(range(ended + 1, 4))
    assert_same(result, trainer(settings).train())


def test_a_crash_after_it_keeps_it(tmp_path: Path) -> None:
    def crash(done: int, _: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trainer(STARTED, checkpoint=tmp_path).train(on_start=crash)
    assert [path.name for path in tmp_path.iterdir()] == ["epoch-00000-start-00002"]
    assert_same(trainer(STARTED, checkpoint=tmp_path).train(resume=True), trainer(STARTED).train())


def test_a_loss_that_is_no_number_is_told_with_its_place() -> None:
    settings = dataclasses.replace(STARTED, lr=1e18, lr_warmup_epochs=0.0)
    with pytest.raises(DivergedError, match=r"no longer (a number|numbers) in self-supervised epoch 1"):
        trainer(settings).train()


def test_the_first_epoch_is_told_with_its_seconds() -> None:
    seconds: list[float] = []
    made = trainer(STARTED)
    made.train(
        on_start=lambda *_: seconds.append(made._start_seconds),
        on_epoch=lambda r, _: seconds.append(r.seconds),
    )
    assert seconds[0] < seconds[1] < seconds[2] < seconds[3]
    assert seconds[4] < seconds[3]
