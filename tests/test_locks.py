"""What one process at a time works with."""

from pathlib import Path

import pytest

from graphclean import locks
from graphclean.errors import InUseError


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

    monkeypatch.setattr(locks, "lock", late)
    with pytest.raises(InUseError, match="busy"), locks.lock_folder(folder, "busy"):
        pytest.fail("it is kept")
    with pytest.raises(InUseError, match="busy"), locks.lock_folder(tmp_path / "gone", "busy"):
        pytest.fail("it is kept")
