"""benchmarks/run_queue.py: its runs are valid, and it runs what is left while there is time."""

import importlib
import sys
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest

from graphclean.bench.cells import get_cell, make_method
from graphclean.methods import OWN_METHODS, load_method
from graphclean.ood.detectors import load_detector
from tests.bench.builders import MIXED, WRONG
from tests.bench.fakes import write_run

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
pytestmark = pytest.mark.skipif(not BENCHMARKS.exists(), reason="needs the source tree")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("run_queue")


@pytest.fixture
def options(script: ModuleType, tmp_path: Path) -> object:
    return script.Options(tmp_path / "results", tmp_path / "work", tmp_path, "cpu", ("training.lr=0.1",))


@pytest.mark.parametrize("name", ["recipe", "methods", "open-set", "baseline"])
def test_every_run_is_valid_and_differs_from_the_others(script: ModuleType, name: str) -> None:
    queue = script.QUEUES[name]()
    made = [
        make_method(get_cell(part.cell), part.changes, method=part.method, preset=part.preset)
        for part in queue
    ]
    assert len({(part.cell, recipe.name) for part, recipe in zip(queue, made, strict=True)}) == len(queue)
    for part, recipe in zip(queue, made, strict=True):
        assert (part.split == "dev") == (name == "recipe")
        assert recipe.config.training.epochs == (
            300 if name == "baseline" else 10 if part.method == "mlnt" else 60
        )
        assert part.method is None or recipe.config.method.name == part.method
        for change in part.changes:
            assert change in recipe.changes, "a change without effect"
        for detector in part.detectors:
            load_detector(detector)
            assert get_cell(part.cell).ood is not None


def test_every_method_that_a_cell_can_run_is_compared(script: ModuleType) -> None:
    names = script.comparable()
    assert len(set(names)) == len(names)
    left = {name: load_method(name).info for name in set(OWN_METHODS) - set(names)}
    assert all(info.kind == "ood" or info.needs for info in left.values())


def test_a_command_scores_the_development_split_alone(script: ModuleType, options: object) -> None:
    command = script.make_command(script.Part(script.SYM90, script.BASE, script.STRONG), options)
    assert command[1:6] == ["-m", "graphclean", "bench", "run", script.SYM90]
    assert command[command.index("--split") + 1] == "dev"
    sets = [word for before, word in pairwise(command) if before == "--set"]
    assert sets == [*script.STRONG, "training.lr=0.1"]


def test_what_is_done_is_skipped_and_what_fails_holds_nothing_up(
    script: ModuleType, options: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    queue = [script.Part(WRONG.name, "cifar10-lond-fast", (f"graph.k={k}",)) for k in (3, 4, 5)]
    name = make_method(WRONG, ["graph.k=4", "training.lr=0.1"], preset="cifar10-lond-fast").name
    write_run(tmp_path / "results", WRONG.name, name, split="dev")
    ran = []

    def fake(command: list[str], _: float) -> int:
        ran.append(next(word for word in command if word.startswith("graph.k=")))
        return 1 if len(ran) == 1 else 0

    monkeypatch.setattr(script, "run", fake)
    assert script.work_off(queue, options, 1000) == 1
    assert ran == ["graph.k=3", "graph.k=5"]


def test_time_that_is_over_ends_the_queue(
    script: ModuleType, options: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = [script.Part(WRONG.name, "cifar10-lond-fast", (f"graph.k={k}",)) for k in (3, 4, 5)]
    now, ran = [0.0], []

    def fake(_: list[str], seconds: float) -> int | None:
        ran.append(seconds)
        now[0] += 400
        return None if seconds < 400 else 0

    monkeypatch.setattr(script, "run", fake)
    monkeypatch.setattr(script.time, "monotonic", lambda: now[0])
    assert script.work_off(queue, options, 700) == 0
    assert ran == [700, 300]
    ran.clear()
    now[0] = 0.0
    assert script.work_off(queue, options, 430) == 0
    assert ran == [430], "30 s are not worth a start"


def test_a_command_that_is_cut_off_is_asked_to_save_its_place(script: ModuleType, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    text = (
        "import pathlib, signal, sys, time\n"
        f"stop = lambda *_: (pathlib.Path({str(saved)!r}).write_text('x'), sys.exit(3))\n"
        "signal.signal(signal.SIGTERM, stop)\n"
        f"pathlib.Path({str(tmp_path / 'began')!r}).touch()\n"
        "time.sleep(60)\n"
    )
    assert script.run([sys.executable, "-c", text], 5) is None
    assert saved.exists() == (tmp_path / "began").exists()
    assert script.run([sys.executable, "-c", "raise SystemExit(4)"], 60) == 4


@pytest.mark.slow
def test_runs_are_made_cut_off_continued_and_recorded(
    script: ModuleType, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The candidate and the base on a few images, in processes of their own that know the small cells."""
    results = tmp_path / "results"
    small = ("training.network=small-conv", "training.epochs=3", "training.batch_size=64", "training.lr=0.05")
    options = script.Options(results, tmp_path / "work", root, "cpu", small)
    queue = [
        script.Part(MIXED.name, "images-fast", detectors=("msp",)),
        script.Part(WRONG.name, "cifar10-lond-fast", method="mixup"),
    ]

    def known(part: object, chosen: object) -> list[str]:
        words = make(part, chosen)
        code = "import tests.bench.builders as b; b.register(); from graphclean.cli.app import main; main()"
        return [words[0], "-c", code, *words[3:]]

    make = script.make_command
    monkeypatch.setattr(script, "make_command", known)
    monkeypatch.setenv("PYTHONPATH", ":".join(sys.path))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert script.work_off(queue, options, 600) == 0
    assert all(script.is_done(part, options) for part in queue)
    assert script.work_off(queue, options, 600) == 0
