"""Parquet tables as the hub has them."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphclean.data.image_tables import count_rows, find_tables, read_tables
from graphclean.errors import InputError
from tests.data.builders import pixels, write_table

NAMES = ("ant", "bee", "cat")


def test_parts_are_read_in_order_with_their_classes(tmp_path: Path) -> None:
    images, labels = pixels(10), np.arange(10) % 3
    write_table(tmp_path / "train-00001-of-00002.parquet", images[6:], labels[6:], names=NAMES)
    write_table(tmp_path / "train-00000-of-00002.parquet", images[:6], labels[:6], names=NAMES)
    parts = find_tables(tmp_path)["train"]
    assert count_rows(parts) == 10
    found = read_tables(parts)
    assert np.array_equal(found.images, images)
    assert np.array_equal(found.labels, labels)
    assert found.labels.dtype == np.int64
    assert found.classes == NAMES


@pytest.mark.parametrize("columns", [("img", "label"), ("image", "label"), ("img", "fine_label")])
def test_the_usual_columns_are_known(tmp_path: Path, columns: tuple[str, str]) -> None:
    path = write_table(tmp_path / "train.parquet", pixels(2), [2, 0], names=NAMES, columns=columns)
    found = read_tables([path])
    assert found.labels.tolist() == [2, 0]
    assert found.classes == NAMES


def test_fine_labels_come_before_others(tmp_path: Path) -> None:
    path = write_table(tmp_path / "train.parquet", pixels(2), [70, 1], columns=("img", "fine_label"))
    table = pq.read_table(path).append_column("label", pa.array([5, 5]))
    pq.write_table(table, path)
    assert read_tables([path]).labels.tolist() == [70, 1]


def test_splits_by_the_first_word_of_a_name(tmp_path: Path) -> None:
    for name in (
        "data/train-0.parquet",
        "valid-0.parquet",
        "validation_1.parquet",
        "test.parquet",
        "more/test_1.pq",
        ".x.parquet",
        "deep/down/train-1.parquet",
    ):
        write_table(tmp_path / name, pixels(1), [0])
    found = find_tables(tmp_path)
    assert {split: [path.name for path in paths] for split, paths in found.items()} == {
        "train": ["train-0.parquet"],
        "test": ["test_1.pq", "test.parquet"],
        "val": ["valid-0.parquet", "validation_1.parquet"],
    }


def test_a_missing_part_is_noticed(tmp_path: Path) -> None:
    path = write_table(tmp_path / "train-00001-of-00003.parquet", pixels(1), [0])
    other = write_table(tmp_path / "train-00002-of-00003.parquet", pixels(1), [0])
    with pytest.raises(InputError, match="2 of 3 parts"):
        read_tables([path, other])


def test_bad_tables_are_named(tmp_path: Path) -> None:
    path = write_table(tmp_path / "a.parquet", pixels(2), [0, 3], names=NAMES)
    with pytest.raises(InputError, match="labels from 0 to 3 for 3 classes"):
        read_tables([path])
    path = write_table(tmp_path / "a.parquet", pixels(2), [0, -1])
    with pytest.raises(InputError, match="labels from -1"):
        read_tables([path])
    path = write_table(tmp_path / "a.parquet", pixels(2), [0, None])
    with pytest.raises(InputError, match=r"a\.parquet, row 1: the label is None"):
        read_tables([path])
    path = write_table(tmp_path / "a.parquet", pixels(2), ["x", "y"])
    with pytest.raises(InputError, match="row 0: the label is 'x'"):
        read_tables([path])
    path = write_table(tmp_path / "a.parquet", pixels(1), [0], columns=("photo", "label"))
    with pytest.raises(InputError, match=r"column img or image .* there are: photo, label"):
        read_tables([path])
    pq.write_table(pa.table({"img": [{"bytes": b"no image"}], "label": [0]}), path)
    with pytest.raises(InputError, match=r"a\.parquet, row 0: not an image"):
        read_tables([path])
    pq.write_table(pa.table({"img": ["text"], "label": [0]}), path)
    with pytest.raises(InputError, match="row 0: no bytes of an image"):
        read_tables([path])
    path.write_bytes(b"PAR1 not really")
    with pytest.raises(InputError, match=r"a\.parquet: can't be read"):
        read_tables([path])


def test_parts_with_different_classes_are_refused(tmp_path: Path) -> None:
    one = write_table(tmp_path / "train-a.parquet", pixels(1), [0], names=NAMES)
    other = write_table(tmp_path / "train-b.parquet", pixels(1), [0], names=NAMES[::-1])
    with pytest.raises(InputError, match="different classes"):
        read_tables([one, other])
