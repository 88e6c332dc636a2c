"""The notebooks run from their first cell to their last, and hold no results that could be out of date."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphclean.errors import DataWarning

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
Scope = dict[str, Any]


def check_tutorial(scope: Scope) -> None:
    assert scope["after"] > scope["before"] + 0.1
    assert len(scope["found"]) == 300
    assert scope["model"].kind == "train"


def check_photos(scope: Scope) -> None:
    assert scope["after"] > 0.9 > 0.75 > scope["before"]
    found = scope["found"].set_index("id")["verdict"]
    bars = found.index.str.contains("bar")
    assert (found[bars] == "ood").mean() > 0.5
    assert (found[~bars] == "known").mean() > 0.8
    assert all(path.exists() for path in (Path("runs/photos/report.html"), Path("cleaned")))


def check_text(scope: Scope) -> None:
    assert scope["after"] > 0.95 > scope["before"]
    assert "invoice" in Path("runs/tickets/report.html").read_text()


def check_training_loop(scope: Scope) -> None:
    assert scope["clean"] > scope["plain"] + 0.03
    assert scope["after"] > scope["before"] + 0.2


def check_benchmarks(scope: Scope) -> None:
    results = scope["results"]
    assert len(results) == 4
    mean = results.groupby("method")["accuracy"].mean()
    assert mean["ngc"] > mean["cross-entropy"]


CHECKS: dict[str, Callable[[Scope], None]] = {
    "tutorial": check_tutorial,
    "photos": check_photos,
    "text": check_text,
    "training-loop": check_training_loop,
    "benchmarks": check_benchmarks,
}
pytestmark = pytest.mark.skipif(not EXAMPLES.exists(), reason="needs the source tree")


def test_every_notebook_is_checked() -> None:
    assert {path.stem for path in NOTEBOOKS} == set(CHECKS)


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    del one_thread
    import matplotlib
    from matplotlib import pyplot

    matplotlib.use("agg")
    monkeypatch.chdir(tmp_path)
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    scope: Scope = {"__name__": "notebook"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        for number, cell in enumerate(cells):
            if cell["cell_type"] == "code":
                assert cell["outputs"] == []
                exec(compile("".join(cell["source"]), f"cell {number}", "exec"), scope)
    pyplot.close("all")
    CHECKS[path.stem](scope)
