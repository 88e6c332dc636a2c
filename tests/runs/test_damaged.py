"""Run folders that someone changed: one line that names the file, and no more."""

import json
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch

from graphclean._files import read_tensors, write_json, write_tensors
from graphclean.config import recorded_settings
from graphclean.errors import InputError
from graphclean.runs.folder import read_verdicts
from tests.builders import Cli, Refuse
from tests.cleaning.test_pipeline import blobs


@pytest.fixture
def run(cli: Cli, tmp_path: Path) -> Path:
    z, labels, _ = blobs([30] * 3, noise=0.2, ood=10)
    np.savez(tmp_path / "z.npz", z=z, y=np.array(["ant", "bee", "cat"])[labels])
    assert cli("clean", "z.npz", "--out", "run", "--quiet").code == 0
    return tmp_path / "run"


@pytest.fixture
def _limit() -> Iterator[None]:
    """What waits for ever fails instead."""

    def fail(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.usefixtures("_limit")
def test_a_pipe_in_place_of_a_file_is_not_waited_for(refuse: Refuse, run: Path) -> None:
    cases = {
        "decisions.jsonl": ("report run", "apply run", "review run"),
        "cleaned.csv": ("apply run",),
        "metrics.jsonl": ("report run",),
        "scores.json": ("report run",),
        "points.safetensors": ("report run",),
        "summary.json": ("report run",),
        "verdicts.parquet": ("report run", "apply run", "review run"),
        "model.safetensors": ("predict run z.npz",),
        "config.json": ("report run", "apply run", "predict run z.npz"),
    }
    for name, commands in cases.items():
        path, kept = run / name, run.parent / name
        if path.exists():
            shutil.move(path, kept)
        os.mkfifo(path)
        for command in commands:
            refuse(command, f"run/{name}: not a file, but in the place of one; move it away")
        path.unlink()
        if kept.exists():
            shutil.move(kept, path)


@pytest.mark.parametrize(
    ("name", "field", "value", "command", "said"),
    [
        ("config.json", "source", None, "apply", "source is not a table"),
        ("config.json", "source.kind", [], "predict", "source.kind is not text"),
        ("config.json", "source.columns", 7, "predict", "source.columns is not a list or null"),
        ("config.json", "settings.audit", 3, "report", "settings.audit is not a table"),
        ("config.json", "settings.audit", None, "report", "settings.audit is not a table"),
        ("config.json", "settings", None, "report", "settings is not a table"),
        ("config.json", "settings", None, "apply", "settings is not a table"),
        ("config.json", "settings", None, "review", "settings is not a table"),
        ("config.json", "settings", None, "predict", "settings is not a table"),
        ("config.json", "format", "2", "review", "format is not a whole number"),
        ("summary.json", "classes", None, "report", "classes is not a list"),
        ("summary.json", "classes.0", {}, "report", "classes.0 is not a whole number or text"),
        ("summary.json", "k_tried", 7, "report", "k_tried is not a table"),
        ("summary.json", "noise_rate", "x", "report", "noise_rate is not a number or null"),
        ("summary.json", "expected_right.keep", None, "report", "expected_right.keep is not a number"),
        ("config.json", "source.data", "a\0b", "apply", "source.data contains a null character"),
        ("summary.json", "expected_right.keep", 1e308, "report", "expected_right.keep is not from 0 to 1"),
        ("summary.json", "selected", "x", "report", "selected is not a whole number"),
        ("summary.json", "warnings", True, "report", "warnings is not a list"),
    ],
)
def test_a_value_of_another_kind_is_named(
    refuse: Refuse, run: Path, name: str, field: str, value: object, command: str, said: str
) -> None:
    whole = json.loads((run / name).read_text())
    *above, last = (int(part) if part.isdigit() else part for part in field.split("."))
    place = whole
    for part in above:
        place = place[part]
    place[last] = value
    (run / name).write_text(json.dumps(whole))
    refuse(f"{command} run" + (" z.npz" if command == "predict" else ""), f"run/{name}: damaged: {said}\n")


@pytest.mark.parametrize(
    "name",
    ["cleaning.k", "training.network", "training.horizontal_flip", "training.batch_size", "method.name"],
)
def test_a_setting_that_is_null_is_named(name: str) -> None:
    section, _, key = name.partition(".")
    with pytest.raises(InputError, match=rf"^config.json: {name}: (null is not |not the name of a method)"):
        recorded_settings({section: {key: None}}, "config.json")


def test_a_training_run_with_null_settings_is_not_resumed(refuse: Refuse, run: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    config |= {"kind": "train", "settings": {"training": {"network": None}}}
    (run / "config.json").write_text(json.dumps(config))
    (run / "summary.json").unlink()
    refuse("train z.npz --out run --resume", "run/config.json: training.network: null is not text\n")


def test_a_detector_without_its_threshold_is_named(refuse: Refuse, run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    for value in (
        {**summary["detector"], "threshold": "x"},
        {**summary["detector"], "promised": "x"},
        {},
    ):
        (run / "summary.json").write_text(json.dumps({**summary, "detector": value}))
        refuse("report run", "run/summary.json: damaged: detector is not a table or null\n")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"ce": {}}, "no ce.accuracy in it"),
        ({"ngc": 1}, "ngc is not a table"),
        ({"facts": {"known": "9", "wrong": 1}}, "facts.known is not a whole number"),
        (
            {"verdicts": {"label_accuracy": "x", "ood_auroc": None}},
            "verdicts.label_accuracy is not a number or null",
        ),
    ],
)
def test_scores_of_another_kind_are_named(
    cli: Cli, refuse: Refuse, run: Path, changed: dict[str, Any], said: str
) -> None:
    scores: dict[str, Any] = {
        "facts": {"known": 0, "wrong": 0},
        "ce": {"accuracy": 1},
        "ngc": {"accuracy": 1},
    }
    scores["verdicts"] = {"label_accuracy": 0.5, "ood_auroc": None}
    write_json(run / "scores.json", scores)
    assert cli("report", "run", "--quiet").code == 0
    write_json(run / "scores.json", scores | changed)
    refuse("report run", f"run/scores.json: damaged: {said}\n")


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("given_label", 7, "the labels are neither all text nor all whole numbers"),
        ("proposed_label", ["x"], "the labels are neither all text nor all whole numbers"),
        ("selected", "yes", "selected is not true or false"),
        ("verdict", {"a": 1}, "verdict is no column of text"),
        ("verdict", ["keep"], "verdict is no column of text"),
        ("ood_score", float("inf"), "ood_score holds inf, which is not from 0 to 1"),
        ("label_quality", 1e300, "label_quality holds 1e+300, which is not from 0 to 1"),
        ("neighbors", [["x"]], "neighbors is no column of lists of names"),
        ("id", ["x"], "id is no column of names"),
    ],
)
def test_columns_of_another_kind_are_named(
    refuse: Refuse, run: Path, column: str, value: object, said: str
) -> None:
    table = pd.read_parquet(run / "verdicts.parquet")
    table[column] = [value] * len(table)
    table.to_parquet(run / "verdicts.parquet")
    for command in ("report", "apply", "review"):
        refuse(f"{command} run", f"run/verdicts.parquet: damaged: {said}\n")


@pytest.mark.parametrize("metadata", ["{}", "[]", "5", "not JSON"])
def test_verdicts_are_read_whatever_their_pandas_metadata_says(cli: Cli, run: Path, metadata: str) -> None:
    path = run / "verdicts.parquet"
    expected = read_verdicts(run)
    pq.write_table(pq.read_table(path).replace_schema_metadata({"pandas": metadata}), path)
    pd.testing.assert_frame_equal(read_verdicts(run), expected)
    assert cli("apply", "run").code == 0


def test_verdicts_of_a_damaged_file_are_named(refuse: Refuse, run: Path) -> None:
    path = run / "verdicts.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    for command in ("report", "apply", "review"):
        refuse(f"{command} run", "run/verdicts.parquet: can't be read: ")


def test_predictions_that_can_not_be_written_leave_no_folder(
    cli: Cli, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("graphclean.runs.predict.safe_csv", full)
    done = cli("predict", "run", "z.npz")
    expected = "graphclean: run/predictions/z.csv: can't be written: No space left on device\n"
    assert (done.code, done.err) == (2, expected)
    assert not (run / "predictions").exists()


@pytest.mark.parametrize(
    "settings", [None, {}, {"cleaning": {"certainty": "x"}}, {"cleaning": {"certainty": 1e308}}]
)
def test_a_report_does_without_settings(cli: Cli, run: Path, settings: Any) -> None:
    config = json.loads((run / "config.json").read_text())
    del config["settings"]
    whole = config if settings is None else {**config, "settings": settings}
    (run / "config.json").write_text(json.dumps(whole))
    assert cli("report", "run", "--quiet").code == 0


@pytest.mark.parametrize("name", ["keys", "ends", "content", "places"])
def test_a_report_does_without_what_was_kept_where_that_is_damaged(cli: Cli, run: Path, name: str) -> None:
    assert cli("report", "run", "--quiet").code == 0
    page = (run / "report.html").read_bytes()
    tensors, about = read_tensors(run / "kept.safetensors")
    write_tensors(run / "kept.safetensors", {**tensors, name: torch.tensor(True)}, about)
    assert cli("report", "run", "--quiet").code == 0
    assert (run / "report.html").read_bytes() == page


def test_a_single_value_is_no_embeddings(refuse: Refuse, tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", np.float32(3))
    (tmp_path / "y.txt").write_text("a\nb\n")
    refuse("clean one.npy --labels y.txt", "one.npy: it holds a single value, and no embeddings")
