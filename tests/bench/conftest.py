"""One small data root for all of these tests, and the small cells known by name."""

from pathlib import Path

import pytest
import torch

from graphclean.bench import cells, runner
from graphclean.bench.inputs import Sources, load_sources
from tests.bench.builders import MIXED, WRONG, job, write_root


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_root(tmp_path_factory.mktemp("root"))


@pytest.fixture(scope="session")
def sources(root: Path) -> Sources:
    return load_sources(MIXED, "test", root)


@pytest.fixture(scope="session")
def whole(sources: Sources, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The result of an uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runner, "STRATEGIES_EVERY", 1)
        runner.run_job(job(), sources, folder / "work", folder / "0.json", torch.device("cpu"))
    return folder / "0.json"


@pytest.fixture(autouse=True)
def _small_cells(monkeypatch: pytest.MonkeyPatch) -> object:
    for cell in (MIXED, WRONG):
        monkeypatch.setitem(cells.CELLS, cell.name, cell)
    monkeypatch.delenv("GRAPHCLEAN_CACHE", raising=False)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
