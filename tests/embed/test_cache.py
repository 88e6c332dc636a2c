"""The cache of embeddings: one for all runs, never in the way, and never larger than it may be."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphclean._files import read_tensors, write_tensors
from graphclean.data.measures import MEASURES, Measures
from graphclean.embed import EmbeddingCache, Key, PhotoBatch
from graphclean.embed.cache import cache_folder, clear, list_entries, size_limit
from graphclean.errors import InputError
from tests.builders import Cli

KEY = Key("net", "1", "/photos")
OTHERS = [Key("other", "1", "/photos"), Key("net", "2", "/photos"), Key("net", "1", "/others")]
WIDTH = 16


def stamps_of(count: int, start: int = 0) -> list[list[Any]]:
    return [[f"{number}.png", 10, number] for number in range(start, start + count)]


def features(count: int, start: int = 0) -> np.ndarray:
    numbers = np.arange(start, start + count, dtype=np.float32)
    return np.repeat(numbers[:, None], WIDTH, axis=1)


def batches(count: int, each: int = 4, start: int = 0) -> Iterator[PhotoBatch]:
    whole = features(count, start)
    for first in range(0, count, each):
        rows = list(range(first, min(first + each, count)))
        yield PhotoBatch(rows, whole[rows], {}, measured([start + row for row in rows]))


def measured(numbers: list[int]) -> Measures:
    measures = np.zeros(len(numbers), dtype=MEASURES)
    measures["width"] = numbers
    return measures


def fill(count: int = 8, key: Key = KEY, start: int = 0) -> EmbeddingCache:
    cache = EmbeddingCache()
    list(cache.keep(batches(count, start=start), key, stamps_of(count, start)))
    return cache


def load(count: int = 8, key: Key = KEY) -> dict[int, Any]:
    return EmbeddingCache().load(key, stamps_of(count))


def pieces() -> list[Path]:
    return sorted(cache_folder().glob("*/*"), key=lambda path: path.stat().st_mtime_ns)


def test_what_was_kept_is_found_by_its_stamp() -> None:
    assert load() == {}
    assert fill().kept == 8
    wanted = [*stamps_of(2), [], ["0.png", 10, 5], *stamps_of(1, 7), ["0.png", 11, 0]]
    cache = EmbeddingCache()
    found = cache.load(KEY, wanted)
    assert {row: vector[0] for row, (vector, _) in found.items()} == {0: 0, 1: 1, 4: 7}
    assert {row: int(measures["width"]) for row, (_, measures) in found.items()} == {0: 0, 1: 1, 4: 7}
    assert cache.kept == 3
    for key in OTHERS:
        assert load(key=key) == {}


def test_photos_whose_change_can_not_be_told_are_not_kept() -> None:
    cache = EmbeddingCache()
    stamps = [[], *stamps_of(2, 1), []]
    assert [batch.rows for batch in cache.keep(batches(4), KEY, stamps)] == [[0, 1, 2, 3]]
    assert cache.kept == 2
    found = cache.load(KEY, stamps)
    assert {row: vector[0] for row, (vector, _) in found.items()} == {1: 1, 2: 2}
    clear()
    list(cache.keep(batches(4), KEY, [[]] * 4))
    assert pieces() == []


def test_what_is_stopped_leaves_the_pieces_that_were_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphclean.embed.cache.PIECE", 8)
    cache = EmbeddingCache()
    kept = cache.keep(batches(20), KEY, stamps_of(20))
    for _ in range(4):
        next(kept)
    kept.close()  # type: ignore[attr-defined]
    assert cache.kept == 16
    assert sorted(load(20)) == list(range(16))


def test_what_is_killed_loses_no_more_than_it_had_kept() -> None:
    """The first piece is written after one batch, and none is larger than all before it."""
    made: list[int] = []
    cache = EmbeddingCache()
    for batch in cache.keep(batches(320, each=32), KEY, stamps_of(320)):
        made.append(len(batch.rows))
        assert cache.kept >= sum(made) / 2
    assert cache.kept == 320
    assert len(pieces()) <= 5


def test_the_folder_is_the_users_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        monkeypatch.setenv("GRAPHCLEAN_CACHE", str(tmp_path / "deep" / "cache"))
        fill()
        made = [cache_folder(), cache_folder().parent]
        assert [stat.S_IMODE(path.stat().st_mode) for path in made] == [0o700, 0o700]
        cache_folder().chmod(0o755)
        fill(key=OTHERS[0])
        assert stat.S_IMODE(cache_folder().stat().st_mode) == 0o700
    finally:
        os.umask(before)


@pytest.mark.parametrize("content", [b"", b"cut off", b"\0" * 4096])
def test_damaged_files_are_written_again(content: bytes) -> None:
    fill()
    (piece,) = pieces()
    piece.write_bytes(content)
    assert list_entries() == []
    assert load() == {}
    assert pieces() == []
    fill()
    assert len(load()) == 8


def test_files_that_say_something_else_are_not_believed() -> None:
    fill()
    (piece,) = pieces()
    good = piece.read_bytes()
    tensors, about = read_tensors(piece)
    wrong: list[tuple[dict[str, torch.Tensor], dict[str, Any]]] = [
        ({**tensors, "features": tensors["features"][:3]}, about),
        ({**tensors, "features": tensors["features"].double()}, about),
        ({**tensors, "features": tensors["features"][:, 0]}, about),
        ({**tensors, "width": tensors["width"][:3]}, about),
        ({"features": tensors["features"]}, about),
        ({}, about),
        (tensors, {**about, "stamps": [[["x"]], *about["stamps"][1:]]}),
        (tensors, {**about, "stamps": 8}),
    ]
    for damaged in wrong:
        write_tensors(piece, *damaged)
        list_entries()
        assert load() == {}
        assert not piece.exists()
    for other in ({**about, "data": "/elsewhere"}, {**about, "format": 0}, {}):
        write_tensors(piece, tensors, other)
        assert load() == {}
        assert piece.exists()
    (piece.parent / "notes.txt").write_text("mine")
    piece.write_bytes(good)
    assert len(load()) == 8


def test_what_was_used_longest_ago_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    fill()
    size = pieces()[0].stat().st_size
    for number, key in enumerate(OTHERS[:2]):
        fill(key=key)
        os.utime(pieces()[-1], (10 + number, 10 + number))
    os.utime(KEY.folder, (0, 0))
    for piece in pieces():
        if piece.parent == KEY.folder:
            os.utime(piece, (5, 5))
    assert len(load()) == 8  # and so it was used last
    monkeypatch.setenv("GRAPHCLEAN_CACHE_GB", str(3.5 * size / 1e9))
    fill(key=OTHERS[2])
    assert load(key=OTHERS[0]) == {}
    assert [len(load(key=key)) for key in (KEY, *OTHERS[1:])] == [8, 8, 8]
    monkeypatch.setenv("GRAPHCLEAN_CACHE_GB", str(0.5 * size / 1e9))
    assert fill(4).kept == 0
    assert pieces() == []


def test_the_limit_is_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    assert size_limit() == 4e9
    monkeypatch.setenv("GRAPHCLEAN_CACHE_GB", "0")
    assert fill().problem is None
    assert not cache_folder().exists()
    for wrong in ("much", "-1", "nan", "inf"):
        monkeypatch.setenv("GRAPHCLEAN_CACHE_GB", wrong)
        with pytest.raises(InputError, match=f"^GRAPHCLEAN_CACHE_GB: '{wrong}' is not a size in gigabytes"):
            EmbeddingCache()


def test_a_cache_that_can_not_be_written_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("safetensors.torch.save_file", full)
        cache = fill()
    assert (cache.kept, pieces()) == (0, [])
    assert cache.problem == (
        f"embeddings are not kept for the next time: {cache_folder()}: No space left on device"
    )
    fill()
    cache_folder().chmod(0o555)
    cache = fill(key=OTHERS[0])
    assert (cache.problem or "").endswith(f"{cache_folder()}: not writable")
    assert len(load()) == 8  # it can be read all the same
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("GRAPHCLEAN_CACHE", str(tmp_path / "file"))
    assert (fill().problem or "").startswith("embeddings are not kept for the next time: ")
    assert load() == {}


WORK = """
from tests.embed.test_cache import KEY, batches, stamps_of
from graphclean.embed import EmbeddingCache
import graphclean.embed.cache as module
module.PIECE = 8
cache = EmbeddingCache()
for number in range(10):
    list(cache.keep(batches(40, start=40 * number), KEY, stamps_of(40, 40 * number)))
    for row, (vector, _) in cache.load(KEY, stamps_of(400)).items():
        assert (vector == row).all(), row
assert cache.problem is None, cache.problem
"""


@pytest.mark.slow
def test_several_processes_use_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a limit at which each removes what others have written."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", WORK]
    for limit in ("1", "0.00002"):
        monkeypatch.setenv("GRAPHCLEAN_CACHE_GB", limit)
        both = [subprocess.Popen(command, cwd=root) for _ in range(2)]
        assert [process.wait(120) for process in both] == [0, 0]
        if limit == "1":
            assert sorted(load(400)) == list(range(400))
    assert sum(path.stat().st_size for path in pieces()) <= 20_000


def test_commands_show_and_clear_it(cli: Cli) -> None:
    assert "0.0 MB of embeddings kept, of at most 4,000.0 MB" in cli("data", "cache").out
    fill()
    fill(4, OTHERS[2])
    os.utime(pieces()[0], (10, 10))
    (cache_folder() / "mine").mkdir()
    size = sum(path.stat().st_size for path in pieces())
    found = json.loads(cli("data", "cache", "--json").out)
    assert (found["folder"], found["limit"], found["freed"]) == (str(cache_folder()), 4e9, None)
    shown = [(entry["data"], entry["embedder"], entry["photos"]) for entry in found["entries"]]
    assert shown == [("/others", "net", 4), ("/photos", "net", 8)]
    assert sum(entry["bytes"] for entry in found["entries"]) == size
    assert found["entries"][1]["used"] == "1970-01-01T00:00:10+00:00"
    table = cli("data", "cache").out.splitlines()
    assert table[1].split() == ["embedder", "photos", "size", "last", "used", "data"]
    assert table[2].split()[:3] == ["net", "4", "0.0"]
    assert f"{cache_folder()}: 0.0 MB of embeddings removed" in cli("data", "cache", "--clear").out
    assert list(cache_folder().iterdir()) == []
    assert json.loads(cli("data", "cache", "--clear", "--json").out)["freed"] == 0
