"""What one process at a time works with."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from graphclean import _files
from graphclean.errors import InUseError


def once(work: Callable[..., None]) -> Callable[..., None]:
    """Work the first time alone."""
    left = [work]
    return lambda *args, **kwargs: left.pop()(*args, **kwargs) if left else None


@pytest.mark.parametrize("again", [False, True])
def test_a_folder_that_its_keeper_removes_is_not_taken_for_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """Who waits for its lock would hold that of a folder which is no longer there, or of an older one."""
    folder = tmp_path / "work"
    folder.mkdir()

    def late(*_: object, **__: object) -> None:
        folder.rmdir()
        if again:
            folder.mkdir()

    monkeypatch.setattr(_files, "lock", late)
    with pytest.raises(InUseError, match="busy"), _files.lock_folder(folder, "busy"):
        pytest.fail("it is kept")
    folder.mkdir(exist_ok=True)
    monkeypatch.setattr(_files, "lock", once(late))
    with _files.lock_folder(folder, "busy", wait=lambda _: None):
        assert folder.is_dir()
    with pytest.raises(InUseError, match="busy"), _files.lock_folder(tmp_path / "gone", "busy"):
        pytest.fail("it is kept")


def test_who_waits_makes_a_folder_again_that_goes_before_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, opened = tmp_path / "work", os.open
    gone = once(folder.rmdir)

    def late(path: Path, flags: int) -> int:
        gone()
        return opened(path, flags)

    monkeypatch.setattr(os, "open", late)
    with _files.lock_folder(folder, "busy", wait=lambda _: None):
        assert folder.is_dir()
