"""What verify says of whole, damaged and incomplete sets."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from graphclean.bench.registry import SETS
from graphclean.bench.verify import verify_set
from graphclean.errors import InputError
from tests.data.builders import (
    cifar_files,
    pixels,
    tiny_files,
    with_archive,
    with_files,
    write_files,
    write_table,
    zipped,
)

TINY = replace(SETS["tinyimagenet"], splits={"train": 6, "val": 2})
SMALL = replace(SETS["cifar100"], splits={"train": 4, "test": 2})


def test_archives_by_their_md5(tmp_path: Path) -> None:
    content = zipped(tiny_files())
    named = with_archive(TINY, content)
    write_files(tmp_path / "tinyimagenet", {"tiny-imagenet-200.zip": content})
    assert verify_set(named, tmp_path).startswith("MD5 as published (github.com/")
    (tmp_path / "tinyimagenet" / "tiny-imagenet-200.zip").write_bytes(content[:-1])
    with pytest.raises(InputError, match=r"200\.zip: not the published file"):
        verify_set(named, tmp_path)


def test_batches_each_by_its_md5(tmp_path: Path) -> None:
    files = cifar_files()
    named = with_files(SETS["cifar10"], files)
    folder = write_files(tmp_path / "cifar-10-batches-py", files)
    assert verify_set(named, tmp_path) == "MD5 of every batch as published"
    (folder / "data_batch_3").write_bytes(files["data_batch_2"])
    with pytest.raises(InputError, match="data_batch_3 is not the published file"):
        verify_set(named, tmp_path)
    (folder / "data_batch_3").unlink()
    with pytest.raises(InputError, match="data_batch_3 is missing"):
        verify_set(named, tmp_path)


def test_folders_by_count_and_pixels(tmp_path: Path) -> None:
    write_files(tmp_path, tiny_files())
    assert verify_set(TINY, tmp_path) == "6 train, 2 val; every image decodes, no checksum to compare with"
    name = next(name for name in tiny_files() if "/train/" in name)
    (tmp_path / name).write_bytes(b"no image")
    with pytest.raises(InputError, match="not an image, or damaged"):
        verify_set(TINY, tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(InputError, match="5 images in the train split, and not 6"):
        verify_set(TINY, tmp_path)


def test_tables_by_count_and_the_roots_sums(tmp_path: Path) -> None:
    path = write_table(tmp_path / "cifar100" / "train.parquet", pixels(4), [0, 1, 2, 3])
    said = "4 train; no test split; every image decodes, no checksum to compare with"
    assert verify_set(SMALL, tmp_path) == said
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    (tmp_path / "SHA256SUMS").write_text(f"{digest}  cifar100/train.parquet\n\n")
    assert verify_set(SMALL, tmp_path) == "4 train; no test split; SHA-256 as in SHA256SUMS"
    (tmp_path / "SHA256SUMS").write_text(f"{digest}  cifar100/other.parquet\n")
    assert verify_set(SMALL, tmp_path) == said
    (tmp_path / "SHA256SUMS").write_text(f"{'0' * 64} *cifar100/train.parquet\n")
    with pytest.raises(InputError, match=r"train\.parquet: not the file that SHA256SUMS was made from"):
        verify_set(SMALL, tmp_path)


def test_an_absent_set_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cifar100 is not under"):
        verify_set(SMALL, tmp_path)
