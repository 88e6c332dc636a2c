"""The official CIFAR files: read when they are as published, and never run as code."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from graphclean.bench.cifar import read_batches, unpickle_arrays
from graphclean.bench.registry import SETS, NamedSet
from graphclean.errors import InputError
from tests.data.builders import cifar_files, pixels, python2_pickle, tar, with_files, write_files

CIFAR10, CIFAR100 = SETS["cifar10"], SETS["cifar100"]


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = str(mark)

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (self.mark,)


def archived(path: Path, files: dict[str, bytes], named: NamedSet = CIFAR10) -> NamedSet:
    """Write the archive; the entry that knows it."""
    assert named.batches is not None
    content = tar({f"{named.batches.folder}/{name}": data for name, data in files.items()})
    path.write_bytes(content)
    return with_files(named, files, content)


def test_a_python_2_pickle_gives_its_arrays() -> None:
    value = {"data": pixels(2).reshape(2, -1), "labels": [3, 4]}
    found = unpickle_arrays(python2_pickle(value))
    assert np.array_equal(found["data"], value["data"])
    assert found["labels"] == [3, 4]


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_nothing_but_arrays_is_built(tmp_path: Path, protocol: int) -> None:
    with pytest.raises(pickle.UnpicklingError, match=r"mkdir has no place"):
        unpickle_arrays(pickle.dumps({"data": Bomb(tmp_path / "mark")}, protocol))
    assert list(tmp_path.iterdir()) == []


def test_other_parts_of_numpy_are_refused_too() -> None:
    for harmful in (b"cnumpy\nload\n.", b"cnumpy.core.multiarray\nscalar\n.", b"cbuiltins\neval\n."):
        with pytest.raises(pickle.UnpicklingError, match="has no place"):
            unpickle_arrays(harmful)


@pytest.mark.parametrize("named", [CIFAR10, CIFAR100], ids=["cifar10", "cifar100"])
def test_archive_and_batches_give_the_same(tmp_path: Path, named: NamedSet) -> None:
    files = cifar_files(4, named)
    known = archived(tmp_path / "cifar.tar.gz", files, named)
    assert known.batches is not None
    write_files(tmp_path / "batches", files)
    for split, names in known.batches.splits.items():
        one = read_batches(tmp_path / "cifar.tar.gz", known.batches, split)
        other = read_batches(tmp_path / "batches", known.batches, split)
        first = 0 if split == "train" else len(known.batches.splits["train"])
        expected = np.concatenate([pixels(4, seed=first + i) for i in range(len(names))])
        for found in (one, other):
            assert np.array_equal(found.images, expected)
            assert found.labels.tolist() == [
                (first + i + j) % named.n_classes for i in range(len(names)) for j in range(4)
            ]
            assert len(found.classes) == named.n_classes


def test_no_byte_of_another_archive_is_unpickled(tmp_path: Path) -> None:
    files = cifar_files()
    known = archived(tmp_path / "cifar.tar.gz", files)
    assert known.batches is not None
    bomb = {**files, "test_batch": pickle.dumps(Bomb(tmp_path / "mark"))}
    archived(tmp_path / "cifar.tar.gz", bomb)
    with pytest.raises(InputError, match="test_batch is not the published file"):
        read_batches(tmp_path / "cifar.tar.gz", known.batches, "test")
    write_files(tmp_path / "batches", bomb)
    with pytest.raises(InputError, match="test_batch is not the published file"):
        read_batches(tmp_path / "batches", known.batches, "test")
    assert not (tmp_path / "mark").exists()


def test_a_published_bomb_would_not_go_off_either(tmp_path: Path) -> None:
    files = {**cifar_files(), "test_batch": pickle.dumps(Bomb(tmp_path / "mark"))}
    known = archived(tmp_path / "cifar.tar.gz", files)
    assert known.batches is not None
    with pytest.raises(InputError, match=r"damaged: .*mkdir has no place"):
        read_batches(tmp_path / "cifar.tar.gz", known.batches, "test")
    assert not (tmp_path / "mark").exists()


def test_missing_and_unreadable_files_are_named(tmp_path: Path) -> None:
    files = cifar_files()
    known = archived(tmp_path / "cifar.tar.gz", files)
    assert known.batches is not None
    with pytest.raises(InputError, match=r"gone\.tar\.gz: can't be read"):
        read_batches(tmp_path / "gone.tar.gz", known.batches, "test")
    with pytest.raises(InputError, match="test_batch is missing"):
        read_batches(tmp_path, known.batches, "test")
    del files["test_batch"]
    archived(tmp_path / "short.tar.gz", files)
    with pytest.raises(InputError, match="test_batch is missing"):
        read_batches(tmp_path / "short.tar.gz", known.batches, "test")
    strange = {**cifar_files(), "test_batch": python2_pickle({"pixels": 1})}
    known = archived(tmp_path / "cifar.tar.gz", strange)
    assert known.batches is not None
    with pytest.raises(InputError, match="damaged: 'data'"):
        read_batches(tmp_path / "cifar.tar.gz", known.batches, "test")
