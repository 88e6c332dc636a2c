"""What a result says of where it was made."""

import subprocess

import pytest
import torch

from graphclean.bench.machine import machine
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
