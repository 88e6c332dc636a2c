"""Folders and tables that can't be used, as a person gives them: one line, exit code 2, nothing written."""

from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

from tests.builders import Cli, Refuse


def save(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (4, 4), (200, 0, 0)).save(path)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """Good photos of two classes, and folders of other kinds beside them."""
    for name in (
        "photos/cat/1.png",
        "photos/dog/2.png",
        "single/cat/1.png",
        "single/cat/deep/2.png",
        "flat/1.png",
    ):
        save(tmp_path / name)
    (tmp_path / "nothing" / "in" / "here").mkdir(parents=True)
    return tmp_path


FOLDERS = {
    "nothing": "no images in nothing",
    "single": "one class (cat) in single; at least two are needed",
    "flat": "no classes in flat; at least two are needed, each as a folder of photos",
    "absent": "absent: no such file",
}
TABLES = {
    "path,label\nphotos/cat/1.png;cat\nphotos/dog/2.png,dog\n": "m.csv, line 2: 1 cell, the header has 2",
    "path;label\nphotos/cat/1.png,cat\n": "m.csv, line 2: 1 cell, the header has 2",
    "\ufeffpath,label\ngone/1.png,cat\ngone/2.png,dog\n": "no images in m.csv that can be opened; gone/1",
    "path,label\nphotos/cat/1.png,\nphotos/dog/2.png,  \n": "no classes in m.csv; at least two are needed",
    "path,label\nphotos/cat/1.png,cat\nphotos/dog/2.png,cat\n": "one class (cat) in m.csv",
    "path,label\n../outside.png,cat\n/etc/passwd,dog\n": "../outside.png: leaves the folder",
    "path,label\nphotos/cat/1.png,cat\n\"photos/dog/2.png,dog\n": "m.csv, line 3: ",
    "path,path,label\nphotos/cat/1.png,photos/cat/1.png,cat\n": "more than one column could hold the path",
    "path,kind\nphotos/cat/1.png,cat\n": "no column is known to hold the label (there are: path, kind); name",
    "path,label\n": "m.csv: the table has no rows",
}  # fmt: skip


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("command", ["clean", "train"])
def test_folders(refuse: Refuse, command: str) -> None:
    for name, message in FOLDERS.items():
        refuse([command, name], message)


@pytest.mark.parametrize("text", TABLES)
def test_tables(refuse: Refuse, here: Path, text: str) -> None:
    (here / "m.csv").write_text(text, encoding="utf-8")
    for command in ("clean", "train"):
        named = [] if text.startswith("path,path") else ["--path-column", "path"]
        refuse([command, "m.csv", *named], TABLES[text])


@pytest.mark.parametrize("command", ["clean", "train"])
def test_a_run_is_not_written_into_its_data(
    refuse: Refuse, here: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse([command, "photos", "--out", "photos/cat/run"], "photos/cat/run: lies in photos, which is never")
    monkeypatch.chdir(here / "photos")
    refuse(
        [command, "."], f"runs/photos-{command}: lies in ., which is never written to; choose another --out"
    )


@pytest.mark.usefixtures("one_thread")
def test_what_can_be_used_is_and_the_rest_is_listed(cli: Cli, here: Path) -> None:
    """Missing files, repeated ids, empty labels, and labels that look like numbers or formulas."""
    rows = [("photos/cat/1.png", "=1+1", "a"), ("photos/dog/2.png", "007", "b")] * 6
    rows += [("photos/gone.png", "007", "c"), ("photos/cat/1.png", "", "d"), ("photos/dog/2.png", "007", "a")]
    pd.DataFrame(rows, columns=["path", "label", "id"]).to_csv(here / "m.csv", index=False)
    settings = [
        "training.network=small-conv",
        "training.image_size=8",
        "training.crop_padding=1",
        "training.epochs=1",
        "method.warmup_epochs=1",
        "cleaning.k=5",
    ]
    words = [word for setting in settings for word in ("--set", setting)]
    done = cli("train", "m.csv", "--preset", "photos", *words, "--out", "run")
    assert done.code == 0
    assert "1 photo can't be read, listed in unreadable.csv: c (no such file)" in done.err
    assert "11 ids are repeats of an earlier one" in done.err
    assert "1 sample is unlabeled" in done.err
    verdicts = pd.read_parquet(here / "run/verdicts.parquet")
    assert verdicts.id.tolist() == [row[2] for row in rows]
    assert set(verdicts.given_label.dropna()) == {"=1+1", "007"}
    written = pd.read_csv(here / "run/verdicts.csv", dtype=str)
    assert set(written.given_label.dropna()) == {"'=1+1", "007"}
