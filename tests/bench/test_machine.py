"""What a result says of where it was made."""

import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from graphclean.bench import machine as module
from graphclean.bench.machine import forget_host_peak, host_peak_gib, machine
from tests.site import ROOT


def test_a_copy_without_its_history_is_told_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHCLEAN_COMMIT", "abc123")
    found = machine()
    assert found["commit"] == "abc123"
    assert found["packages"]["torch"] == torch.__version__
    assert (found["gpu"] is None) == (not torch.cuda.is_available())


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs a checkout")
def test_a_checkout_tells_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRAPHCLEAN_COMMIT", raising=False)
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    head = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    assert machine()["commit"] == head


@pytest.mark.skipif(not (module.PROCESS / "clear_refs").exists(), reason="needs Linux")
def test_the_peak_of_memory_is_that_since_it_was_forgotten() -> None:
    forget_host_peak()
    before = host_peak_gib()
    held = np.ones(2**28, dtype=np.uint8)  # a quarter of a GiB
    high = host_peak_gib()
    del held
    assert before is not None
    assert high is not None
    assert 0.2 < high - before < 0.35
    assert host_peak_gib() == pytest.approx(high, abs=0.01), "it outlasts what was held"
    forget_host_peak()
    assert host_peak_gib() == pytest.approx(before, abs=0.1)


def test_a_system_that_does_not_tell_its_memory_is_no_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "PROCESS", tmp_path)
    forget_host_peak()
    assert not any(path.name == "status" for path in tmp_path.iterdir())
    assert host_peak_gib() is None
    (tmp_path / "status").write_text("Name:\tpython\nVmHWM:\t  524288 kB\n")
    assert host_peak_gib() == 0.5
