"""Hugging Face data sets: copies on disk for real, names with a stand-in for the hub."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from graphclean.data.hub import is_saved, load_hub, load_saved, names_hub
from graphclean.data.parquet import read_photo_table
from graphclean.data.tables import Names
from graphclean.errors import InputError
from tests.data.test_photo_tables import CLASSES, colors, encoded

datasets = pytest.importorskip("datasets")
datasets.disable_progress_bars()


def make(count: int, **split: Any) -> Any:
    """Photos of the colors 0, 1, …, of two classes by turns."""
    features = datasets.Features(image=datasets.Image(), kind=datasets.ClassLabel(names=CLASSES))
    cells = [{"bytes": encoded(i), "path": f"{i}.png"} for i in range(count)]
    columns = {"image": cells, "kind": [i % 2 for i in range(count)]}
    return datasets.Dataset.from_dict(columns, features=features, **split)


def test_a_saved_copy_reads_like_a_table(tmp_path: Path) -> None:
    make(5).save_to_disk(tmp_path / "saved")
    assert is_saved(tmp_path / "saved")
    assert not is_saved(tmp_path)
    images = read_photo_table(load_saved(tmp_path / "saved", None), Names())
    assert images.ids == ["0.png", "1.png", "2.png", "3.png", "4.png"]
    assert images.labels == ["ant", "bee", "ant", "bee", "ant"]
    assert colors(images) == {row: row for row in range(5)}
    assert len({tuple(stamp) for stamp in images.stamps()}) == 5
    again = read_photo_table(load_saved(tmp_path / "saved", None), Names())
    assert again.stamps() == images.stamps()


def test_a_selection_of_rows_stays_one(tmp_path: Path) -> None:
    make(6).select([4, 1, 3]).save_to_disk(tmp_path / "saved")
    images = read_photo_table(load_saved(tmp_path / "saved", None), Names())
    assert images.ids == ["4.png", "1.png", "3.png"]
    assert colors(images) == {0: 4, 1: 1, 2: 3}


def test_splits_of_a_saved_copy(tmp_path: Path) -> None:
    datasets.DatasetDict(train=make(4), test=make(2)).save_to_disk(tmp_path / "saved")
    assert is_saved(tmp_path / "saved")
    assert len(load_saved(tmp_path / "saved", "test").dataset) == 2
    with pytest.raises(InputError, match=r"saved: name a split, as in .*saved:train; there are test, train$"):
        load_saved(tmp_path / "saved", None)
    with pytest.raises(InputError, match=r"no split val in it; there are test, train$"):
        load_saved(tmp_path / "saved", "val")


def test_a_damaged_copy_is_one_line(tmp_path: Path) -> None:
    make(4).save_to_disk(tmp_path / "saved")
    next((tmp_path / "saved").glob("*.arrow")).write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"^[^\n]*saved: can't be loaded: [^\n]+$"):
        load_saved(tmp_path / "saved", None)


def test_names_go_to_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str | None]] = []

    def load_dataset(name: str, split: str | None = None) -> Any:
        asked.append((name, split))
        everything = datasets.DatasetDict(train=make(4), test=make(2))
        return everything if split is None else everything[split]

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert names_hub(Path("hf:owner/name"))
    assert not names_hub(Path("photos"))
    assert len(load_hub("owner/name", "test").dataset) == 2
    with pytest.raises(
        InputError, match=r"^hf:name: name a split, as in hf:name:train; there are test, train$"
    ):
        load_hub("name", None)
    assert asked == [("owner/name", "test"), ("name", None)]
    for bad in ("", "../photos", "/etc", "a/b/c", "https://x"):
        with pytest.raises(InputError, match="a data set is named as hf:NAME"):
            load_hub(bad, None)
    assert len(asked) == 2


def test_what_the_hub_says_no_to_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_dataset(*_: Any, **__: Any) -> Any:
        raise ConnectionError("Couldn't reach the Hub\nand much more")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(InputError, match=r"^hf:name: can't be loaded: Couldn't reach the Hub$"):
        load_hub("name", None)


def test_files_outside_the_table_are_opened_only_where_the_library_keeps_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    for place in (cache, tmp_path):
        (place / "a.png").write_bytes(encoded(9))
    (cache / "link.png").symlink_to(tmp_path / "a.png")
    paths = [str(cache / "a.png"), str(tmp_path / "a.png"), str(cache / "link.png"), str(cache / "../a.png")]
    features = datasets.Features(image=datasets.Image(), label=datasets.Value("string"))
    columns = {"image": [{"bytes": None, "path": path} for path in paths], "label": ["x", "y", "x", "y"]}
    found = datasets.Dataset.from_dict(columns, features=features)
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: found)
    monkeypatch.setattr(datasets.config, "HF_CACHE_HOME", cache)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", cache)
    images = read_photo_table(load_hub("name", None), Names())
    assert list(colors(images).values()) == [9, *["no bytes of an image"] * 3]


@pytest.mark.parametrize("how", ["absolute", "up", "link"])
def test_a_saved_copy_that_names_a_file_elsewhere_is_refused(tmp_path: Path, how: str) -> None:
    for name in ("ours", "theirs"):
        columns = {"image": [{"bytes": encoded(9), "path": None}] * 2, "label": ["x", "y"]}
        features = datasets.Features(image=datasets.Image(), label=datasets.Value("string"))
        datasets.Dataset.from_dict(columns, features=features).save_to_disk(tmp_path / name)
    (foreign,) = (tmp_path / "theirs").glob("*.arrow")
    state = tmp_path / "ours" / "state.json"
    named = {"absolute": str(foreign), "up": f"../theirs/{foreign.name}", "link": "link.arrow"}[how]
    (tmp_path / "ours" / "link.arrow").symlink_to(foreign)
    state.write_text(json.dumps({**json.loads(state.read_text()), "_data_files": [{"filename": named}]}))
    with pytest.raises(InputError, match=r"state\.json: names a file that is not in its folder: .*\.arrow$"):
        load_saved(tmp_path / "ours", None)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    for load in (lambda: load_hub("name", None), lambda: load_saved(tmp_path, None)):
        with pytest.raises(InputError, match=r'need the extra "hf": pip install "\.\[hf\]" in the source'):
            load()
