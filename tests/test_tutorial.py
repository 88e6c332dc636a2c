"""The tutorial runs from its first cell to its last, and holds no results that could be out of date."""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from graphclean.errors import DataWarning

NOTEBOOK = Path(__file__).parents[1] / "examples" / "tutorial.ipynb"

pytestmark = pytest.mark.skipif(not NOTEBOOK.exists(), reason="needs the source tree")


@pytest.mark.slow
def test_the_tutorial_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    del one_thread
    import matplotlib
    from matplotlib import pyplot

    matplotlib.use("agg")
    monkeypatch.chdir(tmp_path)
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    scope: dict[str, Any] = {"__name__": "tutorial"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        for number, cell in enumerate(cells):
            if cell["cell_type"] == "code":
                assert cell["outputs"] == []
                exec(compile("".join(cell["source"]), f"cell {number}", "exec"), scope)
    pyplot.close("all")
    assert scope["after"] > scope["before"] + 0.1
    assert len(scope["found"]) == 300
    assert scope["model"].kind == "train"
