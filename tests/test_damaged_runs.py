"""Run folders that someone changed: one line that names the file, and no more."""

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from .audit.test_embeddings import blobs


@pytest.fixture
def run(cli, tmp_path: Path) -> Path:  # type: ignore[no-untyped-def]
    z, labels, _ = blobs([30] * 3, noise=0.2, ood=10)
    np.savez(tmp_path / "z.npz", z=z, y=np.array(["ant", "bee", "cat"])[labels])
    assert cli("clean", "z.npz", "--out", "run", "--quiet").code == 0
    return tmp_path / "run"


@pytest.fixture
def _limit() -> Iterator[None]:
    """What waits for ever fails instead."""

    def fail(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.usefixtures("_limit")
def test_a_pipe_in_place_of_a_file_is_not_waited_for(refuse, run: Path) -> None:  # type: ignore[no-untyped-def]
    cases = {
        "decisions.jsonl": ("report run", "apply run", "review run"),
        "cleaned.csv": ("apply run",),
        "metrics.jsonl": ("report run",),
        "scores.json": ("report run",),
        "points.safetensors": ("report run",),
        "summary.json": ("report run",),
        "verdicts.parquet": ("report run", "apply run", "review run"),
        "model.safetensors": ("predict run z.npz",),
        "config.json": ("report run", "apply run", "predict run z.npz"),
    }
    for name, commands in cases.items():
        path, kept = run / name, run.parent / name
        if path.exists():
            shutil.move(path, kept)
        os.mkfifo(path)
        for command in commands:
            refuse(command, f"run/{name}: not a file, but in the place of one; move it away")
        path.unlink()
        if kept.exists():
            shutil.move(kept, path)
