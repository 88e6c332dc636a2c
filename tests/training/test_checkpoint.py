"""Checkpoints on disk: whatever is killed or written twice, one that is whole is found."""

import dataclasses
from pathlib import Path

import pytest
import torch

from graphclean._files import LOCK
from graphclean.errors import InputError
from graphclean.training.checkpoint import Checkpoint, load_checkpoint, save_checkpoint


def test_a_checkpoint_of_the_same_place_does_not_cost_the_previous_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a resumed run that is stopped before its first step."""
    saved = Checkpoint({"a": torch.zeros(1)}, {"epoch": 3, "config": {}})
    save_checkpoint(tmp_path, saved)
    later = dataclasses.replace(saved, tensors={"a": torch.ones(1)})

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr("os.rename", fail)
        with pytest.raises(InputError, match="Input/output error; the previous one is intact"):
            save_checkpoint(tmp_path, later)
    for checkpoint in (saved, later, saved):
        save_checkpoint(tmp_path, checkpoint)
        found = load_checkpoint(tmp_path, {})
        assert found is not None
        assert torch.equal(found.tensors["a"], checkpoint.tensors["a"])
        assert len(list(tmp_path.iterdir())) == 1
    assert "epoch-00003" < "epoch-00003-again" < "epoch-00003-step-000001" < "epoch-00004"


@pytest.mark.parametrize("removed", [0, 1])
def test_a_kill_while_an_older_checkpoint_is_removed_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, removed: int
) -> None:
    """Before that began, or half-way; the older one's name may sort after the new one's."""
    made = [Checkpoint({"a": torch.full((1,), i)}, {"epoch": 3, "config": {}}) for i in range(4)]
    for checkpoint in made[:2]:
        save_checkpoint(tmp_path, checkpoint)
    assert [path.name for path in tmp_path.iterdir()] == ["epoch-00003-again"]

    def killed(old: Path, **_: object) -> None:
        if old.exists():
            for part in sorted(old.iterdir())[:removed]:
                part.unlink()
            raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr("shutil.rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            save_checkpoint(tmp_path, made[2])
    found = load_checkpoint(tmp_path, {})
    assert found is not None
    assert torch.equal(found.tensors["a"], made[2].tensors["a"])
    save_checkpoint(tmp_path, made[3])
    assert len(list(tmp_path.iterdir())) == 1


def test_a_third_checkpoint_of_one_place_can_be_written(tmp_path: Path) -> None:
    """Where a kill left the two before it."""
    saved = Checkpoint({"a": torch.zeros(1)}, {"epoch": 3, "config": {}})
    for name in ("epoch-00003", "epoch-00003-again"):
        save_checkpoint(tmp_path / name, saved)
        (tmp_path / name / "epoch-00003").rename(tmp_path / "made")
        (tmp_path / name).rmdir()
        (tmp_path / "made").rename(tmp_path / name)
    save_checkpoint(tmp_path, dataclasses.replace(saved, tensors={"a": torch.ones(1)}))
    found = load_checkpoint(tmp_path, {})
    assert found is not None
    assert found.tensors["a"] == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_drafts_of_killed_processes_are_removed_when_a_checkpoint_is_loaded(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, Checkpoint({"x": torch.zeros(2)}, {"epoch": 2, "config": {}}))
    draft = tmp_path / ".epoch-00001.0123abcd"
    (draft / "epoch-00001").mkdir(parents=True)
    (draft / LOCK).touch()
    (tmp_path / ".epoch-00002.4567cdef").mkdir()
    assert load_checkpoint(tmp_path, {}) is not None
    assert [path.name for path in tmp_path.iterdir()] == ["epoch-00002"]
