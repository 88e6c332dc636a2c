"""One small data root for all of these tests, and the small cells known by name."""

from pathlib import Path

import pytest
import torch

from graphclean.bench import cells
from tests.bench.builders import MIXED, WRONG, write_root


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_root(tmp_path_factory.mktemp("root"))


@pytest.fixture(autouse=True)
def _small_cells(monkeypatch: pytest.MonkeyPatch) -> object:
    for cell in (MIXED, WRONG):
        monkeypatch.setitem(cells.CELLS, cell.name, cell)
    monkeypatch.delenv("GRAPHCLEAN_CACHE", raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
