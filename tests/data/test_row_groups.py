from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphclean.data import numpy_files, row_groups
from graphclean.data.embeddings import read_embeddings
from graphclean.data.tables import Names
from graphclean.errors import InputError

Z = np.random.default_rng(0).normal(size=(100, 4))
LABELS = [f"class {row % 3}" for row in range(100)]


@pytest.fixture(autouse=True)
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_groups, "LARGE_ROWS", 50)


def write(path: Path, vectors: object, **more: object) -> Path:
    table = pa.table({"vector": vectors, "label": LABELS, "id": [f"s{row}" for row in range(100)], **more})
    pq.write_table(table, path, row_group_size=30)
    return path


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()])
@pytest.mark.parametrize("fixed", [False, True])
def test_row_groups_give_what_the_whole_table_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: pa.DataType, fixed: bool
) -> None:
    values = [list(row.astype(kind.to_pandas_dtype())) for row in Z]
    column = pa.array(values, pa.list_(kind, 4) if fixed else pa.list_(kind))
    path = write(tmp_path / "z.parquet", column)
    found = read_embeddings(path)
    monkeypatch.setattr(row_groups, "LARGE_ROWS", 1000)
    whole = read_embeddings(path)
    assert found.features.dtype == kind.to_pandas_dtype()
    np.testing.assert_array_equal(found.features, whole.features)
    assert list(found.labels) == list(whole.labels) == LABELS
    assert (found.ids, found.columns, found.notes) == (whole.ids, whole.columns, whole.notes)


def test_an_array_larger_than_memory_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "z.parquet", pa.array(list(Z)))
    monkeypatch.setattr(row_groups, "ARRAY_SHARE", 0)
    found = read_embeddings(path).features
    assert isinstance(found, np.memmap)
    np.testing.assert_array_equal(found, Z)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(row_groups.os, "posix_fallocate", full)
    with pytest.raises(InputError, match=r"has no room for it.*No space left on device.*TMPDIR"):
        read_embeddings(path)


def test_lists_that_do_not_fit_are_refused_in_one_line(tmp_path: Path) -> None:
    ragged = [list(row) for row in Z]
    ragged[70] = ragged[70][:3]
    with pytest.raises(InputError, match="not all of one length"):
        read_embeddings(write(tmp_path / "ragged.parquet", pa.array(ragged)))
    groups = [list(row[: 4 if number < 60 else 3]) for number, row in enumerate(Z)]
    with pytest.raises(InputError, match="not all of one length"):
        read_embeddings(write(tmp_path / "groups.parquet", pa.array(groups)))
    missing = [None if number == 40 else list(row) for number, row in enumerate(Z)]
    with pytest.raises(InputError, match="has rows without a list"):
        read_embeddings(write(tmp_path / "missing.parquet", pa.array(missing)))
    both = write(tmp_path / "both.parquet", pa.array(list(Z)), size=Z[:, 0])
    with pytest.raises(InputError, match="either number columns or one list column"):
        read_embeddings(both)
    with pytest.raises(InputError, match="no column 'other' in it"):
        read_embeddings(both, columns=["other"], labeled=False, names=Names())


def test_a_large_npy_is_mapped_and_a_truncated_one_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numpy_files, "MAPPED_BYTES", 100)
    path = tmp_path / "z.npy"
    np.save(path, Z.astype(np.float16))
    found = read_embeddings(path, labeled=False).features
    assert isinstance(found, np.memmap)
    assert found.dtype == np.float16
    np.testing.assert_array_equal(found, Z.astype(np.float16))
    found[0] = 0  # in memory only
    np.testing.assert_array_equal(np.load(path), Z.astype(np.float16))
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(InputError, match=r"z\.npy: damaged: it is shorter than its header says"):
        read_embeddings(path, labeled=False)
    np.save(path, np.array([{"a": 1}] * 100, dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="pickled"):
        read_embeddings(path, labeled=False)
