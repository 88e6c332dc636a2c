"""Runs that are killed, stopped and resumed, through the real command line."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphclean._files import LOCK, write_lines
from graphclean.errors import InputError
from graphclean.runs.interrupts import StopSignals
from graphclean.runs.train import train
from graphclean.training import Trainer
from tests.builders import Cli
from tests.runs.tiny import TINY, metrics, results, save_digits

pytestmark = pytest.mark.usefixtures("one_thread")

# Runs the command line, and sends itself a signal at the n-th call of one of its functions.
SCRIPT = """
import importlib, os, sys
module, name, count, number = sys.argv[1].split(":")
place = importlib.import_module(module)
real, calls = getattr(place, name), [0]
def counting(*args, **kwargs):
    calls[0] += 1
    if calls[0] == int(count):
        os.kill(os.getpid(), int(number))
    return real(*args, **kwargs)
setattr(place, name, counting)
from graphclean.cli.app import main
main(sys.argv[2:])
"""
STEPS = 3  # of an epoch: 160 samples, 64 a batch


def break_off(folder: Path, where: str, number: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SCRIPT, f"{where}:{number}", "train", "digits.npz", *TINY]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "left"),
    [
        ("graphclean.training.trainer:total_loss:2", []),
        (f"graphclean.training.trainer:total_loss:{2 * STEPS + 2}", ["epoch-00002"]),
        ("graphclean.training.checkpoint:save_checkpoint:3", ["epoch-00002"]),
        ("graphclean.runs.train:finish:1", ["epoch-00003"]),
    ],
    ids=["first epoch", "third epoch", "before a checkpoint", "before the results"],
)
def test_a_killed_run_goes_on_as_if_nothing_had_been(
    cli: Cli,
    tmp_path: Path,
    where: str,
    left: list[str],
) -> None:
    save_digits(tmp_path)
    out = tmp_path / "runs" / "digits-train"
    assert break_off(tmp_path, where, signal.SIGKILL).returncode == -signal.SIGKILL
    assert {"config.json", "env.json"} <= {path.name for path in out.iterdir()}
    assert not (out / "summary.json").exists()
    assert [path.name for path in (out / "checkpoint").glob("*")] == left
    refused = cli("train", "digits.npz", *TINY)
    assert refused.code == 2
    assert "--resume" in refused.err
    assert "--overwrite" in refused.err
    unfinished = cli("predict", "runs/digits-train", "new.npz")
    assert (unfinished.code, unfinished.err.count("\n")) == (2, 1)
    assert "its training has not finished" in unfinished.err
    half = out / ".verdicts.csv.0123abcd"  # as a kill in the midst of a write leaves it
    half.mkdir()
    (half / LOCK).touch()
    (half / "new").write_text("half")
    assert cli("train", "digits.npz", "--resume", "--quiet").code == 0  # the settings are the run's own
    cli("train", "digits.npz", *TINY, "--out", "whole", "--quiet")
    assert results(out) == results(tmp_path / "whole")
    assert {path.name for path in out.iterdir()} == {path.name for path in (tmp_path / "whole").iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_stops(cli: Cli, tmp_path: Path, number: int, code: int) -> None:
    save_digits(tmp_path)
    done = break_off(tmp_path, "graphclean.training.trainer:total_loss:2", number)
    assert done.returncode == code
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("graphclean: stopped; ")
    assert last.endswith("of 3 epochs are done; continue with --resume")
    out = tmp_path / "runs" / "digits-train"
    assert len(list((out / "checkpoint").iterdir())) == 1
    assert cli("train", "digits.npz", *TINY, "--resume", "--quiet").code == 0
    cli("train", "digits.npz", *TINY, "--out", "whole", "--quiet")
    assert results(out) == results(tmp_path / "whole")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_second_signal_stops_at_once(
    cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    code: int,
) -> None:
    save_digits(tmp_path)
    real = Trainer.request_stop

    def again(trainer: Trainer) -> None:
        real(trainer)
        os.kill(os.getpid(), number)

    monkeypatch.setattr(Trainer, "request_stop", again)
    monkeypatch.setattr("graphclean.runs.train.write_lines", lambda *_: os.kill(os.getpid(), number))
    before = signal.getsignal(signal.SIGINT)
    done = cli("train", "digits.npz", *TINY, "--quiet")
    assert done.code == code
    assert done.err == "graphclean: stopped at once; continue with --resume\n"
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_after_training_is_one_line_too(
    cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    save_digits(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("graphclean.runs.train.finish", interrupt)
        done = cli("train", "digits.npz", *TINY, "--quiet")
    assert (done.code, done.err.count("\n")) == (130, 1)
    assert "continue with --resume" in done.err
    assert cli("train", "digits.npz", *TINY, "--resume", "--quiet").code == 0


def test_a_folder_in_which_a_run_trains_is_left_to_it(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_digits(tmp_path)
    out = tmp_path / "runs" / "digits-train"
    told = []

    def meanwhile(path: Path, rows: list[Any]) -> None:
        for options in ({}, {"resume": True}, {"overwrite": True}):
            with pytest.raises(InputError) as error:
                train(tmp_path / "digits.npz", out, **options)
            told.append(str(error.value))
        write_lines(path, rows)

    monkeypatch.setattr("graphclean.runs.train.write_lines", meanwhile)
    assert cli("train", "digits.npz", *TINY, "--quiet").code == 0
    why = f"{out}: another process is training in it; wait until it ends, or choose another out"
    assert set(told) == {why}
    assert cli("train", "digits.npz", "--resume", "--quiet").code == 0  # nobody is there any more


@pytest.mark.slow
def test_of_two_that_replace_a_run_at_once_one_is_refused(cli: Cli, tmp_path: Path) -> None:
    """The first is stopped where it has not put its run in place yet."""
    save_digits(tmp_path)
    out = tmp_path / "runs" / "digits-train"
    assert cli("train", "digits.npz", *TINY, "--quiet").code == 0
    again = ("train", "digits.npz", *TINY, "--overwrite", "--quiet")
    stopped = [sys.executable, "-c", SCRIPT, f"graphclean.runs.train:write_env:1:{signal.SIGSTOP:d}"]
    with subprocess.Popen([*stopped, *again], cwd=tmp_path) as first:
        os.waitpid(first.pid, os.WUNTRACED)
        before = results(out)
        done = cli(*again)
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert "another process is training in it" in done.err
        assert results(out) == before
        first.send_signal(signal.SIGCONT)
        assert first.wait(60) == 0
    assert results(out) == before
    assert [path.name for path in out.parent.iterdir()] == ["digits-train"]


def test_handlers_are_left_alone_outside_the_main_thread() -> None:
    seen = []

    def work() -> None:
        with StopSignals(lambda: None):
            seen.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [before]


def test_what_may_be_resumed(cli: Cli, tmp_path: Path) -> None:
    data = save_digits(tmp_path)
    out = tmp_path / "runs" / "digits-train"
    # Nothing there yet: it starts. Finished: the last pass is made again.
    assert cli("train", "digits.npz", *TINY, "--resume", "--quiet").code == 0
    first = results(out)
    assert cli("train", "digits.npz", *TINY, "--resume", "--quiet").code == 0
    assert results(out) == first
    other = cli("train", "digits.npz", "--resume", "--set", "training.lr=0.02")
    assert (other.code, other.err.count("\n") - other.err.count("preset")) == (2, 1)
    assert "made otherwise: training.lr was 0.1, is 0.02" in other.err
    arrays = dict(np.load(data))
    arrays["labels"][0] += 1
    np.savez(data, **arrays)
    changed = cli("train", "digits.npz", "--resume")
    assert changed.code == 2
    assert "what was decided on them are not those that the run was started with" in changed.err
    assert results(out) == first
    np.savez(tmp_path / "z.npz", z=np.random.default_rng(0).normal(size=(60, 4)), y=np.arange(60) % 2)
    cli("clean", "z.npz", "--out", "cleaned", "--quiet")
    assert "holds a run of `clean`" in cli("train", "digits.npz", "--resume", "--out", "cleaned").err
    kept = shutil.copytree(out, tmp_path / "kept")
    shutil.rmtree(kept / "checkpoint")
    lost = cli("train", "digits.npz", *TINY, "--resume", "--out", "kept")
    assert (lost.code, "the run is finished, and has no checkpoint" in lost.err) == (2, True)
    assert results(kept) == first
    config = json.loads((out / "config.json").read_text())
    config["settings"]["training"]["epochs"] = "many"
    (out / "config.json").write_text(json.dumps(config))
    assert "training.epochs: 'many' is not a whole number" in cli("train", "digits.npz", "--resume").err
    env = json.loads((out / "env.json").read_text())
    env["device"] = "cuda"
    (out / "env.json").write_text(json.dumps(env))
    refused = cli("train", "digits.npz", *TINY, "--resume", "--device", "cpu")
    assert "the run was started on cuda and can't be continued with --device cpu" in refused.err
    assert len(metrics(out)) == 3


@pytest.mark.slow
def test_a_resumed_run_sweeps_what_was_left_next_to_it(cli: Cli, tmp_path: Path) -> None:
    save_digits(tmp_path)
    assert cli("train", "digits.npz", *TINY, "--out", "run", "--quiet").code == 0
    for name in (".run.0123abcd", ".run.4567cdef"):
        (tmp_path / name).mkdir()
    (tmp_path / ".run.4567cdef" / LOCK).touch()
    assert cli("train", "digits.npz", "--resume", "--out", "run", "--quiet").code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["digits.npz", "new.npz", "run"]
