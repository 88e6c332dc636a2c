"""benchmarks/paper_runs.py: what the docs show of the recorded runs, over all of their seeds."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from tests.bench.fakes import LOND, write_run

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PLUS = "cifar10-lond-plus"

pytestmark = pytest.mark.skipif(not BENCHMARKS.exists(), reason="needs the source tree")


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, with a folder of results of its own."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    script = importlib.import_module("paper_runs")
    monkeypatch.setattr(script, "RUNS", tmp_path)
    for cell, method in script.SHOWN:
        write_run(tmp_path, cell, method, epochs=2, machine={"gpu": "A GPU"})
    return script


def row(text: str, name: str) -> list[str]:
    """The cells of the row with this name, but for the name."""
    (found,) = [line for line in text.splitlines() if line.startswith("|") and name in line]
    cells = [cell.strip() for cell in found.strip("|").split("|")]
    return cells[1 + next(i for i, cell in enumerate(cells) if name in cell) :]


def test_a_single_seed_stands_by_itself(script: ModuleType) -> None:
    text = script.paper_cells()
    assert row(text, PLUS) == ["89.18", "0.960", "0.882", "0.851", "4.5"]
    assert row(text, "cifar10-lcnl") == ["89.18", "", "", "", "4.5"]
    assert "last epoch, one seed, one A GPU." in text
    assert row(script.steps(), PLUS) == ["–", "–", "–", "89.18", "96.00", "0.882"]


def test_several_seeds_are_a_mean_with_its_deviation(script: ModuleType, tmp_path: Path) -> None:
    for seed, accuracy in enumerate((0.93, 0.935, 0.94)):
        scores = {"accuracy": accuracy, "auroc": 0.95 + seed / 100, "f_best": 0.9}
        write_run(tmp_path, LOND, PLUS, seed, epochs=2, scores=scores, seconds=60 * (seed + 1),
                  machine={"gpu": "A GPU"})  # fmt: skip
    text = script.paper_cells()
    assert row(text, PLUS) == [
        "93.50 ± 0.50 (3)", "0.960 ± 0.010 (3)", "0.900 ± 0.000 (3)", "0.851 ± 0.000 (3)", "2.0",
    ]  # fmt: skip
    assert row(text, "cifar10-lcnl") == ["89.18", "", "", "", "4.5"]
    assert "last epoch, mean ± standard deviation over seeds, their number in brackets" in text
    write_run(tmp_path, LOND, PLUS, split="dev", epochs=2, scores={"accuracy": 0.9})
    assert row(script.steps(), PLUS) == [
        "90.00", "96.00", "0.882", "93.50 ± 0.50 (3)", "96.00 ± 1.00 (3)", "0.900 ± 0.000 (3)",
    ]  # fmt: skip


def test_what_is_missing_is_counted_from_the_records(script: ModuleType, tmp_path: Path) -> None:
    text = script.missing()
    assert f"- Cells with OOD images: 1 of the paper's 10 (`{LOND}`)." in text
    assert "- Cells with label noise alone: 4 of the paper's 9 (`cifar10/sym50`, " in text
    assert "- Ablations: 0 of 7, on one cell or more (none)." in text
    assert "- Sweeps: none." in text
    assert f"- Seeds: {len(script.SHOWN)} of the {len(script.SHOWN)} runs above" in text
    write_run(tmp_path, "cifar10/places365/10k", epochs=2)
    write_run(tmp_path, "cifar10/sym50", "cifar10-lcnl--without-mixup", epochs=2)
    write_run(tmp_path, LOND, PLUS, seed=1, epochs=2)
    text = script.missing()
    assert "2 of the paper's 10" in text
    assert "- Ablations: 1 of 7, on one cell or more (`mixup`)." in text
    assert f"- Seeds: {len(script.SHOWN) - 1} of the" in text


def test_what_was_not_run_is_a_dash(script: ModuleType, tmp_path: Path) -> None:
    (tmp_path / LOND.replace("/", "--") / PLUS / "0.json").unlink()
    assert row(script.paper_cells(), PLUS) == ["–"] * 5
    assert row(script.steps(), PLUS) == ["–"] * 6
