"""Results on disk: what was written comes back, and nothing else is taken for one."""

import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphclean.bench.results import (
    list_results,
    read_record,
    read_records,
    read_result,
    result_path,
    shrink,
    write_result,
)
from graphclean.errors import InputError
from tests.bench.builders import read_arrays
from tests.bench.fakes import LOND, scored_set, write_run

RESULT: dict[str, Any] = {
    "cell": "cifar10/sym50",
    "split": "test",
    "method": "cifar10-lcnl",
    "seed": 0,
    "preset": "cifar10-lcnl",
    "changes": [],
    "config": {"graph": {"k": 30}},
    "draw": "0" * 64,
    "machine": {"gpu": None},
    "seconds": 1.5,
    "threshold": None,
    "scores": {"accuracy": 0.9, "auroc": float("nan")},
    "cleaning": {
        "selected": 5,
        "wrong_known": 1,
        "ood": 0,
        "noise_rate": 0.2,
        "label_accuracy": 0.9,
        "given_right": 0.6,
    },
    "epochs": [{"epoch": 1, "losses": {"ce": 2.0}}, {"epoch": 2, "losses": {"ce": 1.0}}],
}
ARRAYS = {"logits": np.ones((3, 2)), "kind": np.array([0, 2, 1]), "truth": np.array([-1, 300])}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = result_path(tmp_path, "cifar10/sym50", "test", "cifar10-lcnl", 0)
    write_result(path, RESULT, ARRAYS)
    return path


def test_a_result_comes_back(tmp_path: Path, path: Path) -> None:
    assert path == tmp_path / "cifar10--sym50" / "cifar10-lcnl" / "0.json"
    assert read_result(path) == {"format": 1, **RESULT, "scores": {"accuracy": 0.9, "auroc": None}}
    arrays = read_arrays(path)
    assert {name: array.tolist() for name, array in arrays.items()} == {
        name: array.tolist() for name, array in ARRAYS.items()
    }
    kinds = {name: array.dtype for name, array in arrays.items()}
    assert kinds == {"logits": np.float16, "kind": np.int8, "truth": np.int16}
    assert sorted(p.name for p in path.parent.iterdir()) == ["0.json", "0.npz"]
    # One line a field, one an epoch, and the brackets.
    assert len(path.read_text().splitlines()) == 2 + 1 + len(RESULT) + 3


def test_places() -> None:
    place = (Path("r"), "cifar10/tinyimagenet/20k", "dev", "mine--graph.eta-0.7", 2)
    assert result_path(*place) == Path("r/cifar10--tinyimagenet--20k--dev/mine--graph.eta-0.7/2.json")


def test_other_files_are_left_alone(tmp_path: Path, path: Path) -> None:
    for name in ("notes.json", "plot.json", "0 (copy).json", "._0.json"):
        path.with_name(name).write_text("left by a person")
    (tmp_path / "0.json").write_text(path.read_text())
    assert list_results(tmp_path) == [path]
    assert list_results(tmp_path / "none") == []
    # Under the name of a result it may be one that was damaged.
    path.write_text("{}")
    assert list_results(tmp_path) == [path]
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
        (lambda text: text.replace('"scores"', '"points"'), "damaged: no scores in it"),
        (lambda text: text.replace('"seed": 0', '"seed": "0"'), "damaged: seed is not a whole number"),
        (
            lambda text: re.sub('"config": .*,', '"config": {"graph": null},', text),
            "damaged: config.graph is not a table",
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


def test_runs_are_found_in_order_and_hold_what_was_written(tmp_path: Path) -> None:
    for seed in (10, 2):
        write_run(tmp_path, seed=seed, epochs=3)
    write_run(tmp_path, split="dev", epochs=3)
    write_run(tmp_path, "cifar10/sym50", "plus", epochs=3)
    found = [(r.cell, r.split, r.method, r.seed) for r in read_records(tmp_path)]
    assert found == [
        ("cifar10/sym50", "test", "plus", 0),
        (LOND, "dev", "cifar10-lond", 0),
        (LOND, "test", "cifar10-lond", 2),
        (LOND, "test", "cifar10-lond", 10),
    ]
    record = read_records(tmp_path)[2]
    assert len(record.epochs) == 3
    assert record.number("scores", "f_0.7") == 0.6303
    assert record.number("threshold", "nothing") is None
    assert read_records(tmp_path)[0].number("threshold", "zeta") is None


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder of results"):
        read_records(tmp_path / "nowhere")
    assert read_records(tmp_path) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": 2}, "not a result of format 1"),
        ({"scores": None}, "scores is not a table"),
        ({"epochs": []}, "no epochs"),
        ({"epochs": [1]}, r"epochs\.0 is not a table"),
        ({"seed": "0"}, "seed is not a whole number"),
        ({"split": "train"}, "or no split"),
        ({"method": "plus"}, "its run belongs in .*; move it there, or"),
        ({"cell": "cifar10/sym50"}, "its run belongs in .*; move it there, or"),
        ({"cell": "c" * 300}, "its run belongs in .*; move it there, or"),
    ],
)
def test_a_damaged_result_is_one_line(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    path = write_run(tmp_path, epochs=2)
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(InputError, match=said) as caught:
        read_records(tmp_path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "[1]", "{", "\x00"])
def test_a_file_that_is_no_result_is_one_line(tmp_path: Path, text: str) -> None:
    path = write_run(tmp_path, epochs=2)
    path.write_text(text)
    with pytest.raises(InputError, match=r"damaged|not a result"):
        read_record(path, tmp_path)


@pytest.mark.parametrize("value", ["high", True, [1], float("nan"), {"x": 1}])
def test_a_score_that_is_no_number_is_one_line(tmp_path: Path, value: Any) -> None:
    path = write_run(tmp_path, epochs=2, scores={"accuracy": value})
    with pytest.raises(InputError, match=r"scores\.accuracy is not a number or null"):
        read_record(path, tmp_path)


@pytest.mark.parametrize("value", [10**400, -1e300])
def test_a_score_that_was_never_measured_is_one_line(tmp_path: Path, value: Any) -> None:
    record = read_record(write_run(tmp_path, epochs=2, scores={"accuracy": value}), tmp_path)
    with pytest.raises(InputError, match=r"scores\.accuracy is not a number"):
        record.number("scores", "accuracy")


def test_arrays_are_none_where_missing_and_refused_where_damaged(tmp_path: Path) -> None:
    arrays = scored_set(0, 20)
    record = read_record(write_run(tmp_path, epochs=2, arrays=arrays), tmp_path)
    found = record.arrays("logits", "truth")
    assert found is not None
    assert np.array_equal(found["logits"], arrays["logits"])
    assert record.arrays("logits", "map") is None
    path = record.path.with_suffix(".npz")
    for broken, said in (
        (arrays | {"predicted": arrays["predicted"][1:]}, "differ in length"),
        (arrays | {"logits": arrays["logits"][0]}, "logits is 1-dimensional"),
        (arrays | {"truth": np.array(["a"] * 40)}, "truth is 1-dimensional"),
        (arrays | {"truth": np.array([None] * 40)}, "damaged"),
        (arrays | {"logits": arrays["logits"][:, :0]}, "logits is empty, or not all numbers"),
        (arrays | {"logits": np.full_like(arrays["logits"], np.nan)}, "logits is empty, or not all numbers"),
    ):
        np.savez(path, **broken)
        with pytest.raises(InputError, match=said):
            record.arrays("logits", "predicted", "truth")
    for content in (path.read_bytes()[:100], b"no arrays"):
        path.write_bytes(content)
        # Not numpy's words, which propose to load pickles.
        with pytest.raises(InputError, match=r"0\.npz: damaged; remove its JSON and run the cell again$"):
            record.arrays("logits")
    path.unlink()
    assert record.arrays("logits") is None


def test_numbers_that_half_precision_can_t_hold_are_kept() -> None:
    """Such as squared distances; what is no number stays so."""
    for values, kind in (([1.0, -60000.0, np.inf, np.nan], np.float16), ([1e6, np.nan], np.float32)):
        found = shrink(np.array(values))
        assert found.dtype == kind
        np.testing.assert_allclose(found, values)


@pytest.mark.parametrize("where", range(100, 1100, 50))
def test_a_byte_that_was_changed_is_one_line(tmp_path: Path, where: int) -> None:
    record = read_record(write_run(tmp_path, epochs=2), tmp_path)
    path = record.path.with_suffix(".npz")
    np.savez_compressed(path, **scored_set(0, 200))
    content = bytearray(path.read_bytes())
    content[where] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"0\.npz: damaged"):
        record.arrays("logits")


def test_a_setting_that_is_estimated_has_no_number(tmp_path: Path) -> None:
    """Next to results of a fixed k it is left out of a figure over k, and not damaged."""
    path = write_run(tmp_path, epochs=2)
    result = json.loads(path.read_text())
    result["config"]["graph"]["k"] = "auto"
    path.write_text(json.dumps(result))
    record = read_record(path, tmp_path)
    assert record.number("config", "graph", "k") is None
