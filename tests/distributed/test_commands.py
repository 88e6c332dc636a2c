"""Commands in several processes, as `torchrun` starts them: the same results, one voice, one clean end."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from graphclean.distributed.environment import read_place
from graphclean.errors import InputError
from tests.builders import Cli
from tests.embed.pictures import scene
from tests.processes import Hook, commands
from tests.runs.tiny import TINY, save_digits

pytestmark = pytest.mark.usefixtures("one_thread")
TRAIN = ("train", "digits.npz", *TINY, "--out", "run")
STEP = "graphclean.training.trainer:total_loss"


def assert_same_tables(ours: Path, theirs: Path, kind: str) -> None:
    """Equal but for rounding."""
    a, b = (pd.read_csv(path) for path in (ours, theirs))
    numbers = [name for name in a.columns if a[name].dtype == np.float64]
    assert len(numbers) >= 2, kind
    pd.testing.assert_frame_equal(a.drop(columns=numbers), b.drop(columns=numbers))
    np.testing.assert_allclose(a[numbers], b[numbers], atol=1e-4)


@pytest.mark.slow
def test_train_and_predict_give_what_one_process_gives(cli: Cli, tmp_path: Path) -> None:
    save_digits(tmp_path)
    first, second = commands(tmp_path, *TRAIN, size=2)
    assert (first.code, second.code) == (0, 0), first.err
    assert (second.out, second.err) == ("", "")
    assert "Verdicts" in first.out
    assert cli(*TRAIN[:-1], "alone").code == 0
    assert_same_tables(tmp_path / "run" / "verdicts.csv", tmp_path / "alone" / "verdicts.csv", "verdicts")
    assert json.loads((tmp_path / "run" / "env.json").read_text())["processes"] == 2
    predict = ("predict", "run", "new.npz", "--evaluate", "--out")
    assert cli(*predict, "alone.csv").code == 0
    everyone = commands(tmp_path, *predict, "together.csv", size=3)
    assert [done.code for done in everyone] == [0, 0, 0], everyone[0].err
    assert_same_tables(tmp_path / "together.csv", tmp_path / "alone.csv", "predictions")


@pytest.mark.slow
def test_photos_are_embedded_by_all(cli: Cli, tmp_path: Path) -> None:
    pytest.importorskip("efficientnet_lite_pytorch")
    for number in range(70):  # three batches, the last one in part
        photo = tmp_path / "photos" / "ab"[number % 2] / f"{number:02}.png"
        photo.parent.mkdir(parents=True, exist_ok=True)
        scene(40 + number, 32 + number % 7).save(photo)
    (tmp_path / "photos" / "a" / "broken.png").write_bytes(b"no photo")
    shutil.copytree(tmp_path / "photos" / "a", tmp_path / "new")
    clean = ("clean", "photos", "--against", "new")
    everyone = commands(tmp_path, *clean, "--out", "run", size=2, GRAPHCLEAN_CACHE_GB="0")
    assert [done.code for done in everyone] == [0, 0], everyone[0].err
    assert cli(*clean, "--out", "alone").code == 0
    for name in ("leakage.csv", "verdicts.parquet", "unreadable.csv", "points.safetensors"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes(), name


@pytest.mark.slow
def test_photos_are_streamed_to_all(cli: Cli, tmp_path: Path) -> None:
    for number in range(40):
        photo = tmp_path / "photos" / "ab"[number % 2] / f"{number:02}.png"
        photo.parent.mkdir(parents=True, exist_ok=True)
        scene(40 + number, 32 + number % 7).save(photo)
    settings = ("epochs=2", "network=small-conv", "image_size=16", "batch_size=8", "crop_padding=2")
    words = [word for setting in settings for word in ("--set", f"training.{setting}")]
    train = ("train", "photos", "--preset", "small-images", "--set", "training.photo_storage=disk", *words)
    everyone = commands(tmp_path, *train, "--out", "run", size=2)
    assert [done.code for done in everyone] == [0, 0], everyone[0].err
    assert "photos are streamed" in everyone[0].err
    assert cli(*train, "--out", "alone").code == 0
    assert_same_tables(tmp_path / "run" / "verdicts.csv", tmp_path / "alone" / "verdicts.csv", "verdicts")


@pytest.mark.slow
def test_a_killed_process_ends_the_run_in_one_line_and_resume_works(cli: Cli, tmp_path: Path) -> None:
    save_digits(tmp_path)
    hook = Hook(1, STEP, 5, signal.SIGKILL)
    first, second = commands(tmp_path, *TRAIN, size=2, hook=hook)
    assert second.code == -signal.SIGKILL
    assert first.code == 1
    last = first.err.splitlines()[-1]
    assert last == "graphclean: another of the 2 processes of this run ended; continue with --resume"
    assert "Traceback" not in first.err
    everyone = commands(tmp_path, *TRAIN, "--resume", size=3)
    assert [done.code for done in everyone] == [0, 0, 0], everyone[0].err
    assert cli(*TRAIN[:-1], "alone").code == 0
    assert_same_tables(tmp_path / "run" / "verdicts.csv", tmp_path / "alone" / "verdicts.csv", "verdicts")


@pytest.mark.slow
def test_restarted_processes_go_on_by_themselves(tmp_path: Path) -> None:
    """With the same command line, also where it replaces an older run."""
    save_digits(tmp_path)
    job = {"TORCHELASTIC_RUN_ID": "night"}
    hook = Hook(1, STEP, 5, signal.SIGKILL)
    replace = (*TRAIN, "--overwrite")
    commands(tmp_path, *replace, size=2, hook=hook, **job)
    (kept,) = (tmp_path / "run" / "checkpoint").iterdir()
    assert kept.name == "epoch-00001"
    again = {**job, "TORCHELASTIC_RESTART_COUNT": "1"}
    first, _ = commands(tmp_path, *replace, size=2, **again)
    assert first.code == 0, first.err
    epochs = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [epoch["epoch"] for epoch in epochs] == [1, 2, 3]
    stamp = (tmp_path / "run" / "env.json").stat().st_mtime_ns
    other = {**again, "TORCHELASTIC_RUN_ID": "morning"}  # that job had not begun its run before it failed
    first, _ = commands(tmp_path, *replace, size=2, **other)
    assert first.code == 0, first.err
    assert (tmp_path / "run" / "env.json").stat().st_mtime_ns > stamp


@pytest.mark.slow
def test_only_the_leading_process_hears_signals(tmp_path: Path) -> None:
    save_digits(tmp_path)
    ignored = commands(tmp_path, *TRAIN, size=2, hook=Hook(1, STEP, 4, signal.SIGTERM))
    assert [done.code for done in ignored] == [0, 0], ignored[0].err
    shutil.rmtree(tmp_path / "run")
    first, second = commands(tmp_path, *TRAIN, size=2, hook=Hook(0, STEP, 5, signal.SIGTERM))
    assert (first.code, second.code) == (128 + signal.SIGTERM, 0)
    assert "stopped; 1 of 3 epochs are done; continue with --resume" in first.err
    (saved,) = (tmp_path / "run" / "checkpoint").iterdir()
    assert saved.name.startswith("epoch-00001-step-")


@pytest.mark.slow
def test_what_fails_in_another_process_is_reported_by_the_leading_one(tmp_path: Path) -> None:
    save_digits(tmp_path)
    elsewhere = ["train", "nothing.npz", *TRAIN[2:]]
    first, second = commands(tmp_path, *TRAIN, size=2, process1=elsewhere)
    assert (first.code, second.code) == (1, 2)
    assert "another of the 2 processes of this run ended: process 2: nothing.npz: " in first.err
    assert "Traceback" not in first.err
    shutil.copy(tmp_path / "new.npz", tmp_path / "other.npz")
    first, second = commands(tmp_path, *TRAIN, size=2, process1=["train", "other.npz", *TRAIN[2:]])
    assert (first.code, second.code) == (2, 2)
    assert "the data is not the same on all machines" in first.err
    first, second = commands(tmp_path, "train", "nothing.npz", size=2)
    assert first.code == 2
    assert first.err.count("\n") == 1
    assert second.err == ""


def test_other_commands_and_odd_environments_are_refused(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    done = cli("report", str(tmp_path))
    assert (done.code, done.out) == (2, "")
    assert done.err == "graphclean: report runs in one process; start it without torchrun\n"
    assert cli("presets").code == 2
    for rank, size in (("2", "2"), ("-1", "2"), ("0", "0"), ("x", "2")):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("WORLD_SIZE", size)
        with pytest.raises(InputError, match="torchrun"):
            read_place()


@pytest.mark.slow
def test_torchrun_itself_starts_the_demo(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m"]
    arguments = ["graphclean", "demo", "--out", "run", "--set", "training.epochs=2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Verdicts: ") == 1
    assert (tmp_path / "run" / "report.html").is_file()
