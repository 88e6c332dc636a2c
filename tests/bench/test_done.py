"""Which recorded results count as done, and which are refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphclean.bench.cells import Cell, make_method
from graphclean.bench.results import result_path
from graphclean.bench.runner import Job, find_done, find_same_settings
from graphclean.errors import InputError
from tests.bench.builders import MIXED, QUICK, job


@pytest.fixture
def recorded(whole: Path, tmp_path: Path) -> Path:
    """The uninterrupted run in its place in a folder of results."""
    path = result_path(tmp_path, MIXED.name, "test", job().method.name, 0)
    path.parent.mkdir(parents=True)
    path.write_text(whole.read_text())
    return path


def named(*settings: str, seed: int = 0, split: Any = "test") -> Job:
    """Another method under the name of the recorded one."""
    return Job(MIXED, make_method(MIXED, [*QUICK, *settings], name=job().method.name), seed, split)


def test_a_result_is_done_for_its_own_seed_and_split(recorded: Path, tmp_path: Path) -> None:
    assert find_done(job(), tmp_path) == recorded
    assert find_done(named(seed=9), tmp_path) is None
    assert find_done(named(split="dev"), tmp_path) is None


@pytest.mark.parametrize("seed", [0, 1])
def test_a_result_of_other_settings_under_the_same_name_is_refused(
    recorded: Path, tmp_path: Path, seed: int
) -> None:
    """Of other seeds too, of which a table takes the mean."""
    with pytest.raises(InputError, match=r"made with graph\.eta = 0\.8, not 0\.7; choose another") as no:
        find_done(named("graph.eta=0.7", seed=seed), tmp_path)
    assert str(no.value).startswith(str(recorded))


def test_a_result_from_before_a_setting_existed_still_counts(recorded: Path, tmp_path: Path) -> None:
    """As one at the setting's default, and of no other value."""
    result = json.loads(recorded.read_text())
    del result["config"]["graph"]["geometry"]
    recorded.write_text(json.dumps(result))
    assert find_done(job(), tmp_path) == recorded
    with pytest.raises(InputError, match=r"made with graph\.geometry = True, not False"):
        find_done(named("graph.geometry=false"), tmp_path)


def test_the_result_of_another_seed_is_not_taken_for_this_one(recorded: Path, tmp_path: Path) -> None:
    recorded.with_name("1.json").write_text(recorded.read_text())
    with pytest.raises(InputError, match=r"1\.json: its run belongs in .*0\.json"):
        find_done(named(seed=1), tmp_path)


def test_how_fast_a_result_was_made_does_not_matter(recorded: Path, tmp_path: Path) -> None:
    assert find_done(named("training.compile=on"), tmp_path) == recorded


def test_the_same_settings_under_another_name_are_found(recorded: Path, tmp_path: Path) -> None:
    """Of any seed and speed, on this cell and split; not where the name has a result of its own."""

    def other(*settings: str, seed: int = 0, split: Any = "test", cell: Cell = MIXED) -> Job:
        return Job(cell, make_method(cell, [*QUICK, *settings], name="other"), seed, split)

    assert find_same_settings(other(seed=1), tmp_path) == job().method.name
    assert find_same_settings(other("training.compile=on"), tmp_path) == job().method.name
    assert find_same_settings(other("graph.eta=0.7"), tmp_path) is None
    assert find_same_settings(other(split="dev"), tmp_path) is None
    assert find_same_settings(other(cell=replace(MIXED, name="cifar10/tinyimagenet/20k")), tmp_path) is None
    assert find_same_settings(named(seed=1), tmp_path) is None
    own = result_path(tmp_path, MIXED.name, "test", "other", 7)
    own.parent.mkdir()
    own.write_text("{}")
    assert find_same_settings(other(), tmp_path) is None
    own.rename(own.parent.parent / "0.json")
    result = json.loads(recorded.read_text())
    result["config"]["training"]["gone_since"] = 1
    recorded.write_text(json.dumps(result))
    assert find_same_settings(other(), tmp_path) is None
