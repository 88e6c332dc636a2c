"""Tables with photos in them: what is found, what is named, and what is refused."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from graphclean.data.images import UnreadableImage, open_image
from graphclean.data.parquet import find_parts, read_parquet_photos
from graphclean.data.tables import Names
from graphclean.errors import InputError
from graphclean.runs.photos import find_photos

CLASSES = ["ant", "bee"]


def encoded(value: int) -> bytes:
    """A photo of one color."""
    content = io.BytesIO()
    Image.new("RGB", (4, 3), (value, 0, 0)).save(content, "PNG")
    return content.getvalue()


def hub_metadata(**columns: Any) -> dict[str, str]:
    """As the hub's library writes it into a schema."""
    return {"huggingface": json.dumps({"info": {"features": columns}})}


def save_hub_table(path: Path, count: int, start: int = 0, **more: Any) -> None:
    """Photos of the colors `start`, `start` + 1, …, of two classes by turns, as the hub serves them."""
    cells = [{"bytes": encoded(start + i), "path": f"{start + i}.png"} for i in range(count)]
    columns = {"image": cells, "label": [i % 2 for i in range(count)], **more}
    table = pa.table(columns)
    features = {"image": {"_type": "Image"}, "label": {"names": CLASSES, "_type": "ClassLabel"}}
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.replace_schema_metadata(hub_metadata(**features)), path)


def colors(images: Any, skip: tuple[int, ...] = ()) -> dict[int, Any]:
    """Row -> red of its photo, or why it can't be read."""
    found: dict[int, Any] = {}
    for row, item in images.items(skip):
        try:
            found[row] = open_image(item).getpixel((0, 0))[0]
        except UnreadableImage as error:
            found[row] = str(error)
    return found


def test_metadata_that_can_not_be_read_names_no_classes(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    table = pa.table({"image": [encoded(1), encoded(2)], "label": [0, 1]})
    for text in ("no json", "[]", "[" * 100_000):
        pq.write_table(table.replace_schema_metadata({"huggingface": text}), path)
        assert read_parquet_photos(path, None, Names()).labels == ["0", "1"]


def test_a_table_of_the_hub_has_names_paths_and_bytes(tmp_path: Path) -> None:
    save_hub_table(tmp_path / "t.parquet", 5)
    images = read_parquet_photos(tmp_path / "t.parquet", None, Names())
    assert images.ids == ["0.png", "1.png", "2.png", "3.png", "4.png"]
    assert images.labels == ["ant", "bee", "ant", "bee", "ant"]
    assert colors(images) == {row: row for row in range(5)}
    assert list(colors(images, skip=(1, 3))) == [0, 2, 4]
    assert read_parquet_photos(tmp_path / "t.parquet", None, Names(), labeled=False).labels is None


def test_plain_bytes_text_labels_and_rows_as_ids(tmp_path: Path) -> None:
    frame = pd.DataFrame({"photo": [encoded(7), b"no image", None], "class": ["x", "=y", None], "n": 1})
    frame.to_parquet(tmp_path / "t.parquet")
    images = read_parquet_photos(tmp_path / "t.parquet", None, Names())
    assert (images.ids, images.labels) == (["0", "1", "2"], ["x", "=y", ""])
    assert colors(images) == {0: 7, 1: "not an image", 2: "no bytes of an image"}
    named = read_parquet_photos(
        tmp_path / "t.parquet", None, Names(label_column="class", id_column="class", path_column="photo")
    )
    assert named.ids == ["x", "=y", ""]


def test_paths_are_ids_only_where_all_differ_and_are_never_opened(tmp_path: Path) -> None:
    (tmp_path / "secret.png").write_bytes(encoded(9))
    secret = str(tmp_path / "secret.png")
    for paths, ids in (
        ([secret, "b"], [secret, "b"]),
        ([secret, secret], ["0", "1"]),
        (["a", None], ["0", "1"]),
    ):
        cells = [{"bytes": None, "path": path} for path in paths]
        table = pa.table(
            {
                "image": pa.array(cells, pa.struct({"bytes": pa.binary(), "path": pa.string()})),
                "label": ["x", "y"],
            }
        )
        pq.write_table(table, tmp_path / "t.parquet")
        images = read_parquet_photos(tmp_path / "t.parquet", None, Names())
        assert images.ids == ids
        assert set(colors(images).values()) == {"no bytes of an image"}


def test_parts_are_one_table_and_splits_are_named(tmp_path: Path) -> None:
    for part in range(2):
        save_hub_table(tmp_path / "hub" / "data" / f"train-0000{part}-of-00002.parquet", 3, start=10 * part)
    images = read_parquet_photos(tmp_path / "hub", None, Names())
    assert images.ids == ["0.png", "1.png", "2.png", "10.png", "11.png", "12.png"]
    assert colors(images) == dict(enumerate([0, 1, 2, 10, 11, 12]))
    assert len({tuple(stamp) for stamp in images.stamps()}) == 6
    save_hub_table(tmp_path / "hub" / "data" / "validation-00000-of-00001.parquet", 2)
    with pytest.raises(InputError, match=r"hub: name a split, as in .*hub:val; there are train, val$"):
        read_parquet_photos(tmp_path / "hub", None, Names())
    assert len(read_parquet_photos(tmp_path / "hub", "validation", Names()).ids) == 2
    with pytest.raises(InputError, match=r"no split test in it; there are train, val$"):
        read_parquet_photos(tmp_path / "hub", "test", Names())
    (tmp_path / "hub" / "data" / "train-00000-of-00002.parquet").unlink()
    with pytest.raises(InputError, match="1 of 2 parts"):
        read_parquet_photos(tmp_path / "hub", "train", Names())
    for part in range(2):
        save_hub_table(tmp_path / "numbered" / "train" / f"000{part}.parquet", 2, start=10 * part)
    assert len(read_parquet_photos(tmp_path / "numbered", "train", Names()).ids) == 4


def test_only_tables_with_bytes_are_taken_for_photos(tmp_path: Path) -> None:
    save_hub_table(tmp_path / "photos.parquet", 2)
    pd.DataFrame({"path": ["a.png"], "label": ["x"]}).to_parquet(tmp_path / "paths.parquet")
    pd.DataFrame({"z": [[1.0, 2.0]], "label": ["x"]}).to_parquet(tmp_path / "z.parquet")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    found = {
        name: bool(find_parts(tmp_path / f"{name}.parquet")) for name in ("photos", "paths", "z", "broken")
    }
    assert found == {"photos": True, "paths": False, "z": False, "broken": False}
    assert find_parts(tmp_path / "photos.parquet", "image")
    assert not find_parts(tmp_path / "photos.parquet", "path")


def test_unlabeled_and_impossible_class_numbers(tmp_path: Path) -> None:
    save_hub_table(tmp_path / "t.parquet", 4)
    table = pq.read_table(tmp_path / "t.parquet")
    for numbers, expected in (([0, 1, -1, None], ["ant", "bee", "", ""]), ([0, 1, 2, 0], None)):
        changed = table.set_column(1, "label", pa.array(numbers, pa.int64()))
        pq.write_table(changed.replace_schema_metadata(table.schema.metadata), tmp_path / "n.parquet")
        if expected is not None:
            assert read_parquet_photos(tmp_path / "n.parquet", None, Names()).labels == expected
        else:
            with pytest.raises(InputError, match="label 2 in column 'label', which names 2 classes"):
                read_parquet_photos(tmp_path / "n.parquet", None, Names())


def test_tables_that_cannot_be_used_say_why(tmp_path: Path) -> None:
    photo = encoded(1)
    cases: list[tuple[dict[str, Any], Names, str]] = [
        (
            {"a": [photo], "b": [photo], "label": ["x"]},
            Names(),
            r"more than one column holds images \(a, b\)",
        ),
        ({"a": [photo], "label": ["x"]}, Names(path_column="b"), "no column 'b' with images; there are: a$"),
        (
            {"a": [photo], "kind": ["x"]},
            Names(),
            r"known to hold the label \(there are: a, kind\); name the one that does with label_column$",
        ),
        ({"a": [photo], "label": ["x"]}, Names(label_column="lable"), "did you mean 'label'"),
        (
            {"a": pa.array([], pa.binary()), "label": pa.array([], pa.string())},
            Names(),
            "the table has no rows",
        ),
        ({"a": [photo], "label": [["x"]]}, Names(), 'column "label" holds list values'),
    ]
    for columns, names, message in cases:
        pq.write_table(pa.table(columns), tmp_path / "t.parquet")
        with pytest.raises(InputError, match=message):
            read_parquet_photos(tmp_path / "t.parquet", None, names)
    pq.write_table(pa.table({"a": [photo, photo], "label": ["x", "x"]}), tmp_path / "t.parquet")
    with pytest.raises(InputError, match=r"one class \(x\) in"):
        find_photos(tmp_path / "t.parquet", Names())
    (tmp_path / "parts").mkdir()
    save_hub_table(tmp_path / "parts" / "train-00000-of-00002.parquet", 2)
    save_hub_table(tmp_path / "parts" / "train-00001-of-00002.parquet", 2, more=[1, 2])
    with pytest.raises(InputError, match=r"its columns are not those of train-00000-of-00002\.parquet"):
        read_parquet_photos(tmp_path / "parts", None, Names())


def test_reading_never_holds_the_whole_table(tmp_path: Path) -> None:
    """One row group of 40 MB: no more than a batch of 64 photos stands in memory."""
    noise = np.random.default_rng(0).bytes(200_000)
    table = pa.table({"image": [noise] * 200, "label": ["x", "y"] * 100})
    pq.write_table(
        table, tmp_path / "t.parquet", compression="none", use_dictionary=False, row_group_size=200
    )
    del table
    images = read_parquet_photos(tmp_path / "t.parquet", None, Names())
    before = pa.total_allocated_bytes()
    most = 0
    for _ in images.items():
        most = max(most, pa.total_allocated_bytes() - before)
    assert 0 < most < 20_000_000


def test_two_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    cells = pa.array([encoded(1), encoded(2)])
    for name in ("image", "label"):
        table = pa.table([cells, pa.array([0, 1]), cells if name == "image" else pa.array([1, 0])],
                         names=["image", "label", name])  # fmt: skip
        pq.write_table(table, tmp_path / "t.parquet")
        with pytest.raises(InputError, match=f"two columns are called '{name}'"):
            find_photos(tmp_path / "t.parquet", Names())
