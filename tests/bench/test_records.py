import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphclean.bench.records import read_record, read_records
from graphclean.errors import InputError
from tests.bench.fakes import LOND, scored_set, write_run


def test_runs_are_found_in_order_and_hold_what_was_written(tmp_path: Path) -> None:
    for seed in (10, 2):
        write_run(tmp_path, seed=seed, epochs=3)
    write_run(tmp_path, split="dev", epochs=3)
    write_run(tmp_path, "cifar10/sym50", "plus", epochs=3)
    found = [(r.cell, r.split, r.method, r.seed) for r in read_records(tmp_path)]
    assert found == [
        ("cifar10/sym50", "test", "plus", 0),
        (LOND, "dev", "ngc", 0),
        (LOND, "test", "ngc", 2),
        (LOND, "test", "ngc", 10),
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
        ({"scores": None}, "scores is missing or wrong"),
        ({"epochs": []}, "no epochs"),
        ({"epochs": [1]}, "no epochs"),
        ({"seed": "0"}, "seed is missing or wrong"),
        ({"split": "train"}, "or no split"),
        ({"method": "plus"}, "its run belongs in .*; move it there"),
        ({"cell": "cifar10/sym50"}, "its run belongs in .*; move it there"),
        ({"cell": "c" * 300}, "its run belongs in .*; move it there"),
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


@pytest.mark.parametrize("value", ["high", True, [1], float("nan"), {"x": 1}, 10**400, -1e300])
def test_a_score_that_is_no_number_is_one_line(tmp_path: Path, value: Any) -> None:
    record = read_record(write_run(tmp_path, epochs=2, scores={"accuracy": value}), tmp_path)
    with pytest.raises(InputError, match=r"scores\.accuracy is not a number"):
        record.number("scores", "accuracy")


def test_arrays_are_none_where_missing_and_refused_where_damaged(tmp_path: Path) -> None:
    arrays = scored_set(0, 20)
    record = read_record(write_run(tmp_path, epochs=2, arrays=arrays), tmp_path)
    found = record.arrays("logits", "truth")
    assert found is not None
    assert np.array_equal(found["logits"], arrays["logits"])
    assert record.arrays("logits", "z") is None
    path = record.path.with_suffix(".npz")
    for broken, said in (
        (arrays | {"truth": arrays["truth"][1:]}, "differ in length"),
        (arrays | {"logits": arrays["logits"][0]}, "logits is 1-dimensional"),
        (arrays | {"truth": np.array(["a"] * 40)}, "truth is 1-dimensional"),
        (arrays | {"truth": np.array([None] * 40)}, "damaged"),
        (arrays | {"logits": arrays["logits"][:, :0]}, "logits is empty, or not all numbers"),
        (arrays | {"logits": np.full_like(arrays["logits"], np.nan)}, "logits is empty, or not all numbers"),
    ):
        np.savez(path, **broken)
        with pytest.raises(InputError, match=said):
            record.arrays("logits", "truth")
    for content in (path.read_bytes()[:100], b"no arrays"):
        path.write_bytes(content)
        # Not numpy's words, which propose to load pickles.
        with pytest.raises(InputError, match=r"0\.npz: damaged; remove its JSON and run the cell again$"):
            record.arrays("logits")
    path.unlink()
    assert record.arrays("logits") is None


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


def test_flat_results_count_but_not_twice(tmp_path: Path) -> None:
    path = write_run(tmp_path, epochs=2)
    flat = tmp_path / f"{path.parents[1].name}--{path.parent.name}--0.json"
    other = tmp_path / f"{path.parents[1].name}--{path.parent.name}--1.json"
    other.write_text(path.read_text().replace('"seed": 0', '"seed": 1'))
    (tmp_path / "._0.json").write_text("left by a file manager")
    assert [record.path for record in read_records(tmp_path)] == [path, other]
    flat.write_text(path.read_text())
    with pytest.raises(InputError, match=r"the same run as .*; remove one of the two"):
        read_records(tmp_path)
    flat.unlink()
    copy = path.with_name("0 (copy).json")
    copy.write_text(path.read_text())
    with pytest.raises(InputError, match="which is there too; remove one of the two"):
        read_records(tmp_path)
    path.unlink()
    with pytest.raises(InputError, match="; move it there"):
        read_records(tmp_path)
