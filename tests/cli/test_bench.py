"""`graphclean bench …` as a person uses it, on cells that train in a second."""

import json
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from graphclean.bench import runner
from graphclean.bench.cells import CELLS
from graphclean.bench.results import read_result
from graphclean.cli import bench as bench_cli
from graphclean.cli.app import main
from graphclean.runs.folder import in_use
from tests.bench.builders import MIXED, WRONG, read_arrays
from tests.bench.conftest import _small_cells, root  # noqa: F401 – fixtures
from tests.bench.fakes import write_run

QUICK = (
    "training.network=small-conv", "training.epochs=1", "training.batch_size=64",
    "training.strong_augmentation=off",
    "graph.k=5",
    "method.warmup_epochs=0",
)  # fmt: skip
SETTINGS = [word for setting in QUICK for word in ("--set", setting)]
METHOD = (
    "--graph.k-5--method.warmup_epochs-0--training.batch_size-64--training.epochs-1"
    "--training.network-small-conv"
)
ENDS = ("json", "npz")
"""Of the files of a result."""
WITHOUT_AUGMIX = f"cifar10-lond{METHOD}--without-augmix"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cli(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    root: Path,  # noqa: F811
) -> Iterator[Run]:
    """Run `graphclean bench` in a folder of its own; exit code, output, errors."""
    monkeypatch.setenv("GRAPHCLEAN_DATA", str(root))
    monkeypatch.chdir(tmp_path)
    before = signal.getsignal(signal.SIGTERM)

    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main(["bench", *arguments])
        captured = capsys.readouterr()
        return int(stop.value.code or 0), captured.out, captured.err

    yield call
    signal.signal(signal.SIGTERM, before)


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.slow
def test_run_skip_and_list(cli: Run, tmp_path: Path) -> None:
    command = ("run", MIXED.name, "--seeds", "0", "1", *SETTINGS)
    code, out, err = cli("run", MIXED.name, "--seeds", "0", "--seeds", "1,0", *SETTINGS)
    assert code == 0, err
    folder = f"results/cifar10--tinyimagenet--tiny/{WITHOUT_AUGMIX}"
    assert files(tmp_path) == [f"{folder}/{seed}.{end}" for seed in (0, 1) for end in ENDS]
    assert f"s: {folder}/1.json" in out
    assert err.count("warning: ") == 2
    assert "cifar10: 150 train images, and cifar10 has 50,000; a result on them is not one of the cell" in err
    assert "epoch 1/1" in err
    results = [read_result(tmp_path / folder / f"{seed}.json") for seed in (0, 1)]
    assert [result["seed"] for result in results] == [0, 1]
    assert results[0]["draw"] != results[1]["draw"]
    assert [result["config"]["training"]["seed"] for result in results] == [0, 1]
    # What an ensemble of two networks is made of: the same known images in the same order.
    first, second = (read_arrays(tmp_path / folder / f"{seed}.json") for seed in (0, 1))
    assert np.array_equal(first["truth"], second["truth"])
    assert first["logits"].shape == second["logits"].shape == (40, 10)
    stamp = (tmp_path / folder / "0.json").stat().st_mtime_ns
    code, out, err = cli(*command)
    assert (code, out) == (0, "")
    assert err.count(f"already in {folder}") == 2
    assert (tmp_path / folder / "0.json").stat().st_mtime_ns == stamp
    code, out, err = cli("list")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert [line.split()[:4] for line in lines[1:]] == [
        [MIXED.name, "test", WITHOUT_AUGMIX, "0"],
        [MIXED.name, "test", WITHOUT_AUGMIX, "1"],
    ]


@pytest.mark.slow
def test_another_method_is_filed_by_its_name(cli: Run, tmp_path: Path) -> None:
    own = [word for word in SETTINGS if word != "--set" and not word.startswith(("method.", "graph."))]
    options = [word for setting in own for word in ("--set", setting)]
    code, _, err = cli("run", WRONG.name, "--method", "mixup", *options, "--sharing", "2", "--quiet")
    assert (code, err) == (0, "")
    (path,) = (tmp_path / "results" / "cifar10--symtiny").iterdir()
    assert path.name.startswith("mixup--cifar10-lcnl--training.batch_size-64--")
    result = read_result(path / "0.json")
    assert (result["config"]["method"]["name"], result["sharing"]) == ("mixup", 2)


@pytest.mark.slow
def test_detectors_are_named_one_after_the_other(cli: Run, tmp_path: Path) -> None:
    code, out, err = cli("run", MIXED.name, *SETTINGS, "--detector", "msp", "knn", "energy")
    assert code == 0, err
    (path,) = tmp_path.glob("results/*/*/0.json")
    found = read_result(path)["detectors"]
    assert set(found) == {"msp", "knn", "energy"}
    for name, values in found.items():
        assert f"\n  {name}: AUROC {100 * (values['auroc'] or 0):.2f} %, F {values['f_auto']:.3f}" in out


@pytest.mark.slow
def test_settings_that_are_recorded_under_another_name_are_told(cli: Run, tmp_path: Path) -> None:
    assert cli("run", WRONG.name, *SETTINGS, "--name", "mine")[0] == 0
    code, _, err = cli("run", WRONG.name, *SETTINGS, "--seeds", "1", "2")
    assert code == 0
    own = WITHOUT_AUGMIX.replace("lond", "lcnl")
    told = f"warning: {own} has the settings of mine, which is recorded; --name mine adds seeds to it"
    assert err.count(told) == err.count("--name mine") == 1
    assert "--name mine" not in cli("run", WRONG.name, *SETTINGS, "--seeds", "3")[2]
    code, _, err = cli("run", WRONG.name, *SETTINGS, "--seeds", "1", "--name", "mine")
    assert code == 0
    assert "--name mine" not in err
    assert (tmp_path / "results/cifar10--symtiny/mine/1.json").exists()


def test_quiet_dev_and_kept(cli: Run, tmp_path: Path) -> None:
    options = ("--split", "dev", "--ablate", "geometry", "--name", "mine", "--results", "out")
    code, out, err = cli("run", WRONG.name, *SETTINGS, *options, "--work", "w", "--keep", "--quiet")
    assert (code, out, err) == (0, "", "")
    found = files(tmp_path)
    assert [name for name in found if name.startswith("out")] == [
        f"out/cifar10--symtiny--dev/mine/0.{end}" for end in ENDS
    ]
    assert "w/cifar10--symtiny/mine/dev-0/checkpoint/epoch-00001/state.safetensors" in found
    result = read_result(tmp_path / "out/cifar10--symtiny--dev/mine/0.json")
    assert "graph.geometry=false" in result["changes"]
    assert result["epochs"][0]["selected"] == result["epochs"][0]["confident"]
    assert "dev" in cli("list", "--results", "out")[1]


def test_what_another_process_finished_meanwhile_is_not_run_again(
    cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("run", WRONG.name, *SETTINGS, "--name", "mine", "--seeds", "0,1")
    folder = tmp_path / "results" / "cifar10--symtiny" / "mine"
    run_job, ran = runner.run_job, []

    def while_the_other_does_seed_1(job: Any, *given: Any, **options: Any) -> Any:
        ran.append(job.seed)
        result = run_job(job, *given, **options)
        (folder / "1.json").write_text((folder / "0.json").read_text().replace('"seed": 0', '"seed": 1'))
        return result

    monkeypatch.setattr(runner, "run_job", while_the_other_does_seed_1)
    code, _, err = cli(*command)
    assert (code, ran) == (0, [0])
    assert f"seed 1: already in {Path('results/cifar10--symtiny/mine/1.json')}" in err


def test_what_another_process_is_at_is_left_to_it(cli: Run, tmp_path: Path) -> None:
    """And the rest is done; that something is missing is said in the end."""
    busy = tmp_path / "runs" / "bench" / "cifar10--symtiny" / "mine" / "test-0"
    busy.mkdir(parents=True)
    with in_use(busy):
        code, out, err = cli("run", WRONG.name, *SETTINGS, "--name", "mine", "--seeds", "0,1")
    assert code == 2
    assert "seed 0: another process is working on it" in err
    assert err.splitlines()[-1].startswith(
        "graphclean: runs/bench/cifar10--symtiny/mine/test-0: another process"
    )
    assert (tmp_path / "results/cifar10--symtiny/mine/1.json").exists()
    assert not (tmp_path / "results/cifar10--symtiny/mine/0.json").exists()
    assert "accuracy" in out


def test_a_control_that_fails_is_said(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    result: dict[str, Any] = {"seconds": 1.0, "scores": {"accuracy": 0.5, "auroc": 0.9, "f_auto": 0.8}}
    for control, said in ((0.5504, True), (0.55, False)):
        result["scores"]["control_auroc"] = control
        monkeypatch.setattr(runner, "run_job", lambda *_, **__: result)
        _, out, _ = cli("run", MIXED.name, *SETTINGS)
        assert ("an AUROC of 0.550, over 0.55" in out) == said
        assert "accuracy 50.00 %, AUROC 90.00 %, F 0.800" in out


@pytest.mark.slow
def test_an_interrupted_run_says_that_it_goes_on(
    cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("run", WRONG.name, *SETTINGS, "--set", "training.epochs=2", "--name", "mine")
    with monkeypatch.context() as patch:
        patch.setattr(bench_cli, "_follow", lambda _: lambda _: signal.raise_signal(signal.SIGINT))
        code, _, err = cli(*command)
    assert code == 130
    assert err.splitlines()[-1] == (
        "graphclean: cifar10/symtiny mine, test split, seed 0: interrupted in epoch 2; "
        "the same command continues from there"
    )
    assert not (tmp_path / "results").exists()
    code, _, err = cli(*command)
    assert code == 0
    assert "epoch 1/2" not in err
    assert "epoch 2/2" in err
    assert files(tmp_path) == [f"results/cifar10--symtiny/mine/0.{end}" for end in ENDS]


def test_every_cell_is_shown(cli: Run) -> None:
    code, out, err = cli("cells")
    assert (code, err) == (0, "")
    shown = [line.split() for line in out.splitlines()[1:]]
    assert [words[0] for words in shown] == list(CELLS)
    assert ["cifar10/asym40", "asym", "40", "%", "none", "cifar10-asym"] in shown
    mixed = ["cifar100/places365/10k", "sym", "50", "%", "10,000", "of", "places365", "cifar100-lond"]
    assert mixed in shown


def test_what_is_wrong_is_one_line_and_leaves_nothing(cli: Run, tmp_path: Path) -> None:
    for arguments, words in (
        (("cifar10/sym51",), "no cell is called cifar10/sym51; did you mean cifar10/sym50?"),
        ((WRONG.name, "--seeds", "x"), "--seeds x: a seed is a whole number"),
        ((WRONG.name, "--seeds", "4294967296"), "a seed is a whole number from 0 to 4,294,967,295"),
        ((WRONG.name, "--set", "graph.eta=7"), "eta must be from 0 to 1"),
        (("3",), "no cell is named"),
        ((WRONG.name, "3"), "3 is no cell; a seed is named with --seeds 3"),
        ((WRONG.name, "--method", "mixupp"), "method.name=mixupp: no such method; did you mean mixup?"),
        ((WRONG.name, "--method", "elr", "--set", "method.name=mixup"), "--method elr, and the setting"),
        ((WRONG.name, "--ablate", "graph"), "--ablate graph: no such part"),
        ((MIXED.name, "--detector", "knm"), "ood.detector=knm: no such detector; did you mean knn?"),
        ((WRONG.name, "--detector", "knn"), f"--detector knn: {WRONG.name} has no OOD samples to tell"),
        ((MIXED.name, "knn"), "no cell is called knn"),
        ((WRONG.name, "--set", "graph.etta=1"), "did you mean graph.eta?"),
        ((WRONG.name, "--device", "tpu"), "tpu"),
        (("cifar100/sym50",), "cifar100 is not under"),
        (("cifar100/sym50",), "run `graphclean data fetch cifar100`"),
        # Before anything is trained, though the first cell could be.
        ((WRONG.name, "cifar10/tinyimagenet/20k"), "the OOD source holds 60 images, and 30,000 are needed"),
        ((WRONG.name, "--results", "/proc/results"), "/proc/results: can't be written"),
    ):
        code, out, err = cli("run", *arguments)
        assert (code, out) == (2, ""), err
        last = err.splitlines()[-1]
        assert last.startswith("graphclean: ")
        assert words in last
    assert files(tmp_path) == []


def test_tables_and_figures_are_made_from_the_results(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    tables, figures = ModuleType("tables"), ModuleType("figures")
    tables.table_names = figures.figure_names = lambda: ["accuracy", "ablation"]  # type: ignore[attr-defined]
    tables.render_table = lambda *given: f"| {given} |"  # type: ignore[attr-defined]
    figures.draw_figure = lambda *given: [Path(f"{given}")]  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "graphclean.bench.tables", tables)
    monkeypatch.setitem(sys.modules, "graphclean.bench.figures", figures)
    markdown = ("accuracy", Path("results"), "markdown")
    assert cli("table", "accuracy") == (0, f"| {markdown} |\n", "")
    latex = ("ablation", Path("r"), "latex")
    assert cli("table", "ablation", "--latex", "--results", "r") == (0, f"| {latex} |\n", "")
    drawn = ("ablation", Path("results"), Path("figures"), None, None)
    assert cli("figure", "ablation") == (0, f"{drawn}\n", "")
    chosen = (*drawn[:3], "ngc", "cifar10/sym50")
    assert cli("figure", "ablation", "--method", "ngc", "--cell", "cifar10/sym50") == (0, f"{chosen}\n", "")
    for kind in ("table", "figure"):
        assert cli(kind) == (0, "accuracy\nablation\n", "")
        wrong = f"graphclean: no {kind} is called accurate; did you mean accuracy?\n"
        assert cli(kind, "accurate") == (2, "", wrong)


def test_damaged_results_are_named(cli: Run, tmp_path: Path) -> None:
    path = tmp_path / "results" / "cifar10--symtiny" / "mine" / "0.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"cell": "cifar10--symtiny", "scores_by_zeta": {}}))
    for command in (("list",), ("run", WRONG.name, "--name", "mine")):
        code, _, err = cli(*command)
        assert code == 2
        assert "0.json: not a result of format 1; move it elsewhere" in err
        assert err.count("\n") == 1
    write_run(tmp_path / "results", WRONG.name, "mine", 1, epochs=2).rename(path)
    code, out, err = cli("list")
    assert (code, out) == (2, "No results in results.\n")
    assert "0.json: its run belongs in results/cifar10--symtiny/mine/1.json; move it there" in err
    assert cli("list", "--results", "none") == (0, "No results in none.\n", "")
