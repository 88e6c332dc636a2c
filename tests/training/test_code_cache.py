"""Compiled code of earlier runs: found again, in a folder that is the user's alone, shown and cleared."""

import dataclasses
import functools
import json
import os
import stat
from pathlib import Path

import pytest
import torch
from torch._dynamo.utils import counters
from torch._inductor.runtime.cache_dir_utils import default_cache_dir

from graphclean.errors import DataWarning
from graphclean.methods.cross_entropy import CrossEntropy
from graphclean.training.code_cache import (
    NAMED,
    TRITON,
    cache_folder,
    clear_code,
    code_folder,
    keeping_code,
    list_code,
)
from graphclean.training.compile import Compiled
from tests.builders import Cli
from tests.training.test_trainer import TINY, trainer

CPU = torch.device("cpu")
POSIX = pytest.mark.skipif(os.name != "posix", reason="modes and links are POSIX")


@pytest.fixture(autouse=True)
def _as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where nobody has named a place."""
    for name in (NAMED, TRITON):
        monkeypatch.delenv(name, raising=False)


def fill(name: str, size: int, used: float | None = None) -> Path:
    """Something that PyTorch might have kept."""
    path = cache_folder() / name / "fx" / "ab" / "code"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"x" * size)
    if used is not None:
        for each in (path, *path.parents[:3]):
            os.utime(each, (used, used))
    return path


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_code_is_made_once_and_found_again() -> None:
    def double(x: torch.Tensor) -> torch.Tensor:
        return (2 * x).sin()

    found = []
    for _ in range(2):
        torch.compiler.reset()
        before = counters["inductor"]["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"]
        with keeping_code(CPU):
            assert torch.equal(Compiled(double)(torch.arange(4.0)), double(torch.arange(4.0)))
        after = counters["inductor"]["fxgraph_cache_hit"] + counters["aot_autograd"]["autograd_cache_hit"]
        found.append((after > before, list_code()[0].size > 0))
    assert found == [(False, True), (True, True)]
    clear_code()
    torch.compiler.reset()


def test_it_serves_within_and_leaves_the_environment_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        with keeping_code(CPU):
            assert os.environ[NAMED] == str(code_folder(CPU))
            os.environ[TRITON] = "named by PyTorch"
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert not {NAMED, TRITON} & os.environ.keys()
    monkeypatch.setenv(NAMED, default_cache_dir())  # PyTorch's own choice, not a user's
    with keeping_code(CPU):
        assert os.environ[NAMED] == str(code_folder(CPU))
    assert os.environ[NAMED] == default_cache_dir()


@POSIX
def test_the_folder_is_the_users_alone() -> None:
    with keeping_code(CPU):
        assert stat.S_IMODE(cache_folder().stat().st_mode) == 0o700
        assert stat.S_IMODE(code_folder(CPU).stat().st_mode) == 0o700
    cache_folder().chmod(0o755)  # others could read it, no more
    with keeping_code(CPU):
        assert stat.S_IMODE(cache_folder().stat().st_mode) == 0o700


def test_it_is_for_one_set_of_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    assert torch.__version__ in code_folder(CPU).name
    before = code_folder(CPU)
    monkeypatch.setattr("graphclean.training.code_cache.__version__", "9.9")
    assert code_folder(CPU) != before
    monkeypatch.setattr(torch, "__version__", "3.0/../../x")
    assert code_folder(CPU).parent == cache_folder()


def test_a_place_that_a_user_named_and_a_limit_of_none_are_heeded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GRAPHCLEAN_CACHE_GB", "0")
    with keeping_code(CPU):
        assert NAMED not in os.environ
    monkeypatch.delenv("GRAPHCLEAN_CACHE_GB")
    monkeypatch.setenv(NAMED, str(tmp_path))
    with keeping_code(CPU):
        assert os.environ[NAMED] == str(tmp_path)
    monkeypatch.delenv(NAMED)
    with keeping_code(CPU, wanted=False):
        assert NAMED not in os.environ
    assert not cache_folder().exists()


@POSIX
@pytest.mark.parametrize("how", ["others", "link", "file", "read-only"])
def test_a_folder_of_others_is_not_read(how: str, tmp_path: Path) -> None:
    """What PyTorch finds there it unpickles."""
    above = cache_folder().parent
    if how == "link":
        (tmp_path / "theirs").mkdir()
        cache_folder().symlink_to(tmp_path / "theirs")
    elif how == "file":
        cache_folder().write_text("")
    elif how == "others":
        cache_folder().mkdir()
        cache_folder().chmod(0o777)
    else:
        above.chmod(0o500)
    try:
        with (
            pytest.warns(DataWarning, match="compiled code is not kept for the next time: "),
            keeping_code(CPU),
        ):
            assert NAMED not in os.environ
    finally:
        above.chmod(0o700)
    assert not (tmp_path / "theirs").exists() or not list((tmp_path / "theirs").iterdir())


@pytest.mark.parametrize("compile_", ["on", "off"])
def test_a_run_takes_it_only_if_it_compiles(monkeypatch: pytest.MonkeyPatch, compile_: str) -> None:
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))
    settings = dataclasses.replace(TINY, epochs=2, compile=compile_, strong_augmentation="off")  # type: ignore[arg-type]
    made = trainer(settings, CrossEntropy())
    seen: list[str | None] = []
    made.train(on_epoch=lambda *_: seen.append(os.environ.get(NAMED)))
    usual = {None, default_cache_dir()}
    if compile_ == "on":
        assert seen == [str(code_folder(CPU))] * 2
    else:
        assert set(seen) <= usual
    assert os.environ.get(NAMED) in usual
    assert cache_folder().exists() == (compile_ == "on")


def test_commands_show_and_clear_it(cli: Cli, tmp_path: Path) -> None:
    shown = json.loads(cli("data", "cache", "--json").out)["code"]
    assert shown == {"folder": str(cache_folder()), "freed": None, "entries": []}
    fill("old", 2_000_000, used=10)
    fill("new", 500_000)
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "mine").write_text("mine")
    (cache_folder() / "link").symlink_to(outside)
    shown = json.loads(cli("data", "cache", "--json").out)["code"]["entries"]
    assert [(entry["name"], entry["bytes"]) for entry in shown] == [("new", 500_000), ("old", 2_000_000)]
    assert shown[1]["used"] == "1970-01-01T00:00:10+00:00"
    printed = cli("data", "cache").out
    assert f"{cache_folder()}: 2.5 MB of compiled code kept" in printed
    assert printed.splitlines()[-2].split()[:2] == ["new", "0.5"]
    assert "2.5 MB of compiled code removed" in cli("data", "cache", "--clear").out
    assert list_code() == []
    assert (outside / "mine").read_text() == "mine"
    assert json.loads(cli("data", "cache", "--clear", "--json").out)["code"]["freed"] == 0
