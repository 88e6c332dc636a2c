"""Every command and every Python block of the docs runs, and the site holds together."""

import ast
import importlib
import importlib.util
import io
import re
import shutil
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import typer

from graphclean.cli import app, main
from graphclean.errors import DataWarning
from graphclean.plotting import KINDS

from .site import LANGUAGES, PAGES, ROOT, Block, SitePage, read_page, write_data

pytestmark = pytest.mark.skipif(not (ROOT / "docs").exists(), reason="needs the source tree")

QUICK = ["--set", "learn.epochs=2"]
"""Added to every command that trains."""
GIVEN = {"runs/train-clean": ["clean", "photos/train"]}
"""Runs that pages may begin with, and how they are made."""


def load(name: str) -> ModuleType:
    """A script of the docs."""
    spec = importlib.util.spec_from_file_location(f"docs_{name}", ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def run_command(words: list[str]) -> None:
    quick = QUICK if words[0] in ("train", "demo") else []
    with pytest.raises(SystemExit) as stop:
        main([*words, *quick])
    assert stop.value.code == 0, f"graphclean {' '.join(words)}"


def check_command(words: list[str]) -> None:
    """Every argument and option exists and has a possible value; nothing is run."""
    command: Any = typer.main.get_command(app)
    context: Any = None
    while hasattr(command, "commands"):
        context = command.make_context(words[0], [], parent=context, resilient_parsing=True)
        command, words = command.commands[words[0]], words[1:]
    command.make_context(command.name, list(words), parent=context)


def check_other(words: list[str]) -> None:
    """What is not `graphclean`: an extra, a target of make or a script that must be there."""
    if words[:2] == ["pip", "install"]:
        extras = re.fullmatch(r"\.(?:\[([\w,]+)\])?", words[2])
        assert extras is not None
        there = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        assert {name for name in (extras[1] or "").split(",") if name} <= set(there)
    elif words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    else:
        assert words[0] == "python", f"what is {words[0]}?"
        assert (ROOT / words[1]).is_file()


def check_python(text: str) -> None:
    """It is Python, and what it imports of graphclean exists."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("graphclean"):
            module = importlib.import_module(node.module or "")
            assert [name.name for name in node.names if not hasattr(module, name.name)] == []


def numbers_apart(text: str) -> tuple[list[str], list[float]]:
    number = re.compile(r"\d+(?:\.\d+)?")
    return number.sub("#", text).split(), [float(found) for found in number.findall(text)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_data(folder)
    return folder


@pytest.fixture(scope="module")
def runs(data: Path) -> dict[str, Path]:
    """Given runs that were made already."""
    del data
    return {}


@pytest.fixture
def world(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> Iterator[Path]:
    """A folder of its own for each page."""
    del one_thread
    folder = tmp_path / "world"
    shutil.copytree(data, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GRAPHCLEAN_DATA", str(tmp_path / "no-data"))
    with torch.random.fork_rng():
        yield folder


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_blocks_run(path: Path, world: Path, runs: dict[str, Path]) -> None:
    page = read_page(path)
    give(page, world, runs)
    scope: dict[str, Any] = {"__name__": "docs"}
    printed = ""
    for block in page.blocks:
        assert block.language in LANGUAGES, block.text
        if block.language == "text":
            assert not re.search(r"^\$ ", block.text, re.MULTILINE), "commands go into blocks of their own"
        if block.mark == "printed":
            check_printed(block, printed)
        elif block.language == "python" and block.mark == "not run":
            check_python(block.text)
        elif block.language == "python":
            out = io.StringIO()
            with redirect_stdout(out), warnings.catch_warnings():
                warnings.simplefilter("ignore", DataWarning)
                exec(compile(block.text, str(path), "exec"), scope)
            printed = out.getvalue()
        elif block.language == "sh":
            for words in block.commands:
                if words[0] != "graphclean":
                    check_other(words)
                elif block.mark == "not run":
                    check_command(words[1:])
                else:
                    run_command(words[1:])


def give(page: SitePage, world: Path, runs: dict[str, Path]) -> None:
    """Put the runs a page begins with into its folder; each is made once."""
    for name in page.given:
        if name not in runs:
            run_command([*GIVEN[name], "--quiet"])
            runs[name] = world / name
        elif runs[name] != world / name:
            shutil.copytree(runs[name], world / name)


def check_printed(block: Block, printed: str) -> None:
    words, numbers = numbers_apart(block.text)
    now_words, now = numbers_apart(printed)
    assert words == now_words
    assert now == pytest.approx(numbers, abs=0.03)


def test_what_is_not_run_says_why() -> None:
    marks = [
        line
        for path in PAGES
        for line in path.read_text().splitlines()
        if "not run" in line and "<!--" in line
    ]
    assert marks
    assert all(re.fullmatch(r"<!-- not run: [^>]{8,} -->", line) for line in marks)
    blocks = [block for path in PAGES for block in read_page(path).blocks]
    assert len(marks) == sum(block.mark == "not run" for block in blocks), (
        "a mark stands right before its block"
    )


def test_a_wrong_option_is_noticed() -> None:
    check_command(["bench", "run", "cifar10/sym50", "--seeds", "0", "1"])
    with pytest.raises(Exception, match="--sedes"):
        check_command(["bench", "run", "cifar10/sym50", "--sedes", "0"])


def test_tables_of_settings_name_every_setting_with_its_reason() -> None:
    hooks = load("hooks")
    from graphclean.config import Config

    for section, values in Config().to_dict().items():
        table = hooks.settings_table(section)
        assert len(table.splitlines()) == 2 + len(values)
        for name in values:
            assert re.search(rf"^\| `{section}\.{name}` \| `[^`]+` \| \S.{{5,}} \|$", table, re.MULTILINE)
        assert f"<!-- made: settings {section} -->" in (ROOT / "docs" / "settings.md").read_text()


def test_the_list_of_commands_is_that_of_the_command_line() -> None:
    page = load("hooks").on_page_markdown("before\n<!-- made: commands -->\nafter")
    names = re.findall(r"^## graphclean (.+)$", page, re.MULTILINE)
    assert {"clean", "train", "predict", "apply", "bench run", "data fetch"} <= set(names)
    assert "`--drop-uncertain` | Remove what is uncertain" in page
    assert "<!--" not in page


def test_the_site_builds_and_its_links_hold(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs", reason="needs the extra docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert load("check_links").check_site(tmp_path) == []


def test_broken_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<h1 id="top"></h1><a href="b.html#here">1</a><a href="#top">2</a><a href="b.html#gone">3</a>'
        '<a href="c.html">4</a><a href="https://example.org/x">5</a><a href="http:/example">6</a>'
        '<script src="https://example.org/x.js"></script>'
    )
    (tmp_path / "b.html").write_text('<p id="here"></p>')
    assert load("check_links").check_site(tmp_path) == [
        "a.html: loads https://example.org/x.js",
        "a.html: b.html#gone: no such anchor",
        "a.html: c.html: no such file",
        "a.html: http:/example: not a whole https address",
    ]


def test_figures_are_drawn_from_a_run(tmp_path: Path, one_thread: None) -> None:
    del one_thread
    figures = load("figures")
    story = figures.run_demo(["learn.epochs=2"], training=300)
    assert [epoch.number for epoch in story.epochs] == [1, 2]
    assert set(story.epochs[0].counts) == set(KINDS)
    drawn = figures.draw_all(story, tmp_path)
    shown = set(re.findall(r"images/(digits-[\w.-]+)\)", (ROOT / "docs" / "how-it-works.md").read_text()))
    assert {path.name for path in drawn} == shown
    assert all(path.stat().st_size > 5_000 for path in drawn)
    assert all((ROOT / "docs" / "images" / name).is_file() for name in shown)
