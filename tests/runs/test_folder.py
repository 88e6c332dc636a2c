import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from graphclean._files import _checksum, read_lines, read_tensors, write_json, write_tensors
from graphclean.errors import InputError, InUseError
from graphclean.runs.folder import (
    RUN_FORMAT,
    check_target,
    new_run,
    read_config,
    read_verdicts,
    safe_csv,
    write_config,
    write_env,
    write_table,
)

ROOT = Path(__file__).parents[2]


def make_run(out: Path, mark: str, *, overwrite: bool = False) -> None:
    with new_run(out, overwrite=overwrite) as folder:
        write_config(folder, "clean", {"mark": mark}, {})
        write_env(folder, "0")


def test_a_run_appears_whole(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "run"
    with new_run(out) as folder:
        write_config(folder, "clean", {}, {"cleaning": {"a": float("nan")}})
        assert not out.exists()
    assert read_config(out)["settings"] == {"cleaning": {"a": None}}
    assert [p.name for p in out.parent.iterdir()] == ["run"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError, SystemExit])
def test_a_broken_run_leaves_nothing(tmp_path: Path, error: type[BaseException]) -> None:
    make_run(tmp_path / "run", "first")

    def break_off() -> None:
        with new_run(tmp_path / "run", overwrite=True) as folder:
            (folder / "half").write_text("x")
            raise error

    with pytest.raises(error):
        break_off()
    assert read_config(tmp_path / "run")["source"]["mark"] == "first"
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_another_run_is_replaced_only_when_told(tmp_path: Path) -> None:
    out = tmp_path / "run"
    make_run(out, "first")
    with pytest.raises(InputError, match="holds another run; use overwrite"):
        make_run(out, "second")
    make_run(out, "second", overwrite=True)
    assert read_config(out)["source"]["mark"] == "second"
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_the_folder_one_is_in_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its shell would be left in a folder that is gone; and what can't be moved is put back."""
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path / "run")
    make_run(Path(), "first")
    make_run(Path("../run"), "second", overwrite=True)
    assert read_config(Path())["source"]["mark"] == "second"
    rename = os.rename

    def failing(before: Path, after: Path) -> None:
        if before.name == "env.json" and after.parent.name == "run" and before.parent.name == "new":
            raise OSError(5, "Input/output error")
        rename(before, after)

    with monkeypatch.context() as broken:
        broken.setattr(os, "rename", failing)
        with pytest.raises(InputError, match="can't be written"):
            make_run(Path(), "third", overwrite=True)
    assert read_config(Path())["source"]["mark"] == "second"
    assert sorted(path.name for path in Path().iterdir()) == ["config.json", "env.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize(("here", "moves"), [(False, 1), *((True, n) for n in (1, 2, 3, 4, 5))])
def test_a_signal_while_a_run_is_replaced_brings_the_older_one_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: bool, moves: int
) -> None:
    """It is heard as soon as what was moved last has been moved."""
    make_run(tmp_path / "run", "first")
    monkeypatch.chdir(tmp_path / "run" if here else tmp_path)
    rename, left = os.rename, [moves]

    def interrupted(before: Path, after: Path) -> None:
        rename(before, after)
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt

    with monkeypatch.context() as signaled:
        signaled.setattr("graphclean._files._exchange", lambda *_: False)
        signaled.setattr(os, "rename", interrupted)
        with pytest.raises(KeyboardInterrupt):
            make_run(tmp_path / "run", "second", overwrite=True)
    assert read_config(tmp_path / "run")["source"]["mark"] == "first"
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["config.json", "env.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_of_two_runs_in_one_place_one_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with new_run(out) as folder:
        write_config(folder, "clean", {"mark": "first"}, {})
        write_env(folder, "0")
        for overwrite in (False, True):
            with pytest.raises(InUseError, match="another process is training in it"):
                make_run(out, "second", overwrite=overwrite)
    assert read_config(out)["source"]["mark"] == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


KILLED = """
import os, signal, sys
from pathlib import Path
from graphclean import _files
from tests.runs.test_folder import make_run
rename = os.rename
def dying(*names):
    rename(*names)
    os.kill(os.getpid(), signal.SIGKILL)
_files._exchange = lambda *_: False
os.rename = dying
make_run(Path(sys.argv[1]), "second", overwrite=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("again", [True, False])
def test_a_run_is_back_after_a_kill_while_it_was_replaced(tmp_path: Path, again: bool) -> None:
    """Between the two steps that are needed where the system can't exchange folders in one."""
    out = tmp_path / "run"
    make_run(out, "first")
    command = [sys.executable, "-c", KILLED, str(out)]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -signal.SIGKILL
    assert not out.exists()
    if again:
        with pytest.raises(InputError, match="the folder holds another run"):
            make_run(out, "third")
    assert read_config(out)["source"]["mark"] == "first"
    make_run(out, "third", overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_link_to_an_empty_folder_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    make_run(tmp_path / "link", "x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "config.json").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link", "real"]


def test_other_files_are_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    check_target(tmp_path / "photos", overwrite=False)
    (tmp_path / "photos" / "cat.jpg").write_text("x")
    with pytest.raises(InputError, match="not a run"):
        make_run(tmp_path / "photos", "x", overwrite=True)
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="there is a file of that name"):
        make_run(tmp_path / "file", "x", overwrite=True)
    with pytest.raises(InputError, match="can't be written"):
        make_run(tmp_path / "file" / "below", "x")


def test_what_is_no_part_of_a_run_is_not_replaced_with_it(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for name in ("config.json", "env.json"):
        (project / name).write_text("{}")
    (project / "thesis.txt").write_text("x")
    with pytest.raises(InputError, match="not a run"):
        make_run(project, "x", overwrite=True)
    make_run(tmp_path / "run", "first")
    for name in ("report.html", "cleaned.csv", ".verdicts.csv.0123abcd", ".DS_Store"):
        (tmp_path / "run" / name).write_text("x")
    make_run(tmp_path / "run", "second", overwrite=True)
    assert not (tmp_path / "run" / "report.html").exists()
    (tmp_path / "run" / "notes.txt").write_text("mine")
    with pytest.raises(
        InputError, match=r"holds notes\.txt, which is no part of a run and which overwrite would"
    ):
        make_run(tmp_path / "run", "third", overwrite=True)
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"


def test_runs_that_are_not_readable(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such run folder"):
        read_config(tmp_path / "none")
    with pytest.raises(InputError, match=r"not a run folder, as there is no config\.json"):
        read_config(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InputError, match="damaged"):
        read_config(tmp_path)
    write_json(tmp_path / "config.json", {"graphclean": "9.9", "format": 99})
    with pytest.raises(InputError, match=r"written by graphclean 9\.9, which is newer"):
        read_config(tmp_path)
    write_json(tmp_path / "config.json", {"graphclean": "0.0", "format": RUN_FORMAT - 1})
    with pytest.raises(InputError, match="a run in an earlier format, which can't be read any more"):
        read_config(tmp_path)


def test_a_run_in_an_earlier_format_can_be_replaced(tmp_path: Path) -> None:
    with new_run(tmp_path / "run") as folder:
        write_config(folder, "clean", {}, {}, None)
        write_json(folder / "env.json", {})
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    write_json(tmp_path / "run" / "config.json", {**config, "format": RUN_FORMAT - 1})
    with pytest.raises(InputError, match="in an earlier format"):
        check_target(tmp_path / "run", overwrite=False)
    check_target(tmp_path / "run", overwrite=True)


def test_tensors_come_back_and_damage_is_told(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    write_tensors(path, {"a": torch.arange(6).reshape(2, 3).T}, {"names": ["x", 1]})
    tensors, metadata = read_tensors(path)
    assert torch.equal(tensors["a"], torch.arange(6).reshape(2, 3).T)
    assert metadata == {"names": ["x", 1]}
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputError, match="damaged"):
        read_tensors(path)
    save_file({"a": torch.zeros(1)}, path, metadata={"graphclean": "{}"})
    with pytest.raises(InputError, match="written by graphclean, or by an earlier version"):
        read_tensors(path)
    write_tensors(path, {"a": torch.zeros(1)}, cast(Any, 1))
    with pytest.raises(InputError, match="damaged: it is not a table"):
        read_tensors(path)
    deep = "[" * 100_000
    checksum = _checksum({"a": torch.zeros(1)}, deep)
    save_file({"a": torch.zeros(1)}, path, metadata={"graphclean": f"{checksum} {deep}"})
    with pytest.raises(InputError, match="damaged"):
        read_tensors(path)


def test_one_changed_bit_anywhere_is_told(tmp_path: Path) -> None:
    """In tensors, their names and shapes, or in what stands beside them."""
    path = tmp_path / "m.safetensors"
    tensors = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2, dtype=torch.bfloat16)}
    write_tensors(path, tensors | {"none": torch.zeros(0), "one": torch.tensor(7)}, {"threshold": 0.25})
    whole = path.read_bytes()
    for place in range(len(whole)):
        spoiled = bytearray(whole)
        spoiled[place] ^= 1 << place % 8
        path.write_bytes(spoiled)
        with pytest.raises(InputError):
            read_tensors(path)
    path.write_bytes(whole)
    found, facts = read_tensors(path)
    assert facts == {"threshold": 0.25}
    assert {name: (value.dtype, value.shape) for name, value in found.items()} == {
        "a": (torch.float32, (2, 3)),
        "b": (torch.bfloat16, (2,)),
        "none": (torch.float32, (0,)),
        "one": (torch.int64, ()),
    }


def test_formulas_are_made_inert_in_csv() -> None:
    hostile = ["=cmd()", "+1", "-x", "@a", "\t=1", "fine", "<script>"]
    table = pd.DataFrame({"id": hostile, "n": range(7), "neighbors": [["=a", 'b"']] * 7})
    safe = safe_csv(table)
    assert safe.id.tolist() == ["'=cmd()", "'+1", "'-x", "'@a", "'\t'=1", "fine", "<script>"]
    assert json.loads(safe.neighbors[0]) == ["=a", 'b"']
    assert safe.n.tolist() == list(range(7))
    assert table.id.tolist() == hostile


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("a;=2+2", "a;'=2+2"),
        ('a; "@x', "a;' \"@x"),
        ("a\t-1\n+1", "a\t'-1\n'+1"),
        (' "=1', "' \"=1"),
        ("＝1", "'＝1"),
        ("\rx", "'\rx"),
        ("a-b;c+d=e, -f", "a-b;c+d=e, -f"),
        ("x;y\tz", "x;y\tz"),
    ],
)
def test_a_formula_after_a_separator_is_made_inert_too(text: str, written: str) -> None:
    safe = safe_csv(pd.DataFrame({"id": [text], "neighbors": [[text]]}))
    assert safe.id[0] == written
    for line in [safe.id[0], *safe.neighbors]:
        for cell in re.split(r"[;\t\n\r]", line):
            assert not re.match(r'[\s"]*[=+\-@＝＋－＠]', cell)
    assert len(json.loads(safe.neighbors[0])) == 1


def test_a_run_that_is_read_only_is_not_replaced(tmp_path: Path) -> None:
    make_run(tmp_path / "run", "first")
    (tmp_path / "run").chmod(0o555)
    with pytest.raises(InputError, match="read-only"):
        make_run(tmp_path / "run", "second", overwrite=True)
    (tmp_path / "run").chmod(0o755)
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def verdicts(**changed: object) -> pd.DataFrame:
    row = {"id": "a", "given_label": "x", "proposed_label": "x", "verdict": "keep", "label_quality": 0.9}
    return pd.DataFrame(
        [{**row, "ood_score": 0.1, "confidence": 0.8, "selected": True, "neighbors": ["b"], **changed}]
    )


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"verdict": "maybe"}, "damaged: there is no verdict maybe"),
        ({"ood_score": "high"}, "damaged: ood_score is no column of numbers"),
        ({"ood_score": 1e300}, "damaged: ood_score holds 1e\\+300, which is not from 0 to 1"),
        ({"ood_score": -np.inf}, "damaged: ood_score holds -inf, which"),
        ({"confidence": 1.5}, "damaged: confidence holds 1.5, which"),
        ({"label_quality": 1.5}, "damaged: label_quality holds 1.5, which"),
        ({"label_quality": [0.5]}, "damaged: label_quality is no column of numbers"),
        ({"neighbors": None}, "damaged: neighbors is no column of lists of names"),
        ({"neighbors": [["b"]]}, "damaged: neighbors is no column of lists of names"),
        ({"photo_issues": "dark"}, "damaged: photo_issues is no column of lists of names"),
        ({"id": ["a"]}, "damaged: id is no column of names"),
        ({"duplicate_group": "x"}, "damaged: duplicate_group is no column of whole numbers"),
    ],
)
def test_damaged_verdicts_are_refused(tmp_path: Path, changed: dict[str, object], message: str) -> None:
    verdicts().to_parquet(tmp_path / "verdicts.parquet")
    assert read_verdicts(tmp_path).neighbors.tolist() == [["b"]]
    assert read_verdicts(tmp_path).duplicate_group.isna().all()
    verdicts(**changed).to_parquet(tmp_path / "verdicts.parquet")
    with pytest.raises(InputError, match=message):
        read_verdicts(tmp_path)


def test_json_that_is_too_deep_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[" * 100_000)
    with pytest.raises(InputError, match="damaged"):
        read_config(tmp_path)
    with pytest.raises(InputError, match="damaged"):
        read_lines(tmp_path / "config.json")


def test_a_table_is_written_block_by_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = pd.DataFrame({"id": [str(row) for row in range(10)], "neighbors": [["=1"]] * 10})
    write_table(table, tmp_path / "whole")
    monkeypatch.setattr("graphclean.runs.folder.TABLE_ROWS", 4)
    write_table(table, tmp_path / "blocks")
    assert (tmp_path / "blocks.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert pq.ParquetFile(tmp_path / "blocks.parquet").num_row_groups == 3
    pd.testing.assert_frame_equal(
        *(pd.read_parquet(tmp_path / f"{name}.parquet") for name in ("blocks", "whole"))
    )
