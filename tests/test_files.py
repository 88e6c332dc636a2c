"""Locks, drafts, and files and folders that are replaced whole, whatever is killed when."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from safetensors import SafetensorError

from graphclean import _files
from graphclean._files import (
    LOCK,
    check_unlocked,
    drafting,
    locked,
    reason_of,
    replaced,
    replaced_folder,
    sweep,
    system_cache,
    user_cache,
    user_config,
)
from graphclean.errors import InputError, InUseError

HOLD = """
import sys
from pathlib import Path
from graphclean import _files
with getattr(_files, sys.argv[1])(Path(sys.argv[2]), *sys.argv[3:]):
    print("ready", flush=True)
    sys.stdin.read()
"""
REPLACE = """
import os, signal, sys
from pathlib import Path
from graphclean import _files
path, step, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
place = _files if step == "_exchange" else os
real, left = getattr(place, step), [count]
def dying(*names):
    done = real(*names)
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return done
setattr(place, step, dying)
if step != "_exchange":
    _files._exchange = lambda *_: False
with _files.replaced_folder(path) as folder:
    for name in ("b", "c"):
        (folder / name).write_text("new")
"""


@contextmanager
def another_process(what: str, path: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    """One that keeps a path locked, or has a draft, until it is killed."""
    command = [sys.executable, "-c", HOLD, what, str(path), *more]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.kill()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def write_folder(path: Path) -> Path:
    path.mkdir()
    for name in ("a", "b"):
        (path / name).write_text("old")
    return path


def contents(path: Path) -> dict[str, str]:
    return {part.name: part.read_text() for part in path.iterdir()}


def break_off(path: Path) -> None:
    path.write_text("half")
    raise KeyboardInterrupt


OLD, NEW = {"a": "old", "b": "old"}, {"b": "new", "c": "new"}


def test_what_another_process_keeps_is_refused_until_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "run"
    check_unlocked(path, "busy")
    with another_process("locked", path, "busy") as process:
        assert names(tmp_path) == [".run.lock"]
        with pytest.raises(InUseError, match="busy"), locked(path, "busy"):
            pytest.fail("it is kept")
        with pytest.raises(InUseError, match="busy"):
            check_unlocked(path, "busy")
        process.kill()
        process.wait()
        with locked(path, "busy"):
            assert not path.exists()
    assert names(tmp_path) == []


def test_who_waits_is_told_and_goes_on_after_the_other(tmp_path: Path) -> None:
    told: list[str] = []
    with another_process("locked", tmp_path / "work", "busy") as process:

        def let_go(message: str) -> None:
            told.append(message)
            process.kill()

        with locked(tmp_path / "work", "waiting", wait=let_go):
            assert told == ["waiting"]
    assert names(tmp_path) == []


def test_of_many_who_wait_one_at_a_time_goes_on(tmp_path: Path) -> None:
    """Though each removes the lock that the others wait for, and the folder it was in."""
    inside: list[int] = []
    most = 0

    def work() -> None:
        nonlocal most
        with locked(tmp_path / "deep" / "work", "busy", wait=lambda _: None):
            inside.append(1)
            most = max(most, len(inside))
            time.sleep(0.01)
            inside.pop()
        with suppress(OSError):
            (tmp_path / "deep").rmdir()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_a_place_without_locks_is_used_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def without(*_: object, **__: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(_files.FileLock, "acquire", without)
    with locked(tmp_path / "run", "busy"), replaced(tmp_path / "file") as draft:
        draft.write_text("x")
        sweep(tmp_path)
    assert contents(tmp_path) == {"file": "x"}


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    with replaced(path) as draft:
        draft.write_text("first")
        assert not path.exists()
    with pytest.raises(KeyboardInterrupt), replaced(path) as draft:
        break_off(draft)
    assert contents(path.parent) == {"file": "first"}
    (tmp_path / "folder").mkdir()
    told = "folder: can't be written: Is a directory"
    with pytest.raises(InputError, match=told), replaced(tmp_path / "folder") as draft:
        draft.write_text("x")
    assert names(tmp_path) == ["deep", "folder"]


def test_drafts_of_processes_that_are_gone_are_swept_and_no_others(tmp_path: Path) -> None:
    foreign = [".mine.0123abcd", ".other.0123abcd", ".x.abcdefgh", "note.0123abcd", ".a.0123abcd.txt"]
    for name in foreign[1:]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("x")
    (tmp_path / foreign[0]).write_text("x")
    (tmp_path / ".empty.0123abcd").mkdir()  # killed before it was locked
    with another_process("replaced", tmp_path / "file") as process, drafting(tmp_path / "ours") as ours:
        (draft,) = tmp_path.glob(".file.*")
        (draft / "new").write_text("half")
        sweep(tmp_path)
        assert (draft / "new").read_text() == "half"
        assert ours.is_dir()
        process.kill()
        process.wait()
        assert draft.exists()
        with replaced(tmp_path / "another") as other:
            other.write_text("x")
        assert not draft.exists()
        assert ours.is_dir()
    assert names(tmp_path) == sorted([*foreign, "another"])


def test_who_makes_a_draft_while_it_is_swept_makes_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mkdir, left = Path.mkdir, [1]

    def swept(path: Path, *given: object, **named: object) -> None:
        mkdir(path, *given, **named)  # type: ignore[arg-type]
        if left:
            left.pop()
            sweep(tmp_path)

    monkeypatch.setattr(Path, "mkdir", swept)
    with drafting(tmp_path / "x") as draft:
        assert names(draft) == [LOCK]
    assert left == []
    assert names(tmp_path) == []


def test_a_draft_that_is_swept_while_its_lock_looks_for_it_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock's package makes the folder unless it is there; it can go between the two."""
    real, gone = Path.is_dir, []

    def swept(path: Path) -> bool:
        if not gone and path.name.startswith(".a.txt."):
            path.rmdir()
            gone.append(path)
        return real(path)

    monkeypatch.setattr(Path, "is_dir", swept)
    with drafting(tmp_path / "a.txt") as draft:
        assert gone
        assert draft != gone[0]
        sweep(tmp_path)
        assert (draft / LOCK).exists()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize("here", [True, False])
def test_a_folder_is_replaced_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchange: bool, here: bool
) -> None:
    path = write_folder(tmp_path / "run")
    if not exchange:
        monkeypatch.setattr(_files, "_exchange", lambda *_: False)
    monkeypatch.chdir(path if here else tmp_path)
    before = path.stat().st_ino
    with pytest.raises(KeyboardInterrupt), replaced_folder(path) as folder:
        break_off(folder / "c")
    assert contents(path) == OLD
    with replaced_folder(path) as folder:
        for name in NEW:
            (folder / name).write_text("new")
    assert contents(path) == NEW
    assert (path.stat().st_ino == before) is here
    assert names(tmp_path) == ["run"]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have other calls")
def test_folders_are_exchanged_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where this fails, the two renames are what all the others here are tested with."""
    monkeypatch.setattr(os, "rename", lambda *_: pytest.fail("in two steps"))
    write_folder(tmp_path / "run")
    with replaced_folder(tmp_path / "run") as folder:
        (folder / "c").write_text("new")
    assert contents(tmp_path / "run") == {"c": "new"}


@pytest.mark.parametrize(
    ("step", "count", "here", "found"),
    [
        ("_exchange", 1, False, NEW),
        ("rename", 1, False, OLD),
        ("rename", 2, False, NEW),
        *(("rename", count, True, OLD) for count in range(1, 6)),
    ],
)
def test_a_kill_while_a_folder_is_replaced_leaves_one_or_the_other(
    tmp_path: Path, step: str, count: int, here: bool, found: dict[str, str]
) -> None:
    path = write_folder(tmp_path / "run")
    command = [sys.executable, "-c", REPLACE, str(path), step, str(count)]
    done = subprocess.run(command, cwd=path if here else tmp_path, check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(names(tmp_path)) == (1 if (step, count) == ("rename", 1) and not here else 2)
    sweep(tmp_path)
    assert contents(path) == found
    assert names(tmp_path) == ["run"]


def test_what_can_not_be_put_back_is_kept(tmp_path: Path) -> None:
    """Where someone has put something else in its place since."""
    path = write_folder(tmp_path / "run")
    subprocess.run([sys.executable, "-c", REPLACE, str(path), "rename", "1"], check=False)
    path.mkdir()
    (path / "b").write_text("mine")
    sweep(tmp_path)
    assert (path / "b").read_text() == "mine"
    (draft,) = tmp_path.glob(".run.*")
    assert "b" in names(draft / "old")
    (path / "b").unlink()
    sweep(tmp_path)
    assert contents(path) == OLD
    assert names(tmp_path) == ["run"]


@pytest.mark.parametrize("again", [False, True])
def test_a_file_of_a_new_folder_is_named_by_its_later_place(tmp_path: Path, again: bool) -> None:
    run = tmp_path / "some" / "run"
    if again:
        run.mkdir(parents=True)
    with (
        pytest.raises(InputError) as told,
        replaced_folder(run) as folder,
        replaced(folder / "deep" / "x.json"),
    ):
        raise OSError(28, "Error writing bytes to file. Detail: [errno 28] No space left on device")
    assert str(told.value) == f"{run}/deep/x.json: can't be written: No space left on device"
    assert [path.name for path in tmp_path.rglob("*")] == (["some", "run"] if again else [])


def test_folders_that_were_made_for_nothing_go_again(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't be written"), replaced(tmp_path / "a" / "b" / "c.csv"):
        raise OSError(28, "")
    with pytest.raises(KeyboardInterrupt), locked(tmp_path / "runs" / "run", ""):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []
    with locked(tmp_path / "runs" / "run", ""):
        (tmp_path / "runs" / "run").mkdir()
    assert [path.name for path in tmp_path.rglob("*")] == ["runs", "run"]


def test_the_cache_is_named_or_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHCLEAN_CACHE", "/named")
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert (user_cache(), system_cache()) == (Path("/named"), Path("/somewhere/graphclean"))
    monkeypatch.delenv("GRAPHCLEAN_CACHE")
    assert user_cache() == Path("/somewhere/graphclean")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert user_cache() == Path.home() / ".cache/graphclean"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", "/local")
    assert user_cache() == Path("/local/graphclean")


def test_the_configuration_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "/somewhere")
    assert user_config() == Path("/somewhere/graphclean")
    monkeypatch.delenv("XDG_CONFIG_HOME")
    assert user_config() == Path.home() / ".config/graphclean"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("APPDATA", "/roaming")
    assert user_config() == Path("/roaming/graphclean")


def test_the_reason_of_a_library_names_no_draft_of_its_own() -> None:
    told = 'I/O error: No space left on device (os error 28) at path "/x/.run.5d96/new/.tmpe23"'
    assert reason_of(SafetensorError(f"Error while serializing: {told}")) == "No space left on device"
    assert reason_of(OSError(28, "x")) == "No space left on device"
    assert reason_of(SafetensorError("odd")) == "odd"
