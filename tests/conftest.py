"""Fixtures that several rooms share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from graphclean.cli import main


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Results are promised for one number of threads; and two spin against other tests."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Done:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path):  # type: ignore[no-untyped-def]
    """Run the command line in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Done:
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        captured = capsys.readouterr()
        return Done(int(stop.value.code or 0), captured.out, captured.err)

    return call
