"""The wheel, built and installed elsewhere, works by itself."""

import os
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path
from typing import Any

import pytest

import graphclean

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / "pyproject.toml").exists(), reason="needs the source tree")
def test_wheel_installs_and_runs_elsewhere(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("graphclean-*.whl")
    home = tmp_path / "elsewhere"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    # The dependencies are borrowed from here; graphclean itself must come from the wheel alone.
    inside = subprocess.run(
        [python, "-c", "import site; print(site.getsitepackages()[0])"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-index",
        "--target",
        inside,
        str(wheel),
    ]
    subprocess.run(pip, check=True, capture_output=True)
    import torch

    (Path(inside) / "borrowed.pth").write_text(str(Path(torch.__file__).parents[1]) + "\n")
    clean_env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    where = subprocess.run(
        [python, "-c", "import graphclean; print(graphclean.__file__)"],
        cwd=tmp_path, env=clean_env, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert where.stdout.startswith(inside)
    assert (Path(inside) / "graphclean" / "py.typed").exists()
    done = subprocess.run(
        [python, "-m", "graphclean", "demo", "--out", "demo-run", "--set", "training.epochs=1"],
        cwd=tmp_path, env=clean_env, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert "label accuracy after" in done.stdout
    assert (tmp_path / "demo-run" / "verdicts.parquet").exists()
    assert (tmp_path / "demo-run" / "report.html").exists()


def test_public_names_are_shown_before_they_are_loaded() -> None:
    code = "import sys, graphclean as g; print({*g.__all__} <= {*dir(g)}, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True False\n"


def test_the_command_line_starts_without_what_few_commands_need() -> None:
    code = "import sys, graphclean.cli.app; print({'sklearn', 'matplotlib'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.slow
def test_nothing_of_the_caller_is_changed_by_importing() -> None:
    script = """
import random, warnings
import numpy as np, PIL.Image, scipy.stats, sklearn.base, torch

before = list(warnings.filters), random.getstate(), torch.get_rng_state().tolist()
from graphclean import GraphCleaner, NoisyGraphClassifier, clean_embeddings
import graphclean.data.images

added = [entry for entry in warnings.filters if entry not in before[0]]
assert not [entry for entry in added if entry[2].__module__.startswith("PIL")], added
assert before[1:] == (random.getstate(), torch.get_rng_state().tolist())
"""
    subprocess.run([sys.executable, "-c", script], check=True)


SOURCE = pytest.mark.skipif(not (ROOT / ".github").exists(), reason="needs the source tree")


def workflow(name: str) -> tuple[dict[Any, Any], str]:
    """A workflow, and all commands that it runs."""
    yaml = pytest.importorskip("yaml")
    read = yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text())
    steps = [step for job in read["jobs"].values() for step in job["steps"]]
    return read, "\n".join(step.get("run", "") for step in steps)


@SOURCE
def test_the_test_workflow_covers_three_systems_and_names_what_exists() -> None:
    read, commands = workflow("test")
    assert read["permissions"] == {"contents": "read"}
    matrix = read["jobs"]["test"]["strategy"]["matrix"]
    assert {name.partition("-")[0] for name in matrix["os"]} == {"ubuntu", "macos", "windows"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f">={min(matrix['python'])}" == project["requires-python"]
    extras = {name for found in re.findall(r"\.\[([\w,]+)\]", commands) for name in found.split(",")}
    assert {"dev", "tensorboard", "mlflow"} <= extras <= set(project["optional-dependencies"])
    assert all((ROOT / path).exists() for path in re.findall(r"tests/[\w/]+\.py", commands))
    targets = [word for line in re.findall(r"make (.+)", commands) for word in line.split()]
    assert targets == ["lint", "docs"]
    assert all(re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE) for target in targets)


@SOURCE
def test_the_release_workflow_checks_before_it_publishes() -> None:
    read, commands = workflow("release")
    assert read[True] == {"push": {"tags": ["v*"]}}  # YAML reads `on` as true
    assert all(word in commands for word in ("-m build", "twine check --strict", "*.whl dist/*.tar.gz"))
    publish = read["jobs"]["publish"]
    assert publish["needs"] == "build"
    assert publish["permissions"] == {"id-token": "write"}
    assert "password" not in str(read)
    assert "token" not in str(read).replace("id-token", "")


@SOURCE
def test_the_changelog_has_the_version_of_the_package() -> None:
    first = re.findall(r"^## (\S+) \((.+)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[0]
    assert first[0] == graphclean.__version__
    assert re.fullmatch(r"unreleased|\d{4}-\d\d-\d\d", first[1])


@pytest.mark.skipif(not (ROOT / "results").exists(), reason="needs the source tree")
def test_the_lower_bound_of_torch_is_the_oldest_that_was_run() -> None:
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (bound,) = [found[1] for text in dependencies if (found := re.fullmatch(r"torch>=([\d.]+)", text))]
    records = [*(ROOT / "results").glob("*/*/*.json"), *(ROOT / "benchmarks" / "results").glob("*.json")]
    run = {found for path in records for found in re.findall(r'"torch": "(\d+\.\d+)', path.read_text())}
    assert bound == min(run, key=lambda version: [int(part) for part in version.split(".")])
