"""Cells of the source's table that are shown with each sample."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from PIL import Image

import graphclean
from graphclean.data.tables import Names
from graphclean.errors import InputError
from graphclean.report import cells as fitting
from graphclean.report.cells import CELL_LENGTHS, ShownCells, fit_cells
from graphclean.runs.cells import LONGEST_SHOWN, Shown, hold_cells, read_cells
from tests.builders import Cli, Refuse

N = 120
HOSTILE = "<script>window.stolen=9</script>"


@pytest.fixture
def texts() -> list[str]:
    return [f"text {row}" for row in range(N - 2)] + [HOSTILE, "x" * 5000]


def features() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    labels = np.arange(N) % 3
    z = 3 * np.eye(3)[labels] + 0.3 * rng.normal(size=(N, 3))
    given = labels.copy()
    given[:12] = (given[:12] + 1) % 3
    return z, given


def shown_rows(page: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    text = page.read_text()
    found = [re.search(rf'id="{name}">(.*?)</script>', text, re.S)[1] for name in ("facts", "rows")]
    return json.loads(found[0]), json.loads(found[1])


def save_csv(folder: Path, texts: list[str]) -> None:
    z, labels = features()
    table = pd.DataFrame({"id": [f"s{row}" for row in range(N)], "text": texts, "label": labels})
    table.assign(**{f"f{column}": z[:, column] for column in range(3)}).to_csv(folder / "z.csv", index=False)


def test_a_column_of_the_table_goes_with_the_run(cli: Cli, tmp_path: Path, texts: list[str]) -> None:
    save_csv(tmp_path, texts)
    done = cli("clean", "z.csv", "--out", "run", "--show", "text")
    assert done.code == 0, done.err
    assert cli("report", "run").code == 0
    facts, rows = shown_rows(tmp_path / "run/report.html")
    assert facts["shown"] == ["text"]
    assert rows["cells"]["text"][:-1] == texts[:-1]
    assert rows["cells"]["text"][-1] == "x" * LONGEST_SHOWN + "…"
    assert HOSTILE not in (tmp_path / "run/report.html").read_text()
    # A run that is made again shows the same.
    assert cli("clean", "run").code == 0
    assert list(read_cells(tmp_path / "z-clean", N)) == ["text"]


def test_a_report_may_show_more_and_then_keeps_to_it(cli: Cli, tmp_path: Path, texts: list[str]) -> None:
    save_csv(tmp_path, texts)
    assert cli("clean", "z.csv", "--out", "run").code == 0
    assert cli("report", "run", "--show", "text", "--show", "f0").code == 0
    facts, rows = shown_rows(tmp_path / "run/report.html")
    assert facts["shown"] == ["text", "f0"]
    assert float(rows["cells"]["f0"][3]) == pytest.approx(features()[0][3, 0])
    (tmp_path / "z.csv").unlink()
    assert cli("report", "run").code == 0
    assert shown_rows(tmp_path / "run/report.html")[0]["shown"] == ["text", "f0"]


def test_a_missing_column_is_one_line_with_the_nearest_name(
    cli: Cli, refuse: Refuse, tmp_path: Path, texts: list[str]
) -> None:
    save_csv(tmp_path, texts)
    refuse("clean z.csv --show txet", "z.csv: --show: no column 'txet' in it; did you mean 'text'?")
    refuse("train z.csv --show txet", "no column 'txet' in it; did you mean 'text'?")
    assert cli("clean", "z.csv", "--out", "run").code == 0
    refuse("report run --show txet", "no column 'txet' in it; did you mean 'text'?")
    for name in ("a/1.png", "b/2.png"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / "photos" / name)
    refuse("clean photos --show text", "photos: --show 'text': there is no table, and so no column, in it")


def test_cells_are_found_by_id_in_the_file_of_labels(cli: Cli, tmp_path: Path, texts: list[str]) -> None:
    z, labels = features()
    ids = [f"s{row}" for row in range(N)]
    pd.DataFrame({"id": ids, **{f"f{i}": z[:, i] for i in range(3)}}).to_csv(tmp_path / "z.csv", index=False)
    named = pd.DataFrame({"id": ids, "label": labels, "text": texts})
    named.iloc[::-1].to_csv(tmp_path / "labels.csv", index=False)
    done = cli("clean", "z.csv", "--labels", "labels.csv", "--show", "text", "--out", "run")
    assert done.code == 0, done.err
    assert read_cells(tmp_path / "run", N)["text"][:50] == texts[:50]


def test_arrays_of_a_file_can_be_shown(cli: Cli, tmp_path: Path, texts: list[str]) -> None:
    z, labels = features()
    np.savez(tmp_path / "z.npz", z=z, y=labels, text=np.array(texts))
    done = cli(
        "train", "z.npz", "--labels-key=y", "--show", "text", "--out", "run", "--set", "training.epochs=1"
    )
    assert done.code == 0, done.err
    assert read_cells(tmp_path / "run", N)["text"][:3] == texts[:3]


def test_columns_beside_paths_of_photos_are_shown_in_their_order(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "b.png")
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "m.csv").write_text("path,label,camera\nb.png,x,left\na.png,y,right\n")
    shown = Shown(["camera"], tmp_path / "m.csv", Names(), labels=None, photos=True)
    assert shown.read(["b.png", "a.png"]) == {"camera": ["left", "right"]}
    # Photos that were added or taken away since.
    assert shown.read(["a.png", "gone.png"]) == {"camera": ["right", ""]}


def test_tables_that_hold_photos_have_columns_too(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    cell = (tmp_path / "a.png").read_bytes()
    table = pd.DataFrame({"image": [cell, cell], "label": ["x", "y"], "camera": ["left", None]})
    table.to_parquet(tmp_path / "photos.parquet")
    shown = Shown(["camera"], tmp_path / "photos.parquet", Names(), labels=None, photos=True)
    assert shown.read(["0", "1"]) == {"camera": ["left", ""]}
    with pytest.raises(InputError, match="no column 'image'"):
        Shown(["image"], tmp_path / "photos.parquet", Names(), labels=None, photos=True)


@pytest.mark.filterwarnings("ignore::graphclean.errors.DataWarning")
def test_python_gives_values_with_arrays_and_names_with_paths(tmp_path: Path, texts: list[str]) -> None:
    z, labels = features()
    run = graphclean.clean(z, labels, show={"text": texts}, out=tmp_path / "run", quiet=True)
    assert read_cells(run.path, N)["text"][:2] == texts[:2]
    save_csv(tmp_path, texts)
    named = graphclean.clean(tmp_path / "z.csv", show="text", out=tmp_path / "named", quiet=True)
    assert read_cells(named.path, N) == read_cells(run.path, N)
    with pytest.raises(InputError, match="show: text holds 3 values for 120 samples"):
        graphclean.clean(z, labels, show={"text": texts[:3]}, out=tmp_path / "other", quiet=True)
    with pytest.raises(InputError, match="is a dict or a table"):
        graphclean.clean(z, labels, show=["text"], out=tmp_path / "other", quiet=True)
    with pytest.raises(InputError, match="are names of columns"):
        graphclean.clean(tmp_path / "z.csv", show={"text": texts}, out=tmp_path / "other", quiet=True)
    assert not (tmp_path / "other").exists()


def test_cells_are_cut_until_a_page_can_hold_them(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = pa.chunked_array([["y" * 1500, "short"]])

    def fitted(samples: int = 2, most: int = 10) -> list[str]:
        return fit_cells(ShownCells({"text": texts}), samples, most).take(np.arange(2))["text"]

    assert fitted() == ["y" * 1500, "short"]
    monkeypatch.setattr(fitting, "MOST_CELL_BYTES", 300)
    assert fitted() == ["y" * 200 + "…", "short"]
    monkeypatch.setattr(fitting, "MOST_CELL_BYTES", 1)
    assert fitted() == ["y" * CELL_LENGTHS[-1] + "…", "short"]
    assert fit_cells(ShownCells(), 2, 10).take(np.arange(2)) == {}


def test_of_more_samples_than_the_page_holds_some_decide_how_long_a_cell_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = pa.chunked_array([["y" * 500] * 1000])
    monkeypatch.setattr(fitting, "MOST_CELL_BYTES", 5500)
    assert fit_cells(ShownCells({"text": texts}), 1000, 10).length == CELL_LENGTHS[0]
    assert fit_cells(ShownCells({"text": texts}), 1000, 20).length == CELL_LENGTHS[2]


def test_numbers_and_gaps_in_memory_are_text() -> None:
    assert hold_cells({"year": [1999, None, 3.0, float("nan")]}, 4) == {"year": ["1999", "", "3", ""]}
