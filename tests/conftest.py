"""Fixtures that several rooms share."""

import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from graphclean.cli.app import main
from tests.builders import Cli, Done, Refuse

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # As in what a shell script starts with `&`: commands under test would inherit it, and not hear Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _no_user_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The user's cache and configuration are never touched, also by what is made once for many tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        patch.setenv("GRAPHCLEAN_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("GRAPHCLEAN_CACHE_GB", raising=False)
        yield


@pytest.fixture(autouse=True)
def _own_cache(
    _no_user_cache: None, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Each test begins with an empty one."""
    monkeypatch.setenv("GRAPHCLEAN_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Results are promised for one number of threads; and two spin against other tests."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    """Run the command line in an empty folder, without progress lines on slow machines."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("graphclean.cli.progress.DELAY", 600.0)

    def call(*arguments: str) -> Done:
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        captured = capsys.readouterr()
        return Done(int(stop.value.code or 0), captured.out, captured.err)

    return call


def states(folder: Path) -> dict[str, tuple[Any, ...]]:
    """Everything below a folder, by content, kind and time of change."""
    return {
        str(path.relative_to(folder)): (
            path.is_symlink(),
            path.lstat().st_mtime_ns,
            path.lstat().st_ino,
            path.read_bytes() if path.is_file() else None,
        )
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture
def refuse(cli: Cli, tmp_path: Path) -> Refuse:
    """Check that a command is refused: one line that holds a message, exit code 2, and nothing written."""

    def check(command: str | Sequence[str], message: str = "") -> None:
        before = states(tmp_path)
        done = cli(*(command.split() if isinstance(command, str) else command))
        assert message in done.err, command
        assert done.err.startswith("graphclean: "), command
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1), command
        assert states(tmp_path) == before, command

    return check
