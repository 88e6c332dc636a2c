"""The training loop: it learns, it survives, and a resumed run equals one that was never interrupted."""

import dataclasses
import functools
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from graphclean._files import LOCK, NEW, load_tensors, save_tensors
from graphclean.config import GraphSettings, TrainingSettings
from graphclean.data.digits import noisy_digits
from graphclean.errors import InputError
from graphclean.methods.cross_entropy import CrossEntropy
from graphclean.methods.ngc import NGC, NgcSettings
from graphclean.training import (
    DivergedError,
    EpochReport,
    InterruptedRun,
    Trained,
    Trainer,
)
from graphclean.training.batches import ResidentInputs
from graphclean.training.method import Batch, Method, Selection, TrainerContext
from graphclean.training.views import scale
from tests.builders import assert_same_tensors

pytestmark = pytest.mark.usefixtures("one_thread")

TINY = TrainingSettings(
    network="small-conv", epochs=4, batch_size=64, lr=0.05, crop_padding=1, horizontal_flip=False
)
GRAPH = GraphSettings(k=8, eta=0.7, leave_one_out=True)
LOOSE = GraphSettings(k=8, eta=0.7, leave_one_out=False, lcc_edges="any")


def digits(n: int = 200, noise: float = 0.3) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Pixels, noisy labels and truth (8 and 9: OOD)."""
    data = noisy_digits(noise=noise)
    pixels = (torch.as_tensor(data.pixels[:n]) * 15.9375).round().to(torch.uint8).view(-1, 1, 8, 8)
    return pixels, torch.as_tensor(data.labels[:n]), torch.as_tensor(data.truth[:n])


def ngc(graph: GraphSettings = GRAPH, **settings: Any) -> NGC:
    """With one epoch of warm-up."""
    return NGC(NgcSettings(**{"warmup_epochs": 1, **settings}), graph)


def trainer(
    settings: TrainingSettings = TINY,
    method: Method | None = None,
    n: int = 200,
    checkpoint: Path | None = None,
) -> Trainer:
    """Of digits; by NGC, unless another method is given."""
    pixels, labels, _ = digits(n)
    method = method if method is not None else ngc()
    return Trainer(ResidentInputs(pixels), labels, 8, settings, method, checkpoint=checkpoint)


def assert_same(a: Trained, b: Trained) -> None:
    for name, value in a.network.state_dict().items():
        assert torch.equal(value, b.network.state_dict()[name]), name
    assert torch.equal(a.z, b.z)
    assert torch.equal(a.prototypes, b.prototypes)
    assert_same_tensors(a.selection, b.selection)


Losses = dict[str, torch.Tensor]


class Watched(NGC):
    """NGC whose losses go through a test's hands, and that tells it of every update."""

    def __init__(
        self,
        change: Callable[[TrainerContext, Losses], Losses] | None = None,
        after: Callable[[TrainerContext], None] | None = None,
    ) -> None:
        super().__init__(NgcSettings(warmup_epochs=1), GRAPH)
        self.change, self.after = change, after

    def losses(self, run: TrainerContext, batch: Batch) -> Losses:
        found = super().losses(run, batch)
        return self.change(run, found) if self.change is not None else found

    def after_step(self, run: TrainerContext, *batches: Any) -> None:
        super().after_step(run, *batches)
        if self.after is not None:
            self.after(run)


def train_until(made: Trainer, epoch: int) -> None:
    """Stop it by a request at the end of an epoch, counted from 1."""

    def stop(report: EpochReport, _: Selection) -> None:
        if report.epoch == epoch:
            made.request_stop()

    with pytest.raises(InterruptedRun):
        made.train(on_epoch=stop)


@pytest.mark.slow
def test_it_learns_digits_despite_wrong_labels() -> None:
    pixels, labels, truth = digits(1000, noise=0.4)
    reports: list[EpochReport] = []
    settings = dataclasses.replace(TINY, epochs=10, lr=0.1, batch_size=128)
    made = Trainer(ResidentInputs(pixels), labels, 8, settings, ngc(warmup_epochs=3))
    result = made.train(on_epoch=lambda r, _: reports.append(r))
    known = truth < 8
    assert (result.logits.argmax(1) == truth)[known].float().mean() > 0.9
    chosen = result.selection.selected & known
    assert (result.selection.labels == truth)[chosen].float().mean() > 0.97
    assert [r.epoch for r in reports] == list(range(1, 11))
    assert [r.own["warmup"] for r in reports] == [True] * 3 + [False] * 7
    assert reports[2].losses["inst"] == 0
    assert reports[-1].losses["inst"] > 0
    assert reports[-1].losses["ce"] < reports[3].losses["ce"]
    assert result.prototypes.norm(dim=1).allclose(torch.ones(8))


@pytest.mark.slow
def test_two_runs_agree_and_another_seed_does_not() -> None:
    assert_same(trainer().train(), trainer().train())
    other = trainer(dataclasses.replace(TINY, seed=1)).train()
    assert not torch.equal(other.z, trainer().train().z)


@pytest.mark.slow
@pytest.mark.parametrize("stop_after", [1, 2, 3])
def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path: Path, stop_after: int) -> None:
    def stop(report: EpochReport, _: Selection) -> None:
        if report.epoch == stop_after + 1:
            raise KeyboardInterrupt  # in the epoch after the last checkpoint

    with pytest.raises(KeyboardInterrupt):
        trainer(checkpoint=tmp_path).train(on_epoch=stop)
    # What a crash in the middle of a write leaves behind.
    draft = tmp_path / ".epoch-00009.0123abcd"
    (draft / NEW).mkdir(parents=True)
    (draft / LOCK).touch()
    (draft / NEW / "state.safetensors").write_bytes(b"half")
    resumed = trainer(checkpoint=tmp_path)
    result = resumed.train(resume=True)
    assert_same(result, trainer().train())
    assert [path.name for path in tmp_path.iterdir()] == ["epoch-00004"]


@pytest.mark.slow
@pytest.mark.parametrize(("epoch", "step"), [(1, 0), (1, 2), (3, 1), (4, 3)])
def test_a_run_asked_to_stop_saves_its_place(tmp_path: Path, epoch: int, step: int) -> None:
    def stop(run: TrainerContext, losses: Losses) -> Losses:
        if (run.epoch, run.step) == (epoch - 1, step):  # 200 samples are four steps of 64
            first.request_stop()
        return losses

    first = trainer(method=Watched(stop), checkpoint=tmp_path)
    with pytest.raises(InterruptedRun, match=f"epoch {min(epoch + (step == 3), 4)}") as stopped:
        first.train()
    assert stopped.value.saved
    name = f"epoch-{epoch - 1:05}-step-{step + 1:06}" if step < 3 else f"epoch-{epoch:05}"
    assert [path.name for path in tmp_path.iterdir()] == [name]
    reports: list[EpochReport] = []
    second = trainer(checkpoint=tmp_path)
    result = second.train(resume=True, on_epoch=lambda report, _: reports.append(report))
    whole: list[EpochReport] = []
    assert_same(result, trainer().train(on_epoch=lambda report, _: whole.append(report)))
    for resumed, uninterrupted in zip(reports, whole[len(whole) - len(reports) :], strict=True):
        same = dataclasses.replace(resumed, seconds=0, clean_seconds=0)
        assert same == dataclasses.replace(uninterrupted, seconds=0, clean_seconds=0)


@pytest.mark.slow
def test_an_epoch_that_ends_with_a_scoring_is_saved_before_a_stop(tmp_path: Path) -> None:
    """As of a trusted set, while the request comes."""
    others = ResidentInputs(digits(40)[0])

    def score(report: EpochReport, _: Selection) -> None:
        if report.epoch == 2:
            made.request_stop()
        assert len(made.embed(inputs=others).z) == 40

    made = trainer(checkpoint=tmp_path)
    with pytest.raises(InterruptedRun):
        made.train(on_epoch=score)
    assert [path.name for path in tmp_path.iterdir()] == ["epoch-00002"]
    assert_same(trainer(checkpoint=tmp_path).train(resume=True), trainer().train())


def test_a_run_without_a_checkpoint_stops_too() -> None:
    made = trainer()
    made.request_stop()
    with pytest.raises(InterruptedRun, match="epoch 1") as stopped:
        made.train()
    assert not stopped.value.saved


SCRIPT = """
import sys, time, torch
from pathlib import Path
from typing import Any
torch.set_num_threads(1)
sys.path.insert(0, sys.argv[2])
from tests.training.test_trainer import trainer
folder = Path(sys.argv[1])
def tell(report, _):
    # Written beside the training, on a busy disk the one of the last epoch may be late.
    written = [f"epoch-{report.epoch - 1:05}"] if report.epoch > 1 else []
    while [path.name for path in folder.glob("*epoch-*")] != written:
        time.sleep(0.01)
    print(report.epoch, flush=True)
    time.sleep(0.2)
trainer(checkpoint=folder).train(on_epoch=tell)
"""


@pytest.mark.slow
@pytest.mark.parametrize("epoch", [1, 3])
def test_kill_9_loses_at_most_the_epoch(tmp_path: Path, epoch: int) -> None:
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), root]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while int(process.stdout.readline()) < epoch:
            pass
        os.kill(process.pid, signal.SIGKILL)  # before this epoch's checkpoint
        assert process.wait() == -signal.SIGKILL
    names = [path.name for path in tmp_path.glob("epoch-*")]
    assert names == ([f"epoch-{epoch - 1:05}"] if epoch > 1 else [])
    assert_same(trainer(checkpoint=tmp_path).train(resume=True), trainer().train())


def test_a_checkpoint_of_other_settings_or_a_damaged_one_is_refused(tmp_path: Path) -> None:
    trainer(checkpoint=tmp_path).train()
    with pytest.raises(InputError, match=r"made otherwise: training\.lr was 0\.05, is 0\.01"):
        trainer(dataclasses.replace(TINY, lr=0.01), checkpoint=tmp_path).train(resume=True)
    with pytest.raises(InputError, match=r"made otherwise: method\.tau_inst was 0\.3, is 0\.5"):
        trainer(method=ngc(tau_inst=0.5), checkpoint=tmp_path).train(resume=True)
    with pytest.raises(InputError, match=r"made otherwise: graph\.k was 8, is 9"):
        trainer(method=ngc(dataclasses.replace(GRAPH, k=9)), checkpoint=tmp_path).train(resume=True)
    with pytest.raises(InputError, match=r"method\.name was 'ngc', is 'cross-entropy'"):
        trainer(method=CrossEntropy(graph=GRAPH), checkpoint=tmp_path).train(resume=True)
    with pytest.raises(InputError, match="samples was 200, is 150"):
        trainer(n=150, checkpoint=tmp_path).train(resume=True)
    state = tmp_path / "epoch-00004" / "state.safetensors"
    tensors, facts = load_tensors(state)
    save_tensors(state, tensors, {**facts, "config": {**facts["config"], "device": "cuda"}})
    with pytest.raises(InputError, match="device was 'cuda', is 'cpu'"):
        trainer(checkpoint=tmp_path).train(resume=True)
    without = {key: value for key, value in facts.items() if key != "epoch"}
    odd: list[Any] = [[], {"config": 1}, {**facts, "epoch": "four"}, without]
    for tampered in odd:
        save_tensors(state, tensors, tampered)
        with pytest.raises(InputError, match="damaged checkpoint"):
            trainer(checkpoint=tmp_path).train(resume=True)
    for name in (
        "method.mixup.sizes",
        "method.cleaner.logits",
        "method.networks.main.trunk.0.weight",
        "rng.own",
    ):
        assert name in tensors
        save_tensors(state, {key: value for key, value in tensors.items() if key != name}, facts)
        with pytest.raises(InputError, match="damaged checkpoint"):
            trainer(checkpoint=tmp_path).train(resume=True)
    save_tensors(state, tensors, facts)
    trainer(checkpoint=tmp_path).train(resume=True)
    state.write_bytes(state.read_bytes()[:-100])
    with pytest.raises(InputError, match="damaged checkpoint"):
        trainer(checkpoint=tmp_path).train(resume=True)
    state.unlink()
    with pytest.raises(InputError, match=r"damaged checkpoint: no file state\.safetensors in it"):
        trainer(checkpoint=tmp_path).train(resume=True)


def test_a_full_disk_keeps_the_previous_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import graphclean.training.checkpoint as module

    real = module.save_tensors

    def full(path: Path, *args: Any) -> None:
        if "epoch-00003" in str(path):
            path.write_bytes(b"half")
            raise OSError(28, "No space left on device")
        real(path, *args)

    monkeypatch.setattr(module, "save_tensors", full)
    with pytest.raises(InputError, match="No space left on device; the previous one is intact"):
        trainer(checkpoint=tmp_path).train()
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["epoch-00002"]
    assert_same(trainer(checkpoint=tmp_path).train(resume=True), trainer().train())


def test_a_loss_that_is_no_number_stops_the_run(tmp_path: Path) -> None:
    settings = dataclasses.replace(TINY, lr=1e18, lr_warmup_epochs=0.0)
    with pytest.raises(DivergedError, match=r"no longer a number in epoch \d: .*ce"):
        trainer(settings, checkpoint=tmp_path).train()


@pytest.mark.parametrize("stopped", [False, True])
def test_the_first_bad_term_is_named_and_nothing_spoiled_is_saved(tmp_path: Path, stopped: bool) -> None:
    """After a bad step the weights are NaN, and so is every other term."""

    def spoil(run: TrainerContext, losses: Losses) -> Losses:
        if (run.epoch, run.step) != (3, 1):
            return losses
        if stopped:
            made.request_stop()
        return {**losses, "inst": losses["inst"] * math.inf}

    made = trainer(method=Watched(spoil), checkpoint=tmp_path)
    with pytest.raises(DivergedError, match=r"no longer a number in epoch 4: inst$"):
        made.train()
    assert [path.name for path in tmp_path.iterdir()] == ["epoch-00003"]
    assert_same(trainer(checkpoint=tmp_path).train(resume=True), trainer().train())


def test_weights_spoiled_by_the_last_step_of_an_epoch_are_not_saved(tmp_path: Path) -> None:
    """Its losses were numbers still, and those of the next epoch would be too late."""

    def spoil(run: TrainerContext) -> None:
        if (run.epoch, run.step) == (2, 3):
            next(made.method.networks.parameters()).data.fill_(math.nan)

    made = trainer(method=Watched(after=spoil), checkpoint=tmp_path)
    with pytest.raises(DivergedError, match="weights are no longer numbers in epoch 3"):
        made.train()
    assert [path.name for path in tmp_path.iterdir()] == ["epoch-00002"]
    assert_same(trainer(checkpoint=tmp_path).train(resume=True), trainer().train())


@pytest.mark.parametrize("epochs", [1, 4])
def test_outputs_that_are_no_numbers_stop_the_run(epochs: int) -> None:
    """One step an epoch, whose update leaves weights that are numbers, but far too large."""
    settings = dataclasses.replace(TINY, epochs=epochs, batch_size=200, lr=1e36, lr_warmup_epochs=0.0)
    with pytest.raises(DivergedError, match="outputs are no longer numbers after epoch 1"):
        trainer(settings).train()


def test_the_callers_random_numbers_go_on_as_if_nothing_had_been() -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    trainer().train()
    assert torch.equal(torch.rand(3), expected)


def test_the_optimizer_of_a_gpu_gets_past_warm_up() -> None:
    """It takes momentum of all weights or of none, and warm-up has no gradient for the projector."""
    made = trainer()
    for group in made.optimizers.sgd.param_groups:
        group["fused"] = True
    made.train()
    assert made.epoch == TINY.epochs


@pytest.mark.parametrize(
    ("settings", "method"),
    [
        ({}, functools.partial(ngc, GraphSettings(k=1, eta=0.999999))),  # next to nothing is selected
        ({"batch_size": 199}, ngc),  # one sample more than a batch
        ({"batch_size": 512}, ngc),  # less than a batch
        ({"strong_augmentation": "off", "crop_padding": 0}, functools.partial(ngc, mixup_alpha=0.0)),
        ({}, CrossEntropy),
        (
            {},
            functools.partial(ngc, GraphSettings(k=8, eta=0.7, lcc_edges="any"), subgraph_positives="paper"),
        ),
    ],
)
def test_odd_settings_are_survived(settings: dict[str, object], method: Callable[[], Method]) -> None:
    chosen = dataclasses.replace(TINY, epochs=2, **settings)  # type: ignore[arg-type]
    result = trainer(chosen, method()).train()
    assert torch.isfinite(result.z).all()
    assert len(result.z) == 200


def test_a_crop_that_could_miss_the_image_is_refused() -> None:
    with pytest.raises(
        InputError,
        match=r"training\.crop_padding = 8: a crop could miss an image of 8×8 "
        r"pixels",
    ):
        trainer(dataclasses.replace(TINY, crop_padding=8))
    assert trainer(dataclasses.replace(TINY, crop_padding=7)).epoch == 0


def test_images_too_small_for_strong_views_are_refused() -> None:
    dots = ResidentInputs(torch.randint(0, 256, (60, 1, 2, 5), dtype=torch.uint8))
    with pytest.raises(
        InputError, match=r"training\.strong_augmentation = augmix needs 3×3 pixels or more, not 2×5"
    ):
        Trainer(dots, torch.arange(60) % 3, 3, TINY, ngc())
    off = dataclasses.replace(TINY, strong_augmentation="off")
    assert Trainer(dots, torch.arange(60) % 3, 3, off, ngc()).train().z.isfinite().all()


def test_without_strong_augmentation_leaves_the_strong_view_a_crop() -> None:
    made = trainer(dataclasses.replace(TINY, strong_augmentation="off", crop_padding=0))
    images = made.inputs.inputs[:8]  # type: ignore[attr-defined]
    assert torch.equal(made.views(images), scale(images).repeat(2, 1, 1, 1))


def test_a_selection_is_reported_before_an_epoch_and_its_end_after() -> None:
    reported: list[tuple[str, int]] = []
    before: list[Selection] = []

    def on_selection(epoch: int, selection: Selection) -> None:
        assert len(selection.labels) == len(selection.selected) == 200
        reported.append(("selection", epoch))
        before.append(selection)

    def on_epoch(report: EpochReport, selection: Selection) -> None:
        assert selection is before[-1]
        assert report.selected == int(selection.selected.sum())
        reported.append(("end", report.epoch))

    trainer().train(on_selection=on_selection, on_epoch=on_epoch)
    assert reported == [(what, epoch) for epoch in range(1, 5) for what in ("selection", "end")]


def test_unlabeled_and_lone_samples_are_survived() -> None:
    pixels, labels, _ = digits(150)
    labels[:30] = -1
    labels[labels == 7] = 6
    labels[40] = 7  # a class of one
    result = Trainer(ResidentInputs(pixels), labels, 8, dataclasses.replace(TINY, epochs=3), ngc()).train()
    assert torch.isfinite(result.logits).all()


def test_every_method_ends_with_what_people_decided() -> None:
    """Also one that knows nothing of decisions."""
    pixels, labels, _ = digits(150)
    decided = torch.full((150,), -1)
    decided[:20], decided[20:30] = (labels[:20] + 1) % 8, 8
    given = torch.where(decided >= 0, torch.where(decided < 8, decided, -1), labels)
    made = Trainer(ResidentInputs(pixels), given, 8, TINY, CrossEntropy(), decided=decided)
    chosen = made.train().selection
    assert torch.equal(chosen.labels[:20], decided[:20])
    assert chosen.selected[:20].all()
    assert not chosen.selected[20:30].any()
    assert torch.equal(chosen.labels[30:], labels[30:])


@pytest.mark.parametrize("n_classes", [2, 1000])
def test_features_with_few_and_many_classes(n_classes: int) -> None:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(300) % min(n_classes, 100)
    features = torch.randn(100, 12, generator=generator)[labels] + 0.1 * torch.randn(
        300, 12, generator=generator
    )
    settings = dataclasses.replace(TINY, network="embedding-head", feature_noise_std=0.1)
    result = Trainer(ResidentInputs(features), labels, n_classes, settings, ngc()).train()
    assert result.logits.shape == (300, n_classes)
    assert torch.isfinite(result.logits).all()
