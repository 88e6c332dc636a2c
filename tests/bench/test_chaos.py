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


def test_whenever_time_runs_out_all_commands_were_tried_alike(attacks: Any, tmp_path: Path) -> None:
    failures, jobs = attacks("attacks.failures"), attacks("attacks.jobs")
    many, few = (jobs.Job(name, (), (), lambda _: None) for name in ("many", "few"))
    found = []
    for part in range(2):
        bench = failures.Bench(tmp_path, tmp_path, [many, few])
        bench.expected = {"many": None, "few": None}
        bench.part, bench.parts = part, 2
        cases = failures.share_out(bench, random.Random(3), lambda job: range(200 if job is many else 20))
        early = [job.name for job, _ in cases[: len(cases) // 2]]
        assert early.count("few") == pytest.approx(5, abs=1)
        found += [(job.name, at) for job, at in cases]
    assert sorted(found) == sorted([("many", at) for at in range(200)] + [("few", at) for at in range(20)])


def test_what_processes_found_is_put_together(attacks: Any) -> None:
    tally = attacks("attacks.tally")
    one = tally.Tally(
        "x", 3, 1, 2.0, 4.0, [{"case": "a", "why": "b"}], {"n": {"a": 1}, "peak": 5.0, "how": "y"}
    )
    other = tally.Tally("x", 2, 0, 3.0, 1.0, [], {"n": {"a": 2, "b": 1}, "peak": 7.0})
    both = tally.merge([one, other])
    assert (both.cases, both.failed, both.seconds, both.cpu_seconds) == (5, 1, 3.0, 5.0)
    assert both.failures == one.failures
    assert both.facts == {"n": {"a": 3, "b": 1}, "peak": 7.0, "how": "y"}


def test_the_page_tells_places_by_command_and_what_was_not_run(attacks: Any) -> None:
    page = attacks("sections.reliability").reliability_page
    facts = {"places": {"clean": {"tried": 3, "of": 79}, "demo": {"tried": 1, "of": 136}}}
    kills = {"name": "kills at changes to the file system", "cases": 4, "failed": 0, "cpu_seconds": 8.0,
             "failures": [], "facts": facts}  # fmt: skip
    disks = {"name": "a full disk, mounted for it", "cases": 0, "failed": 0, "cpu_seconds": 0.0,
             "failures": [], "facts": {"not run": "no file system can be mounted"}}  # fmt: skip
    machine = {"cpu": "x", "cores": 2, "threads": 1, "python": "3", "packages": {"torch": "2"},
               "commit": None, "time": "2026-01-01T00:00:00Z"}  # fmt: skip
    text = page({"machine": machine, "seconds": 60.0, "processes": 2, "seed": 1, "attacks": [kills, disks],
                 "load": {"before": 1.0, "during": 2.5}})  # fmt: skip
    assert "| all | 4 of 215 |" in text
    assert "| 4 | 0 | 0.5 |" in text
    assert "not run: no file system can be mounted" in text
    assert "load average 1.0 in the five minutes before and 2.5" in text
