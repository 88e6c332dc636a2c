"""Noisy Graph Cleaning: its losses step by step, sizes of mixup where code is compiled, and the OOD gate."""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphclean.config import apply_settings, load_preset
from graphclean.data.digits import noisy_digits
from graphclean.graph import Cleaned
from graphclean.methods import build_method
from graphclean.methods import ngc as module
from graphclean.methods.blocks import classification
from graphclean.methods.blocks.classification import MixupClassification
from graphclean.methods.ngc import NGC, NgcSettings, first_epoch
from graphclean.training import EpochReport, Trained, Trainer
from graphclean.training.augment import draw_beta
from graphclean.training.batches import ResidentInputs
from graphclean.training.method import Selection, TrainerContext
from tests.training.test_trainer import GRAPH, TINY, assert_same, ngc, train_until, trainer

pytestmark = pytest.mark.usefixtures("one_thread")

ONE_STEP = dataclasses.replace(TINY, epochs=1, batch_size=32, weight_decay=0.0)


class Decided(NGC):
    """NGC without a graph: all given labels are selected, or none."""

    def __init__(self, everything: bool = True, **settings: Any) -> None:
        super().__init__(NgcSettings(**{"warmup_epochs": 0, **settings}), GRAPH)
        self.everything = everything

    def decide(self, run: TrainerContext) -> Cleaned:
        selected = torch.full_like(run.given, self.everything, dtype=torch.bool)
        soft = torch.nn.functional.one_hot(run.given, run.n_classes).float()
        return Cleaned(selected, run.given, soft, selected, torch.zeros_like(run.given))


def one_step(method: Decided) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], EpochReport]:
    """The network before an epoch of a single step and after it, and what that reports."""
    made, reports = trainer(ONE_STEP, method, n=32), list[EpochReport]()
    before = {name: value.clone() for name, value in method.predictor().state_dict().items()}
    made.train(on_epoch=lambda report, _: reports.append(report))
    return before, method.predictor().state_dict(), reports[0]


def test_golden_losses() -> None:
    """Three steps of the tiny configuration, all terms on: their mean losses as first recorded."""
    reports: list[EpochReport] = []
    made = trainer(dataclasses.replace(TINY, epochs=1), ngc(warmup_epochs=0), n=192)
    made.train(on_epoch=lambda report, _: reports.append(report))
    assert reports[0].losses == pytest.approx(GOLDEN, abs=1e-4)
    assert reports[0].loss == pytest.approx(sum(GOLDEN.values()), abs=3e-4)


GOLDEN = {"ce": 2.119106, "inst": 4.478067, "subgraph": 4.751714}


def test_nothing_selected_skips_the_cross_entropy() -> None:
    before, after, report = one_step(Decided(everything=False))
    assert report.losses["ce"] == 0
    assert report.losses["inst"] > 0
    assert report.own["empty_steps"] == 1
    assert not torch.equal(after["projector.weight"], before["projector.weight"])
    for name in ("classifier.weight", "classifier.bias"):
        assert torch.equal(after[name], before[name])


@pytest.mark.parametrize("term", ["inst", "subgraph"])
def test_a_lambda_of_zero_takes_its_term_out_of_the_gradient(term: str) -> None:
    """What is left moves the projector as the other term alone does; at both 0 nothing moves it."""
    moved = {}
    for tau in (0.3, 0.7):
        _, after, _ = one_step(Decided(**{f"lambda_{term}": 0.0, f"tau_{term}": tau}))
        moved[tau] = after["projector.weight"]
    assert torch.equal(moved[0.3], moved[0.7])
    before, after, report = one_step(Decided(lambda_inst=0.0, lambda_subgraph=0.0))
    assert torch.equal(after["projector.weight"], before["projector.weight"])
    assert not torch.equal(after["projector.weight"], moved[0.3])
    assert all(value > 0 for value in report.losses.values())
    assert report.loss == report.losses["ce"]
    counted = [name for name in after if name.endswith("num_batches_tracked")]
    assert counted
    assert all(after[name] == 2 for name in counted), "the contrastive pass still feeds batch statistics"


@pytest.mark.parametrize(
    ("joint", "warmup", "seen"),
    [(True, 0, [64, 64]), (True, 1, [64]), (False, 0, [32, 64, 32]), (False, 1, [32, 64])],
)
def test_what_batch_norm_sees(joint: bool, warmup: int, seen: list[int]) -> None:
    """The release has weak, mixed and strong views by themselves, and weak ones in warm-up too."""
    method = Decided(joint_batch_norm=joint, warmup_epochs=warmup)
    made, found, views = trainer(ONE_STEP, method, n=32), [], []

    def forward(*batches: torch.Tensor, network: str = "main") -> Any:
        found.extend(batches)
        return Trainer.forward(made, *batches, network=network)

    def view(inputs: torch.Tensor, *, strong: bool = True, smallest: float = 1) -> torch.Tensor:
        views.append(Trainer.views(made, inputs, strong=strong, smallest=smallest))
        return views[-1]

    made.forward, made.views = forward, view  # type: ignore[method-assign]
    made.train()
    assert [len(batch) for batch in found] == seen
    weak, strong = views[0].chunk(2)
    if not joint:
        assert torch.equal(found[0], weak)
        assert warmup or torch.equal(found[2], strong)


def test_mixup_of_zero_leaves_images_as_they_are() -> None:
    made = trainer()
    given = made.given[:8]
    views = made.views(made.inputs.inputs[:8])  # type: ignore[attr-defined]
    trusted = torch.tensor([True, False] * 4)
    mixup = MixupClassification(0.0)
    mixup.begin_epoch(made, trusted.unsqueeze(0))
    mix = mixup.mix(made, views, given, trusted)
    assert mix is not None
    assert mix.lam == 1
    assert torch.equal(mix.images, views[[0, 2, 4, 6, 8, 10, 12, 14]])
    assert torch.equal(mix.targets, given[[0, 2, 4, 6]].repeat(2))
    assert mix.weight.tolist() == [1] * 8


def test_the_weak_views_alone_may_be_mixed() -> None:
    made = trainer()
    given = made.given[:8]
    views = made.views(made.inputs.inputs[:8])  # type: ignore[attr-defined]
    trusted = torch.tensor([True, False] * 4)
    mixup = MixupClassification(0.5, "weak")
    mixup.begin_epoch(made, trusted.unsqueeze(0))
    made.generator.manual_seed(5)
    mix = mixup.mix(made, views, given, trusted)
    assert mix is not None
    made.generator.manual_seed(5)
    lam = draw_beta(0.5, 0.5, made.generator)
    partner = torch.randperm(4, generator=made.generator)
    weak = views[[0, 2, 4, 6]]
    torch.testing.assert_close(mix.images, lam * weak + (1 - lam) * weak[partner])
    assert torch.equal(mix.targets, given[[0, 2, 4, 6]])
    assert torch.equal(mix.partner_targets, given[[0, 2, 4, 6]][partner])
    assert mix.weight.tolist() == [1] * 4


def test_ngc_hands_its_choice_of_views_on() -> None:
    """And an unknown one is refused."""
    passed: list[int] = []

    class Watched(Decided):
        def _passes(self, views: torch.Tensor, mix: Any, *, contrast: bool) -> dict[str, torch.Tensor]:
            passed.append(len(mix.images))
            return super()._passes(views, mix, contrast=contrast)

    for choice in ("both", "weak"):
        one_step(Watched(mixup_views=choice))
    assert passed == [64, 32]
    with pytest.raises(ValueError, match="mixup_views must be one of both, weak"):
        NgcSettings(mixup_views="strong")  # type: ignore[arg-type]


def test_selected_samples_come_in_few_sizes_when_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    mixup = MixupClassification(8.0)

    def sizes(run: Trainer, counts: list[int]) -> list[int]:
        mixup.begin_epoch(run, torch.arange(64) < torch.tensor(counts).unsqueeze(1))
        assert mixup.empty_steps == counts.count(0)
        return mixup.sizes

    counts = [0, 16, 17, 17]
    assert sizes(trainer(TINY, n=256), counts) == counts
    made = trainer(dataclasses.replace(TINY, compile="on"), n=256)
    assert sizes(made, [0, 0]) == [0, 0]
    assert sizes(made, counts) == [0, 64, 64, 64]  # too little work left to compile for fewer
    saved = 2 * (64 - 24) * 4 * len(counts)
    monkeypatch.setattr(classification, "RECOMPILE_THRESHOLD", saved)
    assert sizes(made, counts) == [0, 24, 24, 24]
    made.epoch = 1
    assert sizes(made, [5, 5, 5, 5]) == [24] * 4  # there is code for that; to save 16 places is not worth it
    assert sizes(made, [25, 24, 24, 24]) == [64] * 4
    assert sizes(made, [64, 63, 63, 63]) == [64] * 4


@pytest.mark.slow
def test_a_resumed_run_continues_with_the_sizes_it_had(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A later start would find less work left, and compile for fewer sizes: other draws, another result."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    monkeypatch.setattr(classification, "RECOMPILE_THRESHOLD", 200)
    settings = dataclasses.replace(TINY, epochs=5, compile="on")
    whole, second = ngc(), ngc()
    expected = trainer(settings, whole).train()
    assert len(whole.mixup.save_state()["compiled"]) > 1
    train_until(trainer(settings, checkpoint=tmp_path / "checkpoint"), 3)
    assert_same(trainer(settings, second, checkpoint=tmp_path / "checkpoint").train(resume=True), expected)
    for name, value in whole.mixup.save_state().items():
        assert torch.equal(second.mixup.save_state()[name], value), name


def test_a_fraction_of_the_epochs_begins_at_a_whole_one() -> None:
    assert [first_epoch(fraction, 100) for fraction in (0, 0.55, 0.551, 1)] == [0, 55, 56, 100]


@pytest.mark.slow
def test_a_gate_keeps_ood_out() -> None:
    """8s and 9s that the graph takes for confident lie far from every prototype."""
    data = noisy_digits(seed=5)
    chosen = torch.randperm(1797, generator=torch.Generator().manual_seed(5))[:1200]
    pixels, labels = torch.as_tensor(data.images)[chosen], torch.as_tensor(data.labels)[chosen]
    strange = torch.as_tensor(data.is_ood)[chosen]
    demo = load_preset("demo")
    found: list[tuple[Trained, list[Selection]]] = []
    for config in (apply_settings(demo, ["method.ood_gate_start=1"]), demo):
        decisions: list[Selection] = []
        made = Trainer(ResidentInputs(pixels), labels, 8, config.training, build_method(config))
        trained = made.train(on_epoch=lambda _, selection, kept=decisions: kept.append(selection))  # type: ignore[misc]
        found.append((trained, decisions))
    ood_samples = [int(strange[run.selection.selected].sum()) for run, _ in found]
    known = [int((~strange)[run.selection.selected].sum()) for run, _ in found]
    assert ood_samples[1] < ood_samples[0] / 3
    assert known[1] > 0.97 * known[0]
    same = [torch.equal(a.selected, b.selected) for a, b in zip(found[0][1], found[1][1], strict=True)]
    assert same == [True] * 21 + [False] * 9  # 0.67 of 30 epochs are over after the 21st


def test_a_gate_closes_once_it_finds_two_modes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def judge(s: np.ndarray, classes: np.ndarray) -> np.ndarray | None:
        assert set(np.unique(classes)) <= set(range(8))
        asked.append(len(s))
        if len(asked) == 1:
            return None
        return (np.arange(len(s)) % 2 == len(asked) % 2).astype(float)

    monkeypatch.setattr(module, "bimodal_ood_probability", judge)
    decisions: list[Selection] = []
    made = trainer(dataclasses.replace(TINY, epochs=6), ngc(ood_gate_start=0.5))
    run = made.train(on_epoch=lambda _, selection: decisions.append(selection))
    kept = [set(torch.where(decided.selected)[0].tolist()) for decided in [*decisions, run.selection]]
    odd = [any(index % 2 for index in chosen) for chosen in kept]
    even = [any(index % 2 == 0 for index in chosen) for chosen in kept]
    # The gate closes with the fourth of six epochs; after the last there is one cleaning more.
    assert odd[3]
    assert even[3]
    assert len(asked) == 2
    assert odd[4:] == [True] * 3
    assert even[4:] == [False] * 3


def test_a_resumed_run_with_a_gate_equals_an_uninterrupted_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is excluded, the checkpoint holds it."""
    monkeypatch.setattr(module, "bimodal_ood_probability", lambda s, _: (s < np.median(s)).astype(float))
    make = functools.partial(ngc, ood_gate_start=0.5)
    expected = trainer(method=make()).train()
    assert 0 < expected.selection.selected.sum() <= 100
    train_until(trainer(method=make(), checkpoint=tmp_path), 3)
    assert_same(trainer(method=make(), checkpoint=tmp_path).train(resume=True), expected)
