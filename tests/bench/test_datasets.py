"""Named sets under a data root, in each form, with and without a cache."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphclean.bench import registry
from graphclean.bench.datasets import (
    cache_folder,
    count_images,
    data_root,
    load_pool,
    load_split,
    locate_set,
)
from graphclean.bench.noise import CIFAR10_CLASSES
from graphclean.bench.registry import SETS, get_set
from graphclean.errors import InputError
from tests.data.builders import (
    cifar_files,
    encode,
    pixels,
    tar,
    tiny_files,
    with_archive,
    with_files,
    write_files,
    write_table,
    zipped,
)

DOCS = Path(__file__).parents[2] / "docs" / "data.md"
NEAR = Path(__file__).parents[3] / "shared" / "data"
REAL = Path(os.environ.get("GRAPHCLEAN_DATA", NEAR))
needs_real = pytest.mark.skipif(not (REAL / "cifar10").is_dir(), reason="needs the real data")


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRAPHCLEAN_DATA", raising=False)
    monkeypatch.delenv("GRAPHCLEAN_CACHE", raising=False)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Put an entry in the registry for one test."""
    return lambda named: monkeypatch.setitem(registry.SETS, named.name, named)


def write_cifar10(root: Path, count: int = 6) -> Path:
    labels = np.arange(count) % 10
    path = root / "cifar10" / "train-00000-of-00001.parquet"
    return write_table(path, pixels(count), labels, names=CIFAR10_CLASSES)


def test_the_root_is_named_or_in_the_environment_or_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert data_root() == Path("/somewhere/graphclean/data")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_root() == Path.home() / ".cache/graphclean/data"
    monkeypatch.setenv("GRAPHCLEAN_DATA", "/data")
    assert data_root() == Path("/data")
    assert data_root(Path("given")) == Path("given")


def test_parquet_is_decoded_once_and_then_mapped(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    first = load_split("cifar10", "train", tmp_path)
    assert isinstance(first.images, np.memmap)
    assert np.array_equal(first.images, pixels(6))
    assert first.labels.tolist() == [0, 1, 2, 3, 4, 5]
    assert first.classes == CIFAR10_CLASSES
    seen: list[str] = []
    again = load_split("cifar10", "train", tmp_path, progress=lambda *step: seen.append(str(step)))
    assert np.array_equal(again.images, pixels(6))
    assert seen == []


def test_a_changed_source_is_decoded_again(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    assert len(load_split("cifar10", "train", tmp_path).labels) == 6
    write_cifar10(tmp_path, 8)
    assert len(load_split("cifar10", "train", tmp_path).labels) == 8
    assert len(list((tmp_path / ".decoded").iterdir())) == 1


def test_tables_without_class_names_take_the_registrys(tmp_path: Path) -> None:
    write_table(tmp_path / "cifar10" / "test.parquet", pixels(2), [9, 0])
    assert load_split("cifar10", "test", tmp_path).classes == CIFAR10_CLASSES
    write_table(tmp_path / "cifar100" / "test.parquet", pixels(2), [2, 0])
    assert load_split("cifar100", "test", tmp_path).classes == ("0", "1", "2")


def test_other_classes_than_the_sets_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "cifar10" / "test.parquet"
    write_table(path, pixels(2), [1, 0], names=CIFAR10_CLASSES[::-1])
    with pytest.raises(InputError, match="not those of cifar10, in its order"):
        load_split("cifar10", "test", tmp_path)
    write_table(tmp_path / "cifar100" / "test.parquet", pixels(2), [100, 0])
    with pytest.raises(InputError, match="101 classes, and cifar100 has 100"):
        load_split("cifar100", "test", tmp_path)


@pytest.mark.parametrize("place", ["cifar100/cifar-100-python", "cifar100", "cifar-100-python"])
def test_extracted_batches(tmp_path: Path, known, place: str) -> None:  # type: ignore[no-untyped-def]
    files = cifar_files(3, SETS["cifar100"])
    known(with_files(SETS["cifar100"], files))
    write_files(tmp_path / place, files)
    found = locate_set(get_set("cifar100"), tmp_path)
    assert found is not None
    assert (found.form, found.is_archive) == ("official files", False)
    assert (tmp_path / place).is_relative_to(found.path)
    assert np.array_equal(load_split("cifar100", "train", tmp_path).images, pixels(3))
    assert np.array_equal(load_split("cifar100", "test", tmp_path).images, pixels(3, seed=1))


@pytest.mark.parametrize("place", ["", "cifar10"])
def test_the_official_archive(tmp_path: Path, known, place: str) -> None:  # type: ignore[no-untyped-def]
    files = cifar_files(3)
    content = tar({f"cifar-10-batches-py/{name}": data for name, data in files.items()})
    known(with_files(SETS["cifar10"], files, content))
    write_files(tmp_path / place, {"cifar-10-python.tar.gz": content})
    found = locate_set(get_set("cifar10"), tmp_path)
    assert found is not None
    assert (found.form, found.is_archive) == ("official files", True)
    expected = np.concatenate([pixels(3, seed=i) for i in range(5)])
    assert np.array_equal(load_split("cifar10", "train", tmp_path).images, expected)


def test_tinyimagenet_as_archive_and_as_folders(tmp_path: Path, known) -> None:  # type: ignore[no-untyped-def]
    content = zipped(tiny_files())
    known(with_archive(SETS["tinyimagenet"], content))
    write_files(tmp_path / "a" / "tinyimagenet", {"tiny-imagenet-200.zip": content})
    write_files(tmp_path / "b", tiny_files())
    for split in ("train", "val"):
        one, other = (load_split("tinyimagenet", split, tmp_path / root) for root in ("a", "b"))
        assert np.array_equal(one.images, other.images)
        assert np.array_equal(one.labels, other.labels)
    assert np.array_equal(load_pool("tinyimagenet", tmp_path / "b").labels, [0, 0, 0, 1, 1, 1])
    (tmp_path / "a" / "tinyimagenet" / "tiny-imagenet-200.zip").write_bytes(content[:-1])
    with pytest.raises(InputError, match="not the published file"):
        load_split("tinyimagenet", "train", tmp_path / "a")


def test_a_changed_folder_is_decoded_again(tmp_path: Path) -> None:
    write_files(tmp_path, tiny_files())
    assert len(load_split("tinyimagenet", "train", tmp_path).labels) == 6
    write_files(tmp_path / "tiny-imagenet-200", {"train/n02/images/new.png": encode(pixels(1)[0])})
    assert load_split("tinyimagenet", "train", tmp_path).classes == ("n00", "n01", "n02")


def test_places_is_a_pool_without_labels(tmp_path: Path) -> None:
    write_files(tmp_path / "places365" / "val_256", {f"{i}.jpg": encode(pixels(1)[0]) for i in range(3)})
    found = load_pool("places365", tmp_path)
    assert found.images.shape == (3, 3, 32, 32)
    assert found.classes == ()


def test_a_pool_of_its_own_comes_before_the_training_set(tmp_path: Path) -> None:
    write_table(tmp_path / "tinyimagenet" / "train.parquet", pixels(2), [0, 1])
    assert len(load_pool("tinyimagenet", tmp_path).labels) == 2
    write_table(tmp_path / "tinyimagenet" / "pool.parquet", pixels(3), [0, 1, 2])
    assert len(load_pool("tinyimagenet", tmp_path).labels) == 3
    write_table(tmp_path / "places365" / "train.parquet", pixels(3), [0, 1, 2])
    with pytest.raises(InputError, match="none of the splits pool, val"):
        load_pool("places365", tmp_path)


def test_a_read_only_root_works_without_a_cache_or_with_one_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    write_cifar10(root)
    root.chmod(0o555)
    try:
        assert cache_folder(root) is None
        before = sorted(root.rglob("*"))
        assert not isinstance(load_split("cifar10", "train", root).images, np.memmap)
        named = load_split("cifar10", "train", root, cache=tmp_path / "cache")
        assert isinstance(named.images, np.memmap)
        monkeypatch.setenv("GRAPHCLEAN_CACHE", str(tmp_path / "other"))
        assert isinstance(load_split("cifar10", "train", root).images, np.memmap)
        assert sorted(root.rglob("*")) == before
        assert len(list((tmp_path / "other").iterdir())) == 1
    finally:
        root.chmod(0o755)


def test_what_is_not_there_is_told_with_the_way_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cifar10 is not under .* run `graphclean data fetch cifar10`"):
        load_split("cifar10", "train", tmp_path)
    (tmp_path / "cifar10").mkdir()
    with pytest.raises(InputError, match="cifar10 is not under"):
        load_split("cifar10", "train", tmp_path)
    write_cifar10(tmp_path)
    with pytest.raises(InputError, match="no val split of cifar10; there are: train"):
        load_split("cifar10", "val", tmp_path)
    with pytest.raises(InputError, match="no data set is called cifar-10; did you mean cifar10"):
        load_split("cifar-10", "train", tmp_path)


def test_the_registry_is_consistent() -> None:
    for name, named in SETS.items():
        assert named.name == name == named.places[0]
        assert named.archive.url.startswith("https://")
        assert len(named.archive.md5) == 32
        assert named.archive.source
        if named.batches is None:
            assert set(named.folders) == set(named.splits)
        else:
            assert set(named.batches.splits) == set(named.splits)
            assert not named.folders
            files = {name for names in named.batches.splits.values() for name in names}
            assert set(named.batches.md5) == files | {named.batches.meta}
    assert len({named.archive.md5 for named in SETS.values()}) == len(SETS)


@needs_real
def test_the_real_sets_are_found_and_complete() -> None:
    for name, counts in (("cifar10", {"train": 50_000, "test": 10_000}), ("tinyimagenet", {"pool": 30_000})):
        found = locate_set(get_set(name), REAL)
        assert found is not None
        assert count_images(get_set(name), found) == counts


@needs_real
@pytest.mark.parametrize(
    ("split", "labels"), [("train", [6, 9, 9, 4, 1, 1, 2, 7, 8, 3]), ("test", [3, 8, 8, 0, 6, 6, 1, 6, 3, 1])]
)
def test_the_first_real_images_are_those_of_cifar10(tmp_path: Path, split: str, labels: list[int]) -> None:
    found = locate_set(get_set("cifar10"), REAL)
    assert found is not None
    with pq.ParquetFile(found.splits[split][0]) as file:
        start = next(file.iter_batches(100))
    (tmp_path / "cifar10").mkdir()
    pq.write_table(pa.Table.from_batches([start]), tmp_path / "cifar10" / f"{split}.parquet")
    data = load_split("cifar10", split, tmp_path)
    assert data.labels[:10].tolist() == labels
    assert data.classes == CIFAR10_CLASSES
    if split == "train":  # the published batch begins with these red values of a frog
        assert data.images[0, 0, 0, :5].tolist() == [59, 43, 50, 68, 98]


@pytest.mark.skipif(not DOCS.exists(), reason="needs the source tree")
def test_the_docs_state_the_registrys_addresses_and_checksums() -> None:
    page = DOCS.read_text()
    for named in SETS.values():
        row = next(line for line in page.splitlines() if named.archive.url in line)
        assert f"`{named.name}`" in row
        assert f"`{named.archive.md5}`" in row
        for place in named.places:
            assert f"`{place}`" in page
