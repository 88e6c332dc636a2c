"""Results on disk: what was written comes back, and nothing else is taken for one."""

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphclean.bench.results import list_results, read_result, result_path, write_result
from graphclean.errors import InputError
from tests.bench.builders import read_arrays

RESULT: dict[str, Any] = {
    "cell": "cifar10/sym50",
    "split": "test",
    "method": "ngc",
    "seed": 0,
    "preset": "cifar10-lcnl",
    "changes": [],
    "config": {"graph": {"k": 30}},
    "draw": "0" * 64,
    "machine": {"gpu": None},
    "seconds": 1.5,
    "threshold": None,
    "scores": {"accuracy": 0.9, "auroc": float("nan")},
    "cleaning": {"selected": 5},
    "epochs": [{"epoch": 1, "losses": {"ce": 2.0}}, {"epoch": 2, "losses": {"ce": 1.0}}],
}
ARRAYS = {"logits": np.ones((3, 2), np.float16), "kind": np.array(["clean", "ood", "wrong"])}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = result_path(tmp_path, "cifar10/sym50", "test", "ngc", 0)
    write_result(path, RESULT, ARRAYS)
    return path


def test_a_result_comes_back(tmp_path: Path, path: Path) -> None:
    assert path == tmp_path / "cifar10--sym50" / "ngc" / "0.json"
    assert read_result(path) == {"format": 1, **RESULT, "scores": {"accuracy": 0.9, "auroc": None}}
    arrays = read_arrays(path)
    assert sorted(arrays) == ["kind", "logits"]
    assert arrays["kind"].tolist() == ["clean", "ood", "wrong"]
    assert arrays["logits"].dtype == np.float16
    assert sorted(p.name for p in path.parent.iterdir()) == ["0.json", "0.npz"]
    # One line a field, one an epoch, and the brackets.
    assert len(path.read_text().splitlines()) == 2 + 1 + len(RESULT) + 3


def test_places() -> None:
    place = (Path("r"), "cifar10/tinyimagenet/20k", "dev", "ngc--graph.eta-0.7", 2)
    folder = "cifar10--tinyimagenet--20k--dev"
    assert result_path(*place) == Path(f"r/{folder}/ngc--graph.eta-0.7/2.json")
    assert result_path(*place, flat=True) == Path(f"r/{folder}--ngc--graph.eta-0.7--2.json")


def test_listed_in_folders_and_flat(tmp_path: Path, path: Path) -> None:
    flat = result_path(tmp_path, "cifar10/sym50", "test", "ngc--graph.eta-0.7", 1, flat=True)
    write_result(flat, RESULT, ARRAYS)
    assert flat.with_name("cifar10--sym50--ngc--graph.eta-0.7--1.npz").is_file()
    assert list_results(tmp_path) == [path, flat]
    assert list_results(tmp_path / "none") == []


def test_other_files_are_left_alone_but_no_result_is_overlooked(tmp_path: Path, path: Path) -> None:
    for foreign in (tmp_path / "notes.json", tmp_path / "2026--1.json", path.with_name("plot.json")):
        foreign.write_text('{"format": 1}')
    path.with_name("broken.json").write_text("{")
    assert list_results(tmp_path) == [path]
    copy = path.with_name("0 (copy).json")
    copy.write_text(path.read_text())
    assert list_results(tmp_path) == [copy, path]
    # Under the name of a result it may be one that was damaged.
    path.write_text("{}")
    assert path in list_results(tmp_path)
    with pytest.raises(InputError, match=r"0\.json: not a result of format 1; move it elsewhere, or"):
        read_result(path)


def test_nobody_waits_for_a_pipe(tmp_path: Path, path: Path) -> None:
    os.mkfifo(tmp_path / "notes.json")
    path.unlink()
    os.mkfifo(path)
    assert list_results(tmp_path) == [path]
    with pytest.raises(InputError, match=r"0\.json: not a file, but in the place of one"):
        read_result(path)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda text: text[: len(text) // 2], "damaged, or not a result"),
        (lambda _: "[]", "not a result of format 1"),
        (lambda text: text.replace('"format": 1', '"format": 2'), "not a result of format 1"),
        (lambda text: text.replace('"format": 1,', ""), "not a result of format 1"),
        (lambda text: text.replace('"scores"', '"points"'), "damaged: scores is missing or wrong"),
        (lambda text: text.replace('"seed": 0', '"seed": "0"'), "damaged: seed is missing or wrong"),
        (
            lambda text: re.sub('"config": .*,', '"config": {"graph": null},', text),
            "damaged: config.graph is missing or wrong",
        ),
    ],
)
def test_a_damaged_result_is_refused(path: Path, spoil: Any, message: str) -> None:
    path.write_text(spoil(path.read_text()))
    with pytest.raises(InputError, match=message) as caught:
        read_result(path)
    assert str(caught.value).startswith(str(path))


def test_no_result_and_no_place_for_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such result"):
        read_result(tmp_path / "0.json")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="can't be written"):
        write_result(tmp_path / "file" / "0.json", RESULT, ARRAYS)


def test_numbers_that_json_has_not_are_null(path: Path) -> None:
    assert "NaN" not in path.read_text()
    json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(name))
