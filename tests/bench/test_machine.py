"""What a result says of where it was made."""

import pytest
import torch

from graphclean.bench.machine import machine


def test_a_copy_without_its_history_is_told_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHCLEAN_COMMIT", "abc123")
    found = machine()
    assert found["commit"] == "abc123"
    assert found["packages"]["torch"] == torch.__version__
    assert (found["gpu"] is None) == (not torch.cuda.is_available())
