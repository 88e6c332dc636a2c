"""benchmarks/chaos.py: a short form of its attacks, and that it tells what is wrong."""

import importlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
pytestmark = pytest.mark.skipif(not BENCHMARKS.exists(), reason="needs the source tree")
SHORT = (
    "kill_at_changes",
    "kill_at_times",
    "fill_disk_at_changes",
    "fill_disks",
    "limit_files",
    "crowd",
    "fuzz",
    "ask_anything",
)


@pytest.mark.slow
def test_a_short_form_of_every_attack_breaks_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "chaos.py", "--seconds", "6", "--seed", "11", "--out", str(tmp_path)]
    command += ["--only", *SHORT, "--jobs", "clean --overwrite", "apply --copy", "review --merge"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=BENCHMARKS, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "chaos.json").read_text())
    assert found["seed"] == 11
    assert len(found["attacks"]) == len(SHORT)
    assert all(attack["cases"] > 0 or "not run" in attack["facts"] for attack in found["attacks"])
    assert [attack["failures"] for attack in found["attacks"]] == [[]] * len(SHORT)
    assert found["machine"]["cores"] == os.cpu_count()


@pytest.fixture
def attacks(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


@pytest.mark.parametrize(
    ("code", "err", "wrong"),
    [
        (0, "", None),
        (2, "graphclean: x.csv: no such file\n", None),
        (None, "", "hang"),
        (1, "graphclean: unexpected error, please report it: KeyError\n", "exit code 1"),
        (0, "Traceback (most recent call last):\n", "exit code 0"),
        (-11, "", "exit code -11"),
        (2, "graphclean: one\nline more\n", "not one line"),
        (2, "", "not one line"),
        (2, "graphclean: a/.run.0123abcd/new/config.json: can't be written\n", "a hidden folder is named"),
    ],
)
def test_what_counts_as_wrong(attacks: Any, code: int | None, err: str, wrong: str | None) -> None:
    found = attacks("attacks.children").Ended(code, "", err, 0.1).wrong
    assert (found is None) if wrong is None else found.startswith(wrong)


def test_what_is_left_behind_is_found(attacks: Any, tmp_path: Path) -> None:
    left_over = attacks("attacks.children").left_over
    (tmp_path / "run" / ".hidden").mkdir(parents=True)
    assert left_over(tmp_path) == []
    (tmp_path / "run" / ".x.csv.0123abcd").mkdir()
    (tmp_path / ".run.lock").touch()
    assert left_over(tmp_path) == [".run.lock", "run/.x.csv.0123abcd"]


def test_failures_are_counted_with_their_reasons(attacks: Any) -> None:
    tally = attacks("attacks.tally").Tally("kills")
    tally.count("first", None, None)
    tally.count("second", None, "the results differ", "left: .x.lock")
    assert (tally.cases, tally.failed) == (2, 1)
    assert tally.failures == [{"case": "second", "why": "the results differ; left: .x.lock"}]


def test_a_seed_gives_the_same_broken_files(attacks: Any, tmp_path: Path) -> None:
    mutations = attacks("attacks.mutations")
    np.savez(tmp_path / "a.npz", z=np.zeros((72, 6)), y=np.arange(72))
    files = {
        "a.npz": (tmp_path / "a.npz").read_bytes(),
        "a.csv": b"x,y\n1,2\n" * 9,
        "a.json": b'{"a": [1, {"b": 2}]}',
    }
    for name, content in files.items():
        made = [
            [mutations.mutate(content, name, random.Random(f"{seed}")) for seed in range(20)]
            for _ in range(2)
        ]
        if name != "a.npz":  # archives hold the time at which they were made
            assert made[0] == made[1]
        assert len(set(made[0])) > 10
