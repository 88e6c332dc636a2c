"""Verdicts as other tools take them."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from graphclean import Run
from graphclean._files import write_json
from graphclean.config.presets import FormatName
from graphclean.data.digits import noisy_digits
from graphclean.errors import InputError
from graphclean.runs.decisions import DecisionLog
from graphclean.runs.folder import write_config
from graphclean.runs.formats import OOD_CHOICE, UNLABELED, Format
from tests.builders import Cli, Refuse

ROWS = [
    ("a", "a/0.png", "a", "a", "keep", 0.9, 0.1, 0.81),
    ("b", "b/1.png", "b", "a", "relabel", 0.1, 0.2, 0.72),
    ("b", "b/2.png", "b", "b", "ood", 0.5, 0.8, 0.8),
    ("a", "a/3.png", "a", "b", "uncertain", 0.5, 0.2, 0.4),
    ("", "4.png", None, "a", "unlabeled", np.nan, 0.1, 0.9),
    ("b", "b/5.png", "b", None, "unreadable", np.nan, np.nan, np.nan),
]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Six photos under the folders a and b, one of each verdict; the one of b/2.png was decided on."""
    monkeypatch.chdir(tmp_path)
    for number, (_, name, *_) in enumerate(ROWS):
        path = tmp_path / "ph & otos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 6), (40 * number, 90, 160)).save(path)
    names = ["id", "given_label", "proposed_label", "verdict", "label_quality", "ood_score", "confidence"]
    table = pd.DataFrame([row[1:] for row in ROWS], columns=names)
    table = table.assign(
        selected=False, neighbors=[[] for _ in ROWS], photo_issues=[["dark", "blank"], *[[]] * 5]
    )
    run = tmp_path / "run"
    run.mkdir()
    source = {"data": "ph & otos", "kind": "photos", "embedder": "efficientnet-lite0"}
    write_config(run, "clean", source, {})
    write_json(run / "env.json", {"data_sha256": "0"})
    write_json(run / "summary.json", {"classes": ["a", "b"]})
    table.to_parquet(run / "verdicts.parquet", index=False)
    return run


def test_the_command_and_python_know_the_same_formats() -> None:
    assert tuple(FormatName) == get_args(Format)


def test_tasks_for_label_studio(cli: Cli, run: Path) -> None:
    done = cli("apply", "run", "--format", "label-studio")
    assert done.code == 0
    assert f"LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT={run.parent}" in done.err
    tasks = json.loads((run / "label-studio.json").read_text())
    assert [task["data"]["image"] for task in tasks] == [
        f"/data/local-files/?d=ph%20%26%20otos/{name}" for _, name, *_ in ROWS[:5]
    ]
    said = [[part["result"][0]["value"]["choices"] for part in task["predictions"]] for task in tasks]
    assert said == [[["a"]], [["a"]], [[OOD_CHOICE]], [["a"]], []]  # what is uncertain stays as it is
    first = tasks[1]["predictions"][0]
    assert first["score"] == 0.72
    assert (first["result"][0]["from_name"], first["result"][0]["to_name"]) == ("label", "image")
    assert first["result"][0]["type"] == "choices"
    assert tasks[0]["data"]["photo_issues"] == "dark, blank"
    view = ET.fromstring((run / "label-studio.xml").read_text())
    assert view.find("Image") is not None
    control = view.find("Choices")
    assert control is not None
    assert (control.get("name"), control.get("toName")) == ("label", "image")
    assert [choice.get("value") for choice in control] == ["a", "b", OOD_CHOICE]
    again = cli("apply", "run", "--format", "label-studio", "--json")
    assert json.loads(again.out)["changed"] == 0


def test_what_people_decided_goes_first(cli: Cli, run: Path) -> None:
    with DecisionLog(run) as log:
        log.add(log.samples.decide(2, "label", "a", "Ada"))
    cli("apply", "run", "--format", "label-studio")
    task = json.loads((run / "label-studio.json").read_text())[2]
    assert task["predictions"][0]["result"][0]["value"]["choices"] == ["a"]
    assert task["predictions"][0]["score"] == 1
    cli("apply", "run", "--format", "cleanlab")
    row = pd.read_csv(run / "cleanlab.csv").set_index("id").loc["b/2.png"]
    assert (row.is_label_issue, row.predicted_label, row.is_outlier_issue) == (True, "a", False)


def test_columns_such_as_cleanlabs(cli: Cli, run: Path) -> None:
    assert cli("apply", "run", "--format", "cleanlab").code == 0
    table = pd.read_csv(run / "cleanlab.csv").set_index("id")
    assert table.is_label_issue.tolist() == [False, True, False, False, False, False]
    assert table.is_outlier_issue.tolist() == [False, False, True, False, False, False]
    assert table.predicted_label["b/1.png"] == "a"
    np.testing.assert_allclose(table.outlier_score[:5], [0.9, 0.8, 0.2, 0.8, 0.9])
    assert not table.is_near_duplicate_issue.any()
    assert cli("apply", "run", "--format", "cleanlab", "--out", "x.parquet").code == 0
    assert pd.read_parquet("x.parquet").is_label_issue.dtype == bool


def test_a_folder_for_fiftyone(cli: Cli, run: Path) -> None:
    """Its importer takes each entry of the manifest as a file, and attributes as fields of the label."""
    assert cli("apply", "run", "--format", "fiftyone").code == 0
    labels = json.loads((run / "fiftyone" / "labels.json").read_text())
    places = json.loads((run / "fiftyone" / "data.json").read_text())
    assert labels["classes"] == ["a", "b", UNLABELED]
    assert labels["labels"].keys() == places.keys() == set("01234")
    assert [label["label"] for label in labels["labels"].values()] == ["a", "b", "b", "a", UNLABELED]
    assert all(Path(path).is_absolute() and Path(path).is_file() for path in places.values())
    told = labels["labels"]["1"]["attributes"]
    assert (told["verdict"], told["label_after"], told["sample"]) == ("relabel", "a", "b/1.png")
    assert told["certainty"] == 0.72
    assert not told.keys() & {"id", "label", "confidence", "tags", "logits"}  # these are its own


def test_a_table_for_hugging_face(cli: Cli, run: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="needs the extra hf")
    assert cli("apply", "run", "--format", "hf").code == 0
    found = datasets.Dataset.from_parquet(str(run / "hf.parquet"), cache_dir=str(run.parent / "cache"))
    assert found.features["label"].names == ["a", "b"]
    assert found["id"][:] == ["a/0.png", "b/1.png", "a/3.png"]
    assert found["label"][:] == [0, 0, 0]
    assert found["given_label"][:] == ["a", "b", "a"]
    assert found[1]["image"].size == (8, 6)
    assert found[1]["image"].getpixel((0, 0)) == (40, 90, 160)
    assert json.loads(cli("apply", "run", "--format", "hf", "--json").out)["changed"] == 0
    again = cli("apply", "run", "--format", "hf", "--drop-uncertain")
    assert again.code == 2
    assert "use --overwrite to replace it" in again.err


@pytest.mark.parametrize("kind", ["features", "images"])
def test_arrays_for_hugging_face(cli: Cli, refuse: Refuse, tmp_path: Path, kind: str) -> None:
    digits = noisy_digits(noise=0.3)
    inputs = digits.pixels[:200] if kind == "features" else digits.images[:200]
    np.savez(tmp_path / "d.npz", **{kind: inputs, "labels": digits.labels[:200]})
    more = () if kind == "features" else ("--set", "training.epochs=1")
    command = "clean" if kind == "features" else "train"
    assert cli(command, "d.npz", "--out", "run", "--quiet", *more).code == 0
    assert cli("apply", "run", "--format", "hf").code == 0
    table = pd.read_parquet(tmp_path / "run" / "hf.parquet")
    rows = table["id"].astype(int).tolist()
    assert len(rows) == (Run("run").apply(dry_run=True, quiet=True).table.action != "removed").sum()
    if kind == "features":
        np.testing.assert_allclose(np.stack(table["features"]), digits.pixels[rows])
        assert cli("apply", "run", "--format", "label-studio").code == 0
        assert "<Text " in (tmp_path / "run" / "label-studio.xml").read_text()
    else:
        assert table["image"].iloc[0]["bytes"][:4] == b"\x89PNG"
    refuse("apply run --format fiftyone", "there are no photos for fiftyone")


def test_bad_choices_are_refused(refuse: Refuse, run: Path) -> None:
    refuse("apply run --format csv", "Invalid value for '--format'")
    refuse("apply run --format cleanlab --copy", "give one of them")
    refuse("apply run --format cleanlab --out x.json", "are written as .csv or .parquet")
    refuse("apply run --format label-studio --out x.csv", "tasks of Label Studio are a .json")
    refuse("apply run --format hf --out x.csv", "a data set for Hugging Face is a .parquet")
    form: Any = "labelstudio"
    with pytest.raises(InputError, match="form labelstudio: did you mean label-studio"):
        Run(run).apply(form=form)


def test_a_dry_run_writes_nothing(cli: Cli, run: Path) -> None:
    for name in FormatName:
        done = cli("apply", "run", "--format", name, "--dry-run", "--json")
        assert json.loads(done.out)["changed"] >= 1, name
    assert {path.name for path in run.iterdir()} == {
        *("config.json", "env.json", "summary.json", "verdicts.parquet")
    }


def test_data_that_has_moved_is_named(cli: Cli, run: Path) -> None:
    (run.parent / "ph & otos").rename("moved")
    assert "name its place now with --data" in cli("apply", "run", "--format", "fiftyone").err
    assert cli("apply", "run", "--format", "fiftyone", "--data", "moved").code == 0
    assert cli("apply", "run", "--format", "cleanlab").code == 0  # which needs no photos


def test_labels_that_the_summary_does_not_list_are_classes_too(cli: Cli, run: Path) -> None:
    """As in a run from elsewhere, or an older one."""
    write_json(run / "summary.json", {"classes": ["b"]})
    assert cli("apply", "run", "--format", "hf", "--quiet").code == 0
    table = pq.read_table(run / "hf.parquet")
    features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
    names = features["label"]["names"]
    assert names == ["b", "a"]
    given = dict(zip(table["id"].to_pylist(), table["label"].to_pylist(), strict=True))
    assert names[given["a/0.png"]] == "a"


@pytest.mark.usefixtures("run")
def test_a_table_in_place_of_photos_names_the_format_that_takes_it(refuse: Refuse) -> None:
    columns = {
        "image": [{"bytes": b"x", "path": name} for _, name, *_ in ROWS],
        "label": [row[0] for row in ROWS],
    }
    pq.write_table(pa.table(columns), "photos.parquet")
    refuse(
        ["apply", "run", "--format", "fiftyone", "--data", "photos.parquet"],
        "the photos are in a table or in shards, and fiftyone takes files; --format hf writes a table",
    )
