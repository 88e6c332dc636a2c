"""Tables with photos in them through the command line: verdicts, training, prediction, cleaned copies."""

import json
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests.builders import Cli, Refuse
from tests.data.test_photo_tables import hub_metadata
from tests.runs.test_photos import COLORS, WRONG, paint
from tests.runs.tiny import SETTINGS

pytestmark = pytest.mark.usefixtures("one_thread")
CLASSES = list(COLORS)
SMALL = ["--preset", "photos", "--set", "training.network=small-conv", "--set", "training.image_size=16"]
TINY = [*SMALL, *(word for setting in SETTINGS for word in ("--set", setting))]


def save_folder(root: Path, each: int = 24, wrong: int = 4) -> None:
    """Photos of three classes, and a few of each in a wrong folder."""
    rng = np.random.default_rng(0)
    for color in COLORS:
        for number in range(each):
            paint(root / color / f"{number:02}.png", color, rng)
    for place, color in WRONG.items():
        for number in range(wrong):
            paint(root / place / f"wrong-{number}.png", color, rng)


def rows_of(root: Path) -> list[dict[str, Any]]:
    """The same photos as rows."""
    return [
        {
            "image": {"bytes": path.read_bytes(), "path": f"{path.parent.name}/{path.name}"},
            "label": CLASSES.index(path.parent.name),
            "note": f"about {path.name}",
        }
        for path in sorted(root.rglob("*.png"))
    ]


def save_table(path: Path, rows: list[dict[str, Any]]) -> None:
    features = {"image": {"_type": "Image"}, "label": {"names": CLASSES, "_type": "ClassLabel"}}
    pq.write_table(pa.Table.from_pylist(rows).replace_schema_metadata(hub_metadata(**features)), path)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """`photos/`, and `photos.parquet` with the same and two rows more that can't be read."""
    save_folder(tmp_path / "photos")
    rows = rows_of(tmp_path / "photos")
    rows.insert(5, {"image": {"bytes": b"no image", "path": "bad"}, "label": 2, "note": ""})
    rows.append({"image": {"bytes": None, "path": "/etc/passwd"}, "label": 0, "note": ""})
    save_table(tmp_path / "photos.parquet", rows)
    return tmp_path / "photos.parquet"


@pytest.mark.slow
def test_verdicts_are_those_of_the_folder(cli: Cli, table: Path) -> None:
    pytest.importorskip("efficientnet_lite_pytorch")
    for data in ("photos", "photos.parquet"):
        assert cli("clean", data, "--out", f"run-{data}", "--set", "cleaning.k=8", "--quiet").code == 0
    of_folder, of_table = (
        pd.read_parquet(table.parent / f"run-{data}/verdicts.parquet")
        for data in ("photos", "photos.parquet")
    )
    listed = pd.read_csv(table.parent / "run-photos.parquet/unreadable.csv").set_index("id").reason
    assert listed.to_dict() == {"bad": "not an image", "/etc/passwd": "no bytes of an image"}
    readable = of_table[of_table.verdict != "unreadable"].reset_index(drop=True)
    pd.testing.assert_frame_equal(readable, of_folder)
    assert (of_folder.verdict == "relabel").sum() >= 9
    # A second time the features are those of the first.
    tried = table.parent / "run-photos.parquet"
    before = (tried / "verdicts.csv").read_bytes()
    again = ("clean", "photos.parquet", "--out", str(tried), "--set", "cleaning.k=8", "--overwrite", "--json")
    assert json.loads(cli(*again).out)["verdicts"]["unreadable"] == 2
    assert (tried / "verdicts.csv").read_bytes() == before


@pytest.mark.slow
def test_the_photos_themselves_are_trained_on_and_predicted_alike(cli: Cli, table: Path) -> None:
    here = table.parent
    done = cli("train", "photos.parquet", *TINY, "--validation", "photos")
    assert done.code == 0
    assert "84 photos of 3 × 16 × 16, 3 classes; preset photos" in done.err
    assert "2 photos can't be read" in done.err
    run = here / "runs/photos-train"
    source = json.loads((run / "config.json").read_text())["source"]
    assert (source["kind"], source["size"], source["pixels"]["kind"]) == ("photos", 16, "bytes")
    assert (pd.read_parquet(run / "verdicts.parquet").verdict == "unreadable").sum() == 2
    for data in ("photos", "photos.parquet"):
        assert cli("predict", "runs/photos-train", data, "--out", f"{data}.csv", "--quiet").code == 0
    folder, whole = (pd.read_csv(here / f"{data}.csv") for data in ("photos", "photos.parquet"))
    assert whole.verdict.tolist().count("unreadable") == 2
    read = whole[whole.verdict != "unreadable"].reset_index(drop=True)
    pd.testing.assert_frame_equal(read, folder)
    # The same from an array of the center squares, as the exported model gets them.
    squares = []
    for path in sorted((here / "photos").rglob("*.png")):
        with Image.open(path) as photo:
            squares.append(np.asarray(photo.resize((16, 16), Image.Resampling.BICUBIC)))
    from graphclean import NoisyGraphClassifier

    model = NoisyGraphClassifier.load(run)
    np.testing.assert_allclose(model.ood_score(np.stack(squares)), folder.ood_score, atol=1e-6)
    assert model.predict(np.stack(squares)).tolist() == folder.predicted_label.tolist()
    # An interrupted run goes on with the same pictures.
    before = (run / "model.safetensors").read_bytes()
    (run / "summary.json").unlink()
    assert cli("train", "photos.parquet", "--resume", "--quiet").code == 0
    assert (run / "model.safetensors").read_bytes() == before


def make_run(here: Path, cli: Any, data: str = "photos.parquet") -> pd.DataFrame:
    """A run over the table, with verdicts written by hand."""
    assert cli("train", data, *TINY, "--out", "run", "--quiet").code == 0
    verdicts = pd.read_parquet(here / "run/verdicts.parquet")
    verdicts["verdict"] = np.where(verdicts.verdict == "unreadable", "unreadable", "keep")
    verdicts.loc[[0, 7], "verdict"] = "ood"
    verdicts.loc[1, ["verdict", "proposed_label"]] = ["relabel", "red"]
    verdicts.to_parquet(here / "run/verdicts.parquet")
    return verdicts


@pytest.mark.slow
def test_a_cleaned_copy_keeps_all_but_labels_and_rows(cli: Cli, table: Path) -> None:
    here = table.parent
    make_run(here, cli)
    original = table.read_bytes()
    done = cli("apply", "run", "--copy", "--dry-run")
    assert "files to change in run/cleaned.parquet: 1" in done.out
    assert not (here / "run/cleaned.parquet").exists()
    assert "files changed: 1" in cli("apply", "run", "--copy").out
    before, after = pq.read_table(table), pq.read_table(here / "run/cleaned.parquet")
    assert after.schema.equals(before.schema)
    assert after.schema.metadata[b"huggingface"] == before.schema.metadata[b"huggingface"]
    gone = {0, 5, 7, 85}
    expected = [row for number, row in enumerate(before.to_pylist()) if number not in gone]
    assert before["label"][1].as_py() != CLASSES.index("red")
    expected[0]["label"] = CLASSES.index("red")
    assert after.to_pylist() == expected
    assert table.read_bytes() == original
    assert "Nothing to change" in cli("apply", "run", "--copy").out
    assert cli("apply", "run", "--copy", "--out", "other.pq", "--quiet").code == 0
    assert pq.read_table(here / "other.pq").equals(after)
    assert cli("apply", "run", "--quiet").code == 0  # the list of ids, as of any data
    assert len(pd.read_csv(here / "run/cleaned.csv")) == 86


@pytest.mark.slow
def test_labels_of_every_type_stay_what_they_are(cli: Cli, table: Path) -> None:
    here = table.parent
    rows = pq.read_table(table).to_pylist()
    kinds: list[tuple[str, Any, Any]] = [
        ("text", lambda n: f"{n}.0", 2),
        ("number", int, 2),
        ("float", float, 2),
        ("bool", bool, "True"),
        ("date", lambda n: date(2024, 5, 1 + n), "2024-05-03"),
        ("time", lambda n: datetime(2024, 5, 1 + n), "2024-05-03"),
    ]
    for name, change, proposed in kinds:
        changed = [{**row, "label": change(row["label"])} for row in rows]
        pq.write_table(pa.Table.from_pylist(changed), here / f"{name}.parquet")
        assert cli("train", f"{name}.parquet", *TINY, "--out", name, "--quiet").code == 0
        verdicts = pd.read_parquet(here / name / "verdicts.parquet")
        verdicts["verdict"] = "keep"
        verdicts["proposed_label"] = verdicts.given_label
        verdicts.loc[1, ["verdict", "proposed_label"]] = ["relabel", proposed]
        verdicts.to_parquet(here / name / "verdicts.parquet")
        assert cli("apply", name, "--copy", "--quiet").code == 0
        labels = pq.read_table(here / name / "cleaned.parquet")["label"].to_pylist()
        expected = [row["label"] for row in changed]
        expected[1] = change(2)
        assert labels == expected


@pytest.mark.slow
def test_a_folder_that_save_to_disk_wrote(cli: Cli, refuse: Refuse, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    save_folder(tmp_path / "photos")
    features = datasets.Features(
        image=datasets.Image(), label=datasets.ClassLabel(names=CLASSES), note=datasets.Value("string")
    )
    whole = datasets.Dataset.from_list(rows_of(tmp_path / "photos"), features=features)
    datasets.DatasetDict(train=whole, test=whole.select(range(5))).save_to_disk(tmp_path / "saved")
    refuse(["train", "saved", *TINY], "name a split, as in saved:train; there are test, train")
    verdicts = make_run(tmp_path, cli, "saved:train")
    # Of a path the library keeps the name alone, which is no id where two folders have it.
    assert verdicts.id.tolist() == [str(row) for row in range(84)]
    assert cli("predict", "run", "saved:test", "--quiet").code == 0
    assert len(pd.read_csv(tmp_path / "run/predictions/saved-test.csv")) == 5
    refuse("apply run --copy --out saved/c.parquet", "lies in saved, which is never written to")
    assert cli("apply", "run", "--copy", "--quiet").code == 0
    cleaned = datasets.Dataset.from_parquet(
        str(tmp_path / "run/cleaned.parquet"), cache_dir=str(tmp_path / "c")
    )
    assert cleaned.features == features
    assert len(cleaned) == len(whole) - 2
    assert cleaned[0]["label"] == CLASSES.index("red")
    assert np.array_equal(np.asarray(cleaned[1]["image"]), np.asarray(whole[2]["image"]))


@pytest.mark.slow
def test_names_of_the_hub_reach_every_command(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets")
    save_folder(tmp_path / "photos")
    features = datasets.Features(
        image=datasets.Image(), label=datasets.ClassLabel(names=CLASSES), note=datasets.Value("string")
    )
    whole = datasets.Dataset.from_list(rows_of(tmp_path / "photos"), features=features)
    asked = []

    def load_dataset(name: str, split: str | None = None) -> Any:
        asked.append((name, split))
        return whole

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert cli("train", "hf:someone/photos:train", *TINY, "--quiet").code == 0
    assert (tmp_path / "runs/photos-train-train/verdicts.csv").is_file()
    assert cli("predict", "runs/photos-train-train", "hf:someone/photos:test", "--quiet").code == 0
    assert (tmp_path / "runs/photos-train-train/predictions/photos-test.csv").is_file()
    assert cli("apply", "runs/photos-train-train", "--copy", "--quiet").code == 0
    splits = [split for _, split in asked]
    assert {name for name, _ in asked} == {"someone/photos"}
    assert splits[:2] == ["train", "test"]
    assert set(splits[2:]) == {"train"}


@pytest.mark.slow
def test_refused_with_one_line_and_nothing_written(cli: Cli, refuse: Refuse, table: Path) -> None:
    here = table.parent
    make_run(here, cli)
    rows = pq.read_table(table).to_pylist()
    save_table(here / "other.parquet", rows[:-1])
    save_table(
        here / "labels.parquet", [{**row, "label": 0} if n == 80 else row for n, row in enumerate(rows)]
    )
    (here / "mine.parquet").write_bytes(b"mine")
    (here / "damaged.parquet").write_bytes(table.read_bytes()[:-100])
    np.savez(here / "x.npz", x=np.zeros((4, 16, 16, 3), np.uint8), y=[0, 0, 1, 1])
    cases = {
        "apply run --link": "the photos are in a table, and can't be linked; --copy writes a cleaned table",
        "apply run --copy --out folder": "a cleaned table with photos in it is a .parquet",
        "apply run --copy --out photos.parquet": "lies in photos.parquet, which is never written to",
        "apply run --copy --out run/verdicts.parquet": "is a file of the run itself",
        "apply run --copy --out mine.parquet": "the file differs; use --overwrite",
        "apply run --copy --data other.parquet": "other.parquet: has changed since the run",
        "apply run --copy --data labels.parquet": "labels.parquet: has changed since the run",
        "predict run x.npz": "it holds images, but run was made from photos",
        "clean damaged.parquet": "damaged.parquet: ",
        "clean photos:train": "holds no table with photos, so there are no splits in it",
        "train photos.parquet --preset photos --embedder efficientnet-lite0": "takes the photos themselves",
        "train photos.parquet --set training.network=small-con": "timm:NAME); did you mean small-conv?",
        "train photos.parquet --set training.image_size=4": "image_size must be at least 8",
        "clean hf:../photos": "a data set is named as hf:NAME",
    }
    for command, message in cases.items():
        refuse(command, message)
