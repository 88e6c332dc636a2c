"""benchmarks/charts.py: what the docs show of the recorded benchmarks is up to date."""

import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
IMAGES = ROOT / "docs" / "images"

pytestmark = pytest.mark.skipif(not (ROOT / "benchmarks").exists(), reason="needs the source tree")


@pytest.fixture
def charts(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("charts")


def test_charts_show_the_recorded_values(charts: ModuleType) -> None:
    recorded = {name: charts.recorded_digest(IMAGES / f"{name}.svg") for name in charts.CHARTS}
    values = {name: chart.values() for name, chart in charts.CHARTS.items()}
    now = {name: charts.digest(found) if found else None for name, found in values.items()}
    assert recorded == now, "run python docs/figures.py, then python benchmarks/tables.py"


def test_every_chart_is_on_a_page(charts: ModuleType) -> None:
    pages = "".join(path.read_text() for path in (ROOT / "docs").glob("*.md"))
    there = {path.stem for path in IMAGES.glob("*.svg") if path.stem in charts.CHARTS}
    assert there == there & set(re.findall(r"images/([\w-]+)\.svg", pages))


def test_a_chart_holds_its_values_digest_and_its_numbers(
    charts: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = {"set A": {"ours": 0.9, "theirs": 0.7}, "set B": {"ours": 0.8}}
    drawn: list[object] = []

    def draw(values: object) -> object:
        figure = charts.dots("mislabel F1")(values)
        drawn.extend(figure.axes[0].lines)
        return figure

    monkeypatch.setattr(charts, "CHARTS", {"one": charts.Chart(lambda: rows, draw)})
    (path,) = charts.draw_charts(tmp_path)
    assert charts.recorded_digest(path) == charts.digest(rows) != charts.digest({**rows, "set B": {}})
    points = {line.get_label(): list(zip(*line.get_data(), strict=True)) for line in drawn}  # type: ignore[attr-defined]
    assert points == {"ours": [(0.9, 0), (0.8, -1)], "theirs": [(0.7, 0)]}
    assert all(f">{text}<" in path.read_text() for text in ("set A", "set B", "ours", "mislabel F1"))


def test_minutes_and_accuracy_are_means_over_seeds(
    charts: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.bench.fakes import write_run

    monkeypatch.setattr(charts, "RUNS", tmp_path)
    write_run(tmp_path, epochs=2, seconds=60, scores={"accuracy": 0.9})
    write_run(tmp_path, seed=1, epochs=2, seconds=180, scores={"accuracy": 0.8})
    write_run(tmp_path, method="other", epochs=2, sharing=2)  # its minutes are no measure
    assert charts.minutes_values() == {
        "cifar10-lond": {"minutes": 2.0, "accuracy": 85.0},
        "the paper": {"accuracy": 93.54},
    }
