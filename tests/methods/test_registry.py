"""What every method of the registry must keep, and that nothing but the registry knows them."""

import dataclasses
import re
from pathlib import Path
from typing import Any, get_args

import pytest
import torch

import graphclean.training
from graphclean.config import Config, TrainingSettings, apply_settings, change_settings
from graphclean.config.overrides import field_reasons
from graphclean.errors import InputError
from graphclean.graph import GraphCleaner
from graphclean.methods import OWN_METHODS, build_method, complete_settings, load_method, method_names
from graphclean.ood.detectors import detector_names
from graphclean.training import EpochReport, InterruptedRun, Trained, Trainer
from graphclean.training.batches import ResidentInputs
from graphclean.training.method import Method, MethodKind, Prior, Selection, TrainerContext, Trusted
from tests.builders import assert_same_tensors
from tests.training.test_trainer import digits

pytestmark = pytest.mark.usefixtures("one_thread")

LEARN = TrainingSettings(
    network="small-conv", epochs=3, batch_size=32, lr=0.05, crop_padding=1, horizontal_flip=False
)
"""Each method is past its warm-up in the second epoch."""
HEAVY = dataclasses.replace(LEARN, strong_augmentation="autoaugment", ema_decay=0.8, self_supervised_epochs=1)
"""With all that training may use for heavy noise."""
NEEDS = {"verdicts", "images", "noise rate", "trusted samples"}
EVERY_PART = "ngc with every part"
PARTS = {
    "graph.accept": "auto",
    "graph.k": "auto",
    "graph.eta": "auto",
    "method.warmup_epochs": "auto",
    "graph.class_dependent_noise": True,
    "method.balance_cap": 3.0,
    "method.lambda_consistency": 1.0,
}
"""Settings of NGC that are off by default, and add to what it keeps."""
SOON: dict[str, dict[str, Any]] = {
    "d2l": {"method.window": 1},
    "c2d": {"method.warmup_epochs": 0},
    "mlnt": {"method.meta_from": 0.33, "method.trials": 2},
}
"""By which a method does early, and at little cost, what is its own."""
UNLIKE = (EVERY_PART, "ssr-plus", "mlnt", "dividemix", "m-correction")
"""Methods that differ in what they keep besides a network that learns: optimizers, heads, networks that do
not learn, a second one that does, stores.
"""
LAST, LAST_OF_FIRST = -1, -2
"""In place of the number of a step: the last one of the epoch, or of its first part."""


class Watched(Trainer):
    """Counts the passes over the training set."""

    passes = 0

    def embed(self, *args: Any, **options: Any) -> Any:
        self.passes += 1
        return super().embed(*args, **options)


def place_of(run: Trainer) -> list[tuple[int, int]]:
    """The names (epoch, step) of the step that is being made: its number in its part, and others."""
    assert run._state is not None
    found = [(run.epoch, run.step)]
    if run.step + 1 == len(run._state.streams[0]):
        found += [(run.epoch, LAST)] if run.part + 1 == run.method.parts(run.epoch) else []
        found += [(run.epoch, LAST_OF_FIRST)] if run.part == 0 else []
    return found


def build(name: str, stop: tuple[int, int] | None = None) -> Method:
    """A method whose warm-up, if any, is an epoch; it may ask to stop after a step (epoch, step) from 0."""
    parts = PARTS if name == EVERY_PART else SOON.get(name, {})
    made = load_method(name.split(" ")[0])
    own = {field.name for field in dataclasses.fields(made.Settings)}
    warmup = {"method.warmup_epochs": 1} if "warmup_epochs" in own else {}

    def after_step(self: Any, run: TrainerContext, *batches: Any) -> None:
        made.after_step(self, run, *batches)
        assert isinstance(run, Trainer)
        if stop in place_of(run):
            run.request_stop()

    stopping = type(made.__name__, (made,), {"after_step": after_step})
    config = change_settings(Config(), {"method.name": made.info.name, "graph.k": 8, **warmup, **parts})
    method: Method = stopping(made.Settings(**config.method.settings), config.graph)
    return method


def trusted_samples(method: Method, n_classes: int = 8) -> Trusted | None:
    """For a method that needs them, digits under labels that count as right."""
    if "trusted samples" not in method.info.needs:
        return None
    pixels, _, truth = digits(60)
    return Trusted(ResidentInputs(pixels), truth % n_classes)


def prepare(method: Method, checkpoint: Path | None = None, settings: TrainingSettings = LEARN) -> Watched:
    """On 120 digits: four steps an epoch, of which the last is filled up; some have no label."""
    pixels, labels, _ = digits(120)
    labels[::17] = -1
    prior = None
    if "verdicts" in method.info.needs:
        posterior = torch.rand(120, 9, generator=torch.Generator().manual_seed(1)).softmax(1)
        prior = Prior(posterior, torch.arange(120) % 3 > 0)
    inputs, trusted = ResidentInputs(pixels), trusted_samples(method)
    return Watched(inputs, labels, 8, settings, method, prior=prior, trusted=trusted, checkpoint=checkpoint)


def run(made: Trainer, *, resume: bool = False) -> tuple[Trained, list[EpochReport], list[Selection]]:
    """What training gives, and every epoch's report and selection."""
    reports: list[EpochReport] = []
    selections: list[Selection] = []

    def keep(report: EpochReport, selection: Selection) -> None:
        reports.append(dataclasses.replace(report, seconds=0, clean_seconds=0))
        selections.append(dataclasses.replace(selection))  # type: ignore[type-var]

    return made.train(resume=resume, on_epoch=keep), reports, selections


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "settings"),
    [*((name, LEARN) for name in (*method_names(), EVERY_PART)), *((name, HEAVY) for name in UNLIKE)],
)
def test_an_interrupted_and_resumed_run_equals_an_uninterrupted_one(
    name: str, settings: TrainingSettings, tmp_path: Path
) -> None:
    """In the middle of an epoch, and at the end of a part or of all of it.

    Of one method also in the middle of the first, and at the end of the last.
    """
    whole = prepare(build(name), settings=settings)
    expected, reports, selections = run(whole)
    assert len(reports) == LEARN.epochs
    places = [(1, 1), (1, LAST)]
    if name == EVERY_PART:
        places += [(0, 0), (LEARN.epochs - 1, LAST)]
    if whole.method.parts(1) > 1:
        places.append((1, LAST_OF_FIRST))
    for epoch, step in places:
        folder = tmp_path / f"{epoch}-{step}"
        with pytest.raises(InterruptedRun) as stopped:
            prepare(build(name, stop=(epoch, step)), folder, settings).train()
        assert stopped.value.saved
        (saved,) = folder.iterdir()
        within = f"epoch-{epoch:05}-step-{step + 1:06}"
        between = (f"epoch-{epoch + 1:05}", f"epoch-{epoch + 1:05}-step-000000")
        place = saved.name.replace("-start-00001", "") if epoch == 0 else saved.name
        if step == LAST_OF_FIRST:  # where the next part begins with a pass, the epoch is begun again
            assert place in (f"epoch-{epoch:05}", f"epoch-{epoch:05}-step-000000")
        else:
            assert place == within if step >= 0 else place in between
        resumed = prepare(build(name), folder, settings)
        found, later, taken = run(resumed, resume=True)
        for part, value in expected.network.state_dict().items():
            assert torch.equal(found.network.state_dict()[part], value), part
        for part in ("z", "logits", "prototypes"):
            assert torch.equal(getattr(found, part), getattr(expected, part)), part
        assert_same_tensors(found.selection, expected.selection)
        left = LEARN.epochs - epoch - (step == LAST)
        assert len(later) == left
        assert later == reports[LEARN.epochs - left :]
        for ours, theirs in zip(taken, selections[LEARN.epochs - left :], strict=True):
            assert torch.equal(ours.labels, theirs.labels)
            assert torch.equal(ours.selected, theirs.selected)
        assert found.notes == expected.notes
        states = resumed.method.save_state(), whole.method.save_state()
        torch.testing.assert_close(*states, atol=0, rtol=0)


def test_an_unknown_method_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InputError, match=r"method\.name=elt: no such method; did you mean elr\?"):
        load_method("elt")
    with pytest.raises(InputError, match=r"method\.name=crossentropy: .*did you mean cross-entropy\?"):
        build_method(apply_settings(Config(), ["method.name=crossentropy"]))
    with pytest.raises(InputError, match=f"there are {', '.join(method_names())}"):
        load_method("zzzzz")


def test_a_setting_of_another_method_is_refused_with_the_nearest_name() -> None:
    elr = apply_settings(Config(), ["method.lambda_inst=0.5", "method.name=elr"])
    for complete in (build_method, complete_settings):
        with pytest.raises(
            InputError, match=r"method\.lambda_inst: no such setting; did you mean method\.lambda_elr\?"
        ):
            complete(elr)
    with pytest.raises(InputError, match=r"method\.beta: no such setting; there are method\.mixup_alpha$"):
        build_method(apply_settings(Config(), ["method.name=cross-entropy", "method.beta=0.5"]))
    with pytest.raises(InputError, match=r"method\.beta=2: beta must be at least 0 and less than 1"):
        build_method(apply_settings(Config(), ["method.name=elr", "method.beta=2"]))


@pytest.mark.parametrize("name", method_names())
def test_a_method_says_what_it_is(name: str) -> None:
    made = load_method(name)
    info, method = made.info, build(name)
    assert info.name == name
    assert info.title
    assert info.kind in get_args(MethodKind)
    assert re.search(r" \d{4}$", info.paper) or info.follows.startswith("ours")
    assert info.follows == info.follows.strip().removesuffix(".")
    assert info.cost >= 1
    assert set(info.needs) <= NEEDS
    assert made.detector in detector_names()
    assert made.Settings.__dataclass_params__.frozen
    names = {field.name for field in dataclasses.fields(made.Settings)}
    assert field_reasons(made.Settings).keys() == names, "each setting has its reason"
    assert made.Settings() == made.Settings(**dataclasses.asdict(made.Settings()))
    assert {key for key in method.describe() if key.startswith("method.")} == {
        "method.name",
        *(f"method.{setting}" for setting in names),
    }
    prepare(method)
    assert len(method.networks) == info.networks
    assert ("ce" in method.weights) == (info.kind != "ood")
    assert (made.__doc__ or "").strip() != (Method.__doc__ or "").strip()


def test_cross_entropy_asks_for_no_pass_and_builds_no_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = prepare(build("ngc"))
    graph.train()
    assert graph.passes == LEARN.epochs + 1

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a graph was built")

    monkeypatch.setattr(GraphCleaner, "__init__", refuse)
    monkeypatch.setattr("graphclean.graph.knn_graph", refuse)
    monkeypatch.setattr("graphclean.graph.nearest_neighbors", refuse)
    for name in ("cross-entropy", "elr"):
        plain = prepare(build(name))
        plain.train()
        assert plain.passes == 1, "the one after the last epoch"
    with pytest.raises(AssertionError, match="a graph was built"):
        prepare(build("ngc"))


def test_no_module_of_training_names_a_method() -> None:
    names = {
        *(name.replace("-", "_") for name in method_names()),
        *(path.partition(":")[2] for path in OWN_METHODS.values()),
    }
    names = {name for name in names if name.lower() != "mixup"}  # an operation on images too
    known = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b", re.IGNORECASE)
    sources = sorted(Path(graphclean.training.__path__[0]).rglob("*.py"))
    assert len(sources) > 10
    named = [
        f"{path.name}: {line.strip()}"
        for path in sources
        for line in path.read_text(encoding="utf-8").splitlines()
        if known.search(line) or re.search(r"\bmethods\b.*\bimport\b", line)
    ]
    assert named == []
