"""The reader of tables: what is damaged, odd or locked is refused in one line, whatever reads it."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphclean.data.embeddings import read_embeddings
from graphclean.data.labels import read_labels
from graphclean.data.manifests import looks_like_manifest, read_manifest
from graphclean.data.parquet import find_parts, read_parquet_photos
from graphclean.data.tables import Names, read_batches, read_header, read_table
from graphclean.errors import InputError
from tests.builders import Refuse
from tests.data.test_photo_tables import save_hub_table

GOOD = pa.table({"a": [0.5, 1.5], "b": [1.0, 2.0], "label": ["x", "y"]})
READERS: list[Callable[[Path], object]] = [
    lambda path: read_table(path).frame(),
    lambda path: read_embeddings(path, columns=["z"]),
    read_labels,
    read_manifest,
    looks_like_manifest,
    find_parts,
    lambda path: list(read_parquet_photos(path, None, Names()).items()),
]


def refused(read: Callable[[], object]) -> str:
    """The line by which a reader refuses."""
    with pytest.raises(InputError) as caught:
        read()
    assert "\n" not in str(caught.value)
    return str(caught.value)


PANDAS: dict[str, Any] = {
    "empty": {},
    "list": [],
    "number": 5,
    "unknown index": {"index_columns": ["nope"], "columns": [], "column_indexes": []},
    "odd columns": {"index_columns": [], "columns": 5, "column_indexes": []},
    "odd range": {"index_columns": [{"kind": "range"}], "columns": [], "column_indexes": []},
}


@pytest.mark.parametrize("metadata", PANDAS.values(), ids=PANDAS)
def test_metadata_of_pandas_changes_nothing(tmp_path: Path, metadata: Any) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(GOOD.replace_schema_metadata({"pandas": json.dumps(metadata)}), path)
    assert read_table(path).frame().to_dict("list") == GOOD.to_pydict()


def test_an_index_is_no_feature_and_numbers_may_be_names(tmp_path: Path) -> None:
    frame = pd.DataFrame(np.ones((3, 3)), index=pd.Index([7, 8, 10], name="row"))
    frame.to_parquet(tmp_path / "t.parquet")
    found = read_embeddings(tmp_path / "t.parquet", labeled=False)
    assert (found.columns, found.features.shape) == (["0", "1", "2"], (3, 3))


def test_text_and_names_that_are_not_utf8(refuse: Refuse, tmp_path: Path) -> None:
    text = pa.array([b"caf\xe9", b"tea"]).view(pa.string())
    pq.write_table(GOOD.set_column(2, "label", text), tmp_path / "text.parquet")
    pq.write_table(GOOD.rename_columns(["a", "bXYZ", "label"]), tmp_path / "good.parquet", compression="none")
    whole = (tmp_path / "good.parquet").read_bytes().replace(b"bXYZ", b"b\xe9YZ")
    (tmp_path / "name.parquet").write_bytes(whole)
    (tmp_path / "text.csv").write_bytes(b"a,b,label\n1,2,caf\xe9\n3,4,tea\n")
    (tmp_path / "name.csv").write_bytes(b"a,b\xe9,label\n1,2,x\n3,4,y\n")
    for name in ("text.parquet", "text.csv", "name.csv"):
        for command in ("clean", "train"):
            refuse(f"{command} {name}", f"{name}: not text in UTF-8; save it as such")
        refuse(f"clean {name} --path-column a", f"{name}: not text in UTF-8; save it as such")
    for command in ("clean", "train"):
        refuse(f"{command} name.parquet", "name.parquet: ")


def test_lists_where_they_have_no_place(refuse: Refuse, tmp_path: Path) -> None:
    z = [[0.5, 1.0], [1.5, 2.0]]
    cases: dict[str, tuple[dict[str, Any], str]] = {
        "deep": ({"z": [z, z], "label": ["x", "y"]}, "column 'z' holds other than lists such as"),
        "ragged": ({"z": [[[1.0], [2.0, 3.0]], z], "label": ["x", "y"]}, "column 'z' holds other than lists"),
        "labels": ({"z": z, "label": [["x"], ["y"]]}, "column 'label' holds lists or records"),
        "ids": ({"z": z, "label": ["x", "y"], "id": [["x"], ["y"]]}, "column 'id' holds lists or records"),
    }
    for name, (columns, message) in cases.items():
        pq.write_table(pa.table(columns), tmp_path / f"{name}.parquet")
        refuse(f"clean {name}.parquet", f"{name}.parquet: ")
        refuse(f"train {name}.parquet", message)
    pq.write_table(pa.table({"label": [["x"], ["y"]]}), tmp_path / "only.parquet")
    np.save(tmp_path / "z.npy", np.ones((2, 3)))
    refuse("clean z.npy --labels only.parquet", "only.parquet: column 'label' holds lists")


@pytest.mark.parametrize("value", ["inf", "-inf", "1e300"])
def test_features_out_of_range_are_never_an_accident(refuse: Refuse, tmp_path: Path, value: str) -> None:
    (tmp_path / "t.csv").write_text("a,b,label\n" + f"{value},1,x\n{value},2,y\n" * 5)
    refuse("clean t.csv")


def write_good(path: Path, folder: Path) -> None:
    """A table that every reader has something to read in."""
    (folder / "x.png").touch()
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "id": [f"é{i}" for i in range(40)],
            "path": ["x.png"] * 40,
            "z": list(rng.normal(size=(40, 3))),
            "label": pd.Categorical(["x", "y"] * 20),
            "when": pd.date_range("2020", periods=40),
            "n": pd.array([*range(39), None], dtype="Int64"),
        }
    )
    frame.to_parquet(path, row_group_size=10)


def damage(whole: bytes, rng: np.random.Generator, kind: int) -> bytes:
    """Cut off, or with bits turned over: anywhere, or where columns and rows are described."""
    if kind == 0:
        return whole[: rng.integers(1, len(whole))]
    changed = bytearray(whole)
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    for place in rng.integers(footer if kind == 1 else 0, len(whole), rng.integers(1, 6)):
        changed[place] ^= 1 << int(rng.integers(8))
    return bytes(changed)


@pytest.mark.parametrize("photos", [False, True], ids=["features", "photos"])
def test_damaged_parquet_is_read_or_refused(tmp_path: Path, photos: bool) -> None:
    """150 cases, each before every reader; nothing else may come of them."""
    path, rng = tmp_path / "t.parquet", np.random.default_rng(int(photos))
    if photos:
        save_hub_table(path, 40)
    else:
        write_good(path, tmp_path)
    whole = path.read_bytes()
    assert photos or len(read_manifest(path).ids) == len(read_embeddings(path, columns=["z"]).features) == 40
    lines: list[str] = []
    for case in range(150):
        path.write_bytes(damage(whole, rng, case % 3))
        for read in READERS:
            try:
                read(path)
            except InputError as error:
                lines.append(str(error))
    assert len(lines) > 150
    assert not any("\n" in line for line in lines)


def test_rows_that_a_footer_promises_are_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that has nothing more to give ends in StopIteration, which would pass for the end."""
    path = tmp_path / "t.parquet"
    pq.write_table(GOOD, path)
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda *_, **__: iter(()))
    assert "damaged: rows are missing" in refused(lambda: list(read_batches(path, None, 5)))

    def stop(*_: object, **__: object) -> None:
        raise StopIteration

    monkeypatch.setattr(pq.ParquetFile, "read", stop)
    assert "t.parquet: can't be read: StopIteration" in refused(lambda: read_table(path))


@pytest.fixture
def locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that one may not enter, also where tests run as root."""
    folder = tmp_path / "locked"
    folder.mkdir()
    stat = os.stat

    def refuse_below(path: Any, *args: Any, **more: Any) -> os.stat_result:
        if isinstance(path, str | os.PathLike) and folder in Path(os.path.abspath(path)).parents:
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return stat(path, *args, **more)

    monkeypatch.setattr(os, "stat", refuse_below)
    return folder


def test_a_file_in_a_folder_one_may_not_enter(locked: Path) -> None:
    for name in ("t.csv", "t.parquet", "t.npz"):
        assert "can't be read: Permission denied" in refused(lambda name=name: read_embeddings(locked / name))
        if name != "t.npz":
            assert "Permission denied" in refused(lambda name=name: read_header(locked / name))


@pytest.mark.parametrize(
    "command",
    [
        *("clean locked/t.csv", "clean locked/photos", "clean t.csv --labels locked/t.csv"),
        *("clean t.csv --out locked/run", "train locked/t.csv", "train t.csv --out locked/run"),
        *("train t.csv --validation locked/t.csv", "train t.csv --out locked/run --resume"),
        *("predict locked/run t.csv", "apply locked/run", "report locked/run", "review locked/run"),
        *("bench table runs --results locked/results", "bench list --results locked/results"),
    ],
)
def test_commands_on_a_folder_one_may_not_enter(
    refuse: Refuse, tmp_path: Path, locked: Path, command: str
) -> None:
    del locked
    (tmp_path / "t.csv").write_text("a,b,label\n" + "1,2,x\n3,4,y\n" * 10)
    refuse(command, "ermission denied")
