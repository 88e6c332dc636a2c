"""Real runs of small cells: what is recorded, what is scored, and what an interruption costs."""

import os
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import softmax

from graphclean.bench import runner
from graphclean.bench.cells import make_method
from graphclean.bench.epoch_log import SAMPLE_KINDS
from graphclean.bench.inputs import Sources, load_sources, prepare_material
from graphclean.bench.noise import load_draw, make_draw
from graphclean.bench.results import read_result, result_path
from graphclean.bench.runner import Job, find_done, run_job
from graphclean.cleaning.inputs import Labels
from graphclean.errors import InputError, RunStopped
from graphclean.methods import build_method, load_method
from graphclean.methods.ngc import NGC
from graphclean.metrics import auroc, score_open_set, score_verdicts
from graphclean.ood import max_prototype_similarity, prototype_similarity
from graphclean.runs.folder import in_use
from graphclean.runs.train import train
from graphclean.training import Trainer
from graphclean.training.batches import ResidentInputs
from graphclean.training.fit import finish, fit
from graphclean.training.inference import embed_new
from graphclean.training.model import NetworkModel
from tests.bench.builders import MIXED, POOL, QUICK, TEST, TRAIN, WRONG, job, read_arrays
from tests.bench.test_cells import RUNNABLE

CPU = torch.device("cpu")
TIMES = ("seconds", "clean_seconds", "epoch_seconds", "machine", "peak_host_gib")


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: timeless(part) for key, part in value.items() if key not in TIMES}
    return [timeless(part) for part in value] if isinstance(value, list) else value


def test_what_a_result_holds(whole: Path) -> None:
    result = read_result(whole)
    assert result["cell"] == "cifar10/tinyimagenet/tiny"
    assert result["preset"] == "cifar10-lond"
    assert result["config"]["training"]["network"] == "small-conv"
    assert result["sizes"] == {"train": TRAIN, "test": TEST, "pool": POOL}
    assert [epoch["epoch"] for epoch in result["epochs"]] == [1, 2, 3]
    assert result["seconds"] > sum(epoch["seconds"] for epoch in result["epochs"])
    last = result["epochs"][-1]
    assert {"losses", "lr", "selected", "confident", "relabeled", "clean_seconds"} <= set(last)
    assert last["accuracy"] is None, "the test set is scored once, at the end"
    assert last["strategies"]["both"]["selected"] == last["selected"]
    assert last["strategies"]["confidence"]["selected"] == last["confident"]
    assert last["cleaning"].keys() == result["cleaning"].keys()
    assert 0 < result["cleaning"]["given_right"] < 1
    assert set(last["degrees"]) == {"clean", "wrong", "ood"}
    assert result["sharing"] == 1
    assert result["peak_gib"] is None
    peak = result["peak_host_gib"]
    assert peak is None or 0.1 < peak < 10
    assert list(result["scores"]) == [
        "accuracy", "auroc", "fpr95", "f_auto", "f_best", "zeta_best", "f_0.5", "f_0.7", "control_auroc",
    ]  # fmt: skip
    assert not whole.with_name("work").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNNABLE)
def test_every_method_is_run_scored_and_filed_by_its_name(
    name: str, sources: Sources, tmp_path: Path
) -> None:
    """On a cell with OOD, with what a table and a figure show of it."""
    faster = ("ood.detector=ssd",) if name == "rot" else ()  # its own takes 72 passes
    made = Job(MIXED, make_method(MIXED, [*QUICK[:3], *faster], method=name), 0, "test")
    path = result_path(tmp_path, MIXED.name, "test", made.method.name, 0)
    result = run_job(made, sources, tmp_path / "work", path, CPU, sharing=2)
    assert path.parent.name.startswith(f"{name}--cifar10-lond--{''.join(faster).replace('=', '-')}")
    assert "--training.epochs-3" in path.parent.name
    assert result["config"]["method"]["name"] == name
    assert result["sharing"] == 2
    claimed = {key for key in ("accuracy", "auroc", "f_auto", "f_best") if result["scores"][key] is not None}
    classifies = load_method(name).info.kind != "ood"
    assert claimed == ({"accuracy", "auroc", "f_auto", "f_best"} if classifies else {"auroc"})
    assert {"map", "kind", "predicted", "similarity", "truth", "logits"} <= set(read_arrays(path))


def test_what_the_method_and_the_detector_note_is_recorded(
    sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NGC, "notes", lambda *_: ["a noise rate of 40 % was estimated"])
    monkeypatch.setattr(NetworkModel, "notes", ["to be read with care"])
    result = run_job(job(), sources, tmp_path / "work", tmp_path / "0.json", CPU)
    assert result["notes"][:2] == ["to be read with care", "a noise rate of 40 % was estimated"]


@pytest.mark.slow
def test_several_detectors_are_scored_on_one_network(whole: Path, sources: Sources, tmp_path: Path) -> None:
    """Next to the method's own, which stays what it is; later ones need another run."""
    path = result_path(tmp_path, MIXED.name, "test", job().method.name, 0)
    made = replace(job(), detectors=("prototypes", "knn", "odin"))
    result = run_job(made, sources, tmp_path / "work", path, CPU)
    alone = read_result(whole)
    assert result["scores"] == alone["scores"]
    assert "detectors" not in alone
    found = read_result(path)["detectors"]
    assert list(found) == ["prototypes", "knn", "odin"]
    for name in ("auroc", "fpr95", "f_auto", "f_best"):
        assert found["prototypes"][name] == result["scores"][name]
    assert result["threshold"] is not None
    assert found["prototypes"]["threshold"] == result["threshold"]["threshold"]
    assert len({values["threshold"] for values in found.values()}) == 3
    assert find_done(made, tmp_path) == find_done(job(), tmp_path) == path
    with pytest.raises(InputError, match=r"made without scores of vim, and its network is gone"):
        find_done(replace(made, detectors=("knn", "vim")), tmp_path)


def test_the_seed_makes_the_draw_again(whole: Path, sources: Sources) -> None:
    """So that it is not kept: its digest tells that it is the same."""
    assert sources.test is not None
    again = make_draw(MIXED.protocol(0, "test"), sources.train.labels, POOL, sources.test.labels)
    assert again.digest() == read_result(whole)["draw"]
    assert sorted(path.name for path in whole.parent.iterdir()) == ["0.json", "0.npz"]


def test_the_arrays_give_the_scores_again(whole: Path) -> None:
    result, arrays = read_result(whole), read_arrays(whole)
    truth = arrays["truth"]
    known = truth >= 0
    assert known.sum() == TEST
    assert (arrays["predicted"] == truth)[known].mean() == pytest.approx(result["scores"]["accuracy"])
    assert (arrays["logits"].argmax(1) == truth[known]).mean() == pytest.approx(result["scores"]["accuracy"])
    again = auroc(-arrays["similarity"].astype(np.float64), truth < 0)
    assert again == pytest.approx(result["scores"]["auroc"], abs=2e-3)
    assert arrays["map"].shape == (TRAIN + 40, 2)
    assert (arrays["kind"] == SAMPLE_KINDS.index("ood")).sum() == 40
    kinds = {name: array.dtype for name, array in arrays.items()}
    half, small = dict.fromkeys(("logits", "map", "similarity"), np.float16), ("kind", "predicted", "truth")
    assert kinds == half | dict.fromkeys(small, np.int8)


@pytest.mark.slow
def test_numbers_are_those_of_fit_and_of_train(root: Path, tmp_path: Path) -> None:
    """With settings for verdicts and threshold of the job's own, which all three must heed."""
    settings = ["cleaning.k=7,9", "cleaning.certainty=0.8", "ood.threshold=0.4"]
    made = Job(MIXED, make_method(MIXED, [*QUICK, *settings]), 0, "test")
    sources = load_sources(MIXED, "test", root)
    result = run_job(made, sources, tmp_path / "work", tmp_path / "0.json", CPU)
    material = prepare_material(MIXED, 0, "test", sources, tmp_path / "draw.npz")
    images, labels = material.train_images().numpy(), material.draw.labels
    fitted = fit(images, Labels(labels, list(range(10))), made.config, build_method(made.config))
    np.savez(tmp_path / "data.npz", images=images, labels=labels)
    sets = (*made.method.changes, "training.seed=0")
    trained = train(
        tmp_path / "data.npz", tmp_path / "run", preset="cifar10-lond", settings=sets, device="cpu"
    )
    truth, known = material.draw.truth, material.draw.eval_truth >= 0
    for run in (fitted, trained.result):
        found = run.model.score(material.scored_images().numpy())
        assert result["threshold"] == {"zeta": 0.6, **asdict(run.model.found)}
        assert result["scores"]["accuracy"] == (found.classes == material.draw.eval_truth)[known].mean()
        assert result["scores"]["auroc"] == auroc(found.ood_score, ~known)
        rejected = score_open_set(found.classes, found.ood_score, material.draw.eval_truth, 0.4)
        assert result["scores"]["f_auto"] == rejected.f
        assert result["verdicts"] == asdict(score_verdicts(run.cleaning.verdicts, truth, truth < 0))
        assert result["cleaning"]["selected"] == run.cleaning.summary.selected
        assert set(run.cleaning.summary.k_tried) == {7, 9}


@pytest.mark.slow
def test_prototypes_may_judge_with_the_classifier(sources: Sources, whole: Path, tmp_path: Path) -> None:
    """On the same network: its recorded logits are then what both say."""
    made = job()
    both = replace(made, method=make_method(MIXED, [*QUICK, "training.prototype_ensemble=true"]))
    path = tmp_path / "0.json"
    result = run_job(both, sources, tmp_path / "work", path, CPU)
    material = prepare_material(MIXED, 0, "test", sources, tmp_path / "draw.npz")
    trained = runner.prepare_job(made, material, tmp_path, CPU).trainer.train()
    images = torch.as_tensor(material.scored_images())[:TEST]
    cosines = prototype_similarity(embed_new(trained.network, images).z, trained.prototypes).numpy()
    plain, arrays = read_arrays(whole), read_arrays(path)
    first, second = (softmax(x.astype(np.float64), axis=1) for x in (plain["logits"], 10.0 * cosines))
    together = np.sqrt(first * second)
    together /= together.sum(1, keepdims=True)
    np.testing.assert_allclose(np.exp(arrays["logits"].astype(np.float64)), together, atol=5e-3)
    right = arrays["logits"].argmax(1) == arrays["truth"][:TEST]
    assert result["scores"]["accuracy"] == pytest.approx(right.mean())


@pytest.mark.slow
def test_cross_entropy_is_scored_by_its_largest_probability(sources: Sources, tmp_path: Path) -> None:
    """What the paper calls MSP: its z is never trained, and prototypes are no part of it."""
    settings = [setting for setting in QUICK if not setting.startswith("method.")]
    plain = Job(MIXED, make_method(MIXED, [*settings, "method.name=cross-entropy"]), 0, "test")
    assert plain.method.name.startswith("cross-entropy--")
    path = tmp_path / "0.json"
    result = run_job(plain, sources, tmp_path / "work", path, CPU)
    arrays = read_arrays(path)
    largest = softmax(arrays["logits"].astype(np.float64), axis=1).max(1)
    np.testing.assert_allclose(arrays["similarity"][:TEST], largest, atol=2e-3)
    again = auroc(-arrays["similarity"].astype(np.float64), arrays["truth"] < 0)
    assert result["scores"]["auroc"] == pytest.approx(again, abs=2e-3)
    assert result["threshold"] is not None
    assert 0.1 <= result["threshold"]["zeta"] <= 1
    assert set(result["epochs"][-1]["losses"]) == {"ce"}
    assert result["epochs"][-1]["strategies"] is None, "it builds no graph"


@pytest.mark.slow
def test_the_control_is_the_auroc_of_resampled_images(sources: Sources, tmp_path: Path) -> None:
    made = job()
    material = prepare_material(made.cell, 0, "test", sources, tmp_path / "draw.npz")
    prepared = runner.prepare_job(made, material, tmp_path, CPU)
    trainer = prepared.trainer
    trained = trainer.train()
    result, _, _ = runner._score(made, material, finish(prepared, trained))
    assert sources.test is not None
    images = torch.as_tensor(np.array(sources.test.images))
    changed = torch.as_tensor(runner.resampling_control(images.numpy()))
    s = [
        max_prototype_similarity(trainer.embed(inputs=ResidentInputs(part)).z, trained.prototypes)
        for part in (images[: TEST // 2], changed[TEST // 2 :])
    ]
    expected = np.mean([(a > b) + 0.5 * (a == b) for a in s[0] for b in s[1]])
    assert result["scores"]["control_auroc"] == pytest.approx(expected)


@pytest.mark.slow
def test_a_run_that_was_asked_to_stop_ends_as_if_it_had_not(
    sources: Sources, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "STRATEGIES_EVERY", 1)
    before = signal.getsignal(signal.SIGTERM)

    def interrupt(record: dict[str, Any]) -> None:
        if record["epoch"] == 1:
            signal.raise_signal(signal.SIGTERM)

    work, path = tmp_path / "cell" / "method" / "run", tmp_path / "0.json"
    # The first time before the second epoch's graph, then in the middle of its steps.
    with pytest.raises(RunStopped, match="interrupted in epoch 2") as stopped:
        run_job(job(), sources, work, path, CPU, watch=interrupt)
    assert stopped.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) == before
    assert not path.exists()
    plain = Trainer._step

    def step(self: Any, *args: Any, **options: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return plain(self, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", step)
        with pytest.raises(RunStopped, match="interrupted in epoch 2"):
            run_job(job(), sources, work, path, CPU)
    assert [p.name for p in (work / "checkpoint").iterdir()] == ["epoch-00001-step-000001"]
    records: list[int] = []
    run_job(job(), sources, work, path, CPU, watch=lambda record: records.append(record["epoch"]))
    assert records == [2, 3]
    assert timeless(read_result(path)) == timeless(read_result(whole))
    assert all(np.array_equal(a, b) for a, b in zip(*map(_values, (path, whole)), strict=True))
    assert [p.name for p in tmp_path.iterdir() if p.is_dir()] == [], "the work folder and those above it"


def _values(path: Path) -> list[np.ndarray]:
    return [array for _, array in sorted(read_arrays(path).items())]


SCRIPT = """
import sys, torch
from pathlib import Path
torch.set_num_threads(1)
sys.path.insert(0, sys.argv[1])
from tests.bench.test_runner import CPU, MIXED, job, load_sources, run_job, runner
runner.STRATEGIES_EVERY = 1
work, root = map(Path, sys.argv[2:4])
def tell(record):
    print(record["epoch"], flush=True)
    if record["epoch"] == 2:
        sys.stdin.read()
run_job(job(), load_sources(MIXED, "test", root), work, work / "0.json", CPU, watch=tell)
"""


@pytest.mark.slow
def test_kill_9_costs_one_epoch_at_most(root: Path, sources: Sources, whole: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(Path(__file__).parents[2]), str(tmp_path), str(root)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while process.stdout.readline() != "2\n":
            assert process.poll() is None
        os.kill(process.pid, signal.SIGKILL)  # recorded, but before its checkpoint
    records: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "STRATEGIES_EVERY", 1)
        run_job(
            job(), sources, tmp_path, tmp_path / "0.json", CPU, keep=True,
            watch=lambda record: records.append(record["epoch"]),
        )  # fmt: skip
    assert records == [2, 3]
    assert timeless(read_result(tmp_path / "0.json")) == timeless(read_result(whole))
    assert load_draw(tmp_path / "draw.npz").digest() == read_result(whole)["draw"]
    # A kept work folder that lost its records is refused rather than filed with a gap.
    (tmp_path / "epochs.jsonl").unlink()
    with pytest.raises(InputError, match="epoch 1 is missing"):
        run_job(job(), sources, tmp_path, tmp_path / "1.json", CPU)
    assert not (tmp_path / "1.json").exists()


@pytest.mark.slow
def test_the_development_split_is_scored_as_it_goes(root: Path, tmp_path: Path) -> None:
    sources = load_sources(MIXED, "dev", root)
    assert sources.test is None
    result = run_job(job(split="dev"), sources, tmp_path / "work", tmp_path / "0.json", CPU)
    shown = [epoch["accuracy"] for epoch in result["epochs"]]
    assert len(shown) == 3
    assert shown[-1] == result["scores"]["accuracy"]
    assert (read_arrays(tmp_path / "0.json")["truth"] < 0).sum() == 10
    assert [epoch["strategies"] is None for epoch in result["epochs"]] == [True, True, False]


@pytest.mark.slow
def test_a_cell_without_ood_has_accuracy_alone(root: Path, tmp_path: Path) -> None:
    sources = load_sources(WRONG, "test", root)
    assert sources.pool is None
    result = run_job(job(WRONG), sources, tmp_path / "work", tmp_path / "0.json", CPU)
    assert result["threshold"] is None
    assert [name for name, value in result["scores"].items() if value is not None] == ["accuracy"]
    assert result["epochs"][-1]["degrees"]["ood"] is None


@pytest.mark.slow
@pytest.mark.parametrize("part", ["noise-correction", "confidence", "geometry"])
def test_ablations_run(part: str, root: Path, tmp_path: Path) -> None:
    made = job(WRONG, ablate=[part])
    made = replace(made, method=replace(made.method, config=_short(made)))
    result = run_job(made, load_sources(WRONG, "test", root), tmp_path / "w", tmp_path / "0.json", CPU)
    (epoch,) = result["epochs"]
    if part == "confidence":
        assert epoch["confident"] == TRAIN
    if part == "geometry":
        assert epoch["selected"] == epoch["confident"]
        assert epoch["strategies"]["both"]["selected"] == epoch["selected"]
    if part == "noise-correction":
        assert epoch["relabeled"] == 0


def _short(made: Job) -> Any:
    return replace(made.method.config, training=replace(made.method.config.training, epochs=1))


def test_a_draw_of_another_run_is_refused(sources: Sources, tmp_path: Path) -> None:
    prepare_material(MIXED, 0, "test", sources, tmp_path / "draw.npz")
    with pytest.raises(InputError, match="noise of another run; remove"):
        prepare_material(MIXED, 1, "test", sources, tmp_path / "draw.npz")
    shuffled = replace(sources, train=replace(sources.train, labels=sources.train.labels[::-1]))
    with pytest.raises(InputError, match=rf"draw\.npz: .* in another order.*; remove {tmp_path} to start"):
        prepare_material(MIXED, 0, "test", shuffled, tmp_path / "draw.npz")


@pytest.mark.slow
def test_without_a_checkpoint_a_run_starts_again(sources: Sources, whole: Path, tmp_path: Path) -> None:
    """Whatever one that was killed in its first epoch left behind."""
    work, path = tmp_path / "work", tmp_path / "0.json"
    work.mkdir()
    for name in (runner.DRAW, runner.LOG):
        (work / name).write_bytes(b"cut\noff\n")
    run_job(job(), sources, work, path, CPU)
    assert read_result(path)["scores"] == read_result(whole)["scores"]


@pytest.mark.parametrize(
    "place",
    [
        "bench.runner.prepare_material",
        "bench.runner.prepare_job",
        "training.trainer.Trainer._run_epoch",
        "training.trainer.Trainer._begin_part",
    ],
)
@pytest.mark.parametrize("error", [InputError("no"), torch.OutOfMemoryError("no"), KeyboardInterrupt()])
def test_a_failure_before_the_first_checkpoint_leaves_nothing(
    sources: Sources, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, error: BaseException
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(f"graphclean.{place}", fail)
    with pytest.raises((type(error), RunStopped)):
        run_job(job(), sources, tmp_path / "runs" / "cell" / "method" / "run", tmp_path / "0.json", CPU)
    assert [path for path in tmp_path.rglob("*") if path.name != "runs"] == []


@pytest.mark.slow
def test_a_failure_after_a_checkpoint_leaves_what_it_takes_to_go_on(
    sources: Sources, whole: Path, tmp_path: Path
) -> None:
    def fail(record: dict[str, Any]) -> None:
        if record["epoch"] == 2:
            raise torch.OutOfMemoryError("no")

    work, path = tmp_path / "work", tmp_path / "0.json"
    with pytest.raises(RunStopped, match="memory is too small"):
        run_job(job(), sources, work, path, CPU, watch=fail)
    assert {part.name for part in work.iterdir()} == {runner.DRAW, runner.LOG, runner.CHECKPOINT}
    run_job(job(), sources, work, path, CPU)
    assert read_result(path)["scores"] == read_result(whole)["scores"]


@pytest.mark.slow
def test_a_loss_that_is_no_number_is_one_line(sources: Sources, tmp_path: Path) -> None:
    method = make_method(MIXED, [*QUICK, "training.lr=1e18", "training.lr_warmup_epochs=0"], name="wild")
    with pytest.raises(
        RunStopped, match=r"the loss is no longer .* lower than training\.lr=1e\+18"
    ) as stopped:
        run_job(Job(MIXED, method, 0, "test"), sources, tmp_path / "a/b/c", tmp_path / "0.json", CPU)
    assert stopped.value.code == 1


def test_a_work_folder_is_one_process_s_alone(sources: Sources, tmp_path: Path) -> None:
    with (
        in_use(tmp_path),
        pytest.raises(InputError, match=r"another process is training in it; .* another work"),
    ):
        run_job(job(), sources, tmp_path, tmp_path / "0.json", CPU)
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_draw_says_how_to_start_again(sources: Sources, tmp_path: Path) -> None:
    (tmp_path / "draw.npz").write_bytes(b"draw")
    (tmp_path / "checkpoint" / "epoch-00001").mkdir(parents=True)
    with pytest.raises(InputError, match=f"damaged, or not a noise file; .*remove {tmp_path} to start over"):
        run_job(job(), sources, tmp_path, tmp_path / "0.json", CPU)
    assert (tmp_path / "draw.npz").exists()
