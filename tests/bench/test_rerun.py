"""`graphclean bench rerun`: a recorded number again, and next to it what it was."""

import json
import shlex
from pathlib import Path

import pytest

from graphclean.bench.cells import CELLS, make_method
from graphclean.bench.rerun import check_made_by_run, compare, differences, job_of
from graphclean.bench.results import list_results, read_result
from graphclean.bench.runner import Job
from graphclean.errors import InputError
from tests.bench.fakes import LOND, write_run
from tests.cli.test_bench import SETTINGS, Run, _small_cells, cli, root  # noqa: F401 – fixtures

ROOT = Path(__file__).parents[2]


def recorded(results: Path, job: Job) -> Path:
    """An invented result of a real job."""
    return write_run(
        results, job.cell.name, job.method.name, job.seed, epochs=2, split=job.split,
        preset=job.method.preset, changes=list(job.method.changes), config=job.sections,
    )  # fmt: skip


def test_a_job_is_read_back_with_every_setting(tmp_path: Path) -> None:
    cell = CELLS[LOND]
    job = Job(cell, make_method(cell, ["graph.k=7", "method.lambda_inst=0.25"], ablate=["mixup"]), 3, "dev")
    path = recorded(tmp_path, job)
    assert job_of(read_result(path), path).config == job.config
    assert job_of(read_result(path), path).title == job.title


def test_another_method_is_read_back(tmp_path: Path) -> None:
    cell = CELLS["cifar10/sym50"]
    job = Job(cell, make_method(cell, ["method.beta=0.5"], method="elr"), 1, "test")
    path = recorded(tmp_path, job)
    assert job_of(read_result(path), path).config == job.config


def test_a_setting_that_is_gone_is_one_line(tmp_path: Path) -> None:
    path = write_run(tmp_path, epochs=2, graph={"gone": 1})
    with pytest.raises(InputError, match=r"0\.json: graph\.gone: no such setting"):
        job_of(read_result(path), path)


def test_scores_are_compared_and_differences_named(tmp_path: Path) -> None:
    old = read_result(write_run(tmp_path, epochs=2, scores={"accuracy": 0.9}))
    new = read_result(write_run(tmp_path, epochs=2, scores={"accuracy": 0.8, "auroc": None}))
    assert [row for row in compare(old, new) if row[0] == "accuracy"] == [("accuracy", 0.9, 0.8)]
    assert "auroc" not in {name for name, _, _ in compare(old, new)}
    assert differences(old, new) == []
    changed = read_result(write_run(tmp_path, epochs=2, draw="f" * 64, machine={"gpu": "A GPU"}))
    found = differences(old, changed)
    assert found[0].startswith("the noisy labels differ")
    assert "GPU: none then, A GPU now" in found


def test_settings_of_older_results_are_read(tmp_path: Path) -> None:
    path = write_run(tmp_path, epochs=2)
    result = read_result(path)
    result["config"]["training"] = {"augmix": "last-chain", "gate_once": True, "epochs": 7}
    config = job_of(result, path).config.training
    assert (config.strong_augmentation, config.epochs) == ("augmix-last-chain", 7)
    result["config"]["training"]["gate_once"] = False
    with pytest.raises(InputError, match=r"training\.gate_once: no such setting"):
        job_of(result, path)


@pytest.mark.skipif(not (ROOT / "results").exists(), reason="needs the source tree")
def test_every_recorded_result_has_a_job_but_for_what_is_gone() -> None:
    gone = set()
    for path in list_results(ROOT / "results"):
        try:
            job_of(read_result(path), path)
        except InputError:
            gone.add(path.parent.name)
    assert all("gate-every-epoch" in name for name in gone), gone


@pytest.mark.skipif(not (ROOT / "benchmarks").exists(), reason="needs the source tree")
def test_every_record_of_a_script_names_its_command() -> None:
    for path in sorted((ROOT / "benchmarks/results").glob("*.json")):
        with pytest.raises(InputError, match=r"made by a script; .* in a checkout: python ") as error:
            check_made_by_run(path)
        for command in str(error.value).partition("checkout: ")[2].split(" && "):
            script, *options = shlex.split(command)[1:]
            source = (ROOT / script).read_text() + (ROOT / "benchmarks/common.py").read_text()
            missing = [each for each in options if each.startswith("--") and f'"{each}"' not in source]
            assert not missing, (path.name, command)


def test_no_other_file_is_taken_for_a_script_record(tmp_path: Path) -> None:
    check_made_by_run(write_run(tmp_path, epochs=2))
    for text in ("", "[1]", '{"command": 1}', '{"command": "python benchmarks/x.py; rm -r x"}'):
        (tmp_path / "x.json").write_text(text)
        check_made_by_run(tmp_path / "x.json")
    check_made_by_run(tmp_path / "missing.json")


def test_rerun_of_a_script_record_is_one_line(cli: Run, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "demo.json").write_text('{"machine": {}, "command": "python benchmarks/demo.py"}')
    code, _, err = cli("rerun", "demo.json", "--quiet")
    assert (code, err.count("\n")) == (2, 1)
    assert "demo.json: made by a script; to measure it again, run in a checkout: python benchmarks" in err


@pytest.mark.slow
def test_a_rerun_gives_the_recorded_numbers(cli: Run, tmp_path: Path) -> None:  # noqa: F811
    code, _, err = cli("run", "cifar10/symtiny", *SETTINGS, "--device", "cpu", "--quiet")
    assert code == 0, err
    (path,) = list_results(tmp_path / "results")
    code, out, err = cli("rerun", str(path.relative_to(tmp_path)), "--device", "cpu", "--quiet")
    assert code == 0, err
    accuracy = read_result(path)["scores"]["accuracy"]
    (line,) = [line for line in out.splitlines() if line.startswith("accuracy")]
    assert line.split() == ["accuracy", f"{accuracy:.4f}", f"{accuracy:.4f}", "+0.0000"]
    (again,) = list_results(tmp_path / "reruns")
    one, two = (json.loads(found.read_text()) for found in (path, again))
    assert {key: one[key] for key in ("scores", "draw", "config", "cleaning")} == {
        key: two[key] for key in ("scores", "draw", "config", "cleaning")
    }
    assert cli("rerun", str(path), "--out", "results", "--quiet")[0] == 2
