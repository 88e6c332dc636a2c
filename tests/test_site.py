"""Every command and every Python block of the docs runs, and the site holds together."""

import importlib.util
import io
import json
import os
import pkgutil
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import asdict
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.request import Request, urlopen

import pytest
import torch
import typer
from PIL import Image
from torch.distributed import run as torchrun

from graphclean.bench.cells import CELLS
from graphclean.bench.registry import SETS, NamedSet
from graphclean.cli.app import app, main
from graphclean.config import Config, apply_settings
from graphclean.errors import DataWarning, InputError
from graphclean.methods import OWN_METHODS, load_method
from graphclean.ood.detectors import OWN_DETECTORS, load_detector
from graphclean.report.theme import KIND_STYLES
from graphclean.runs.decisions import DecisionLog
from tests.bench.photos import write_webvision_sets
from tests.embed.fakes import fake_timm
from tests.site import LANGUAGES, PAGES, ROOT, Block, SitePage, read_page, write_data
from tests.standins import (
    fake_sentence_transformers,
    load_dataset,
    makers_server,
    short_preset,
    small_cells,
    write_browser,
)
from tests.test_words import PLACES, words_in

pytestmark = pytest.mark.skipif(not (ROOT / "docs").exists(), reason="needs the source tree")

QUICK = ["--set", "training.epochs=2", "--set", "method.warmup_epochs=1"]
"""For hours of training: added to `train` and `demo`."""
BESIDE = [ROOT / "CONTRIBUTING.md", ROOT / "benchmarks" / "README.md", ROOT / "results" / "README.md"]
"""Pages that are no part of the site."""
PLACEHOLDERS = ("…", "VALUE")


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
    """As typed, but quick; a review is a process of its own, and ended by Ctrl-C."""
    if words[0] == "review" and "--merge" not in words:
        run_review(words)
        return
    quick = QUICK if words[0] in ("train", "demo") else []
    if any(word.startswith("method.name=") for word in words):  # not every method has a warm-up
        quick = quick[:2]
    with pytest.raises(SystemExit) as stop:
        main([*words, *quick])
    assert stop.value.code == 0, f"graphclean {' '.join(words)}"


def read_address(address: str) -> bytes:
    """The page at an address; the server answers after a second if it is still making it."""
    with urlopen(address, timeout=60) as page:
        content: bytes = page.read()
    return content


def run_review(words: list[str]) -> None:
    """Serve the page, look at it, accept the first verdict as its button does, and press Ctrl-C."""
    browser = write_browser(Path.cwd())
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "BROWSER": str(browser)}
    command = [sys.executable, "-m", "graphclean", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            assert first.startswith("Review: http://127.0.0.1:"), first
            address = first.split()[1]
            place, _, token = address.partition("/?token=")
            while b'"mode":"review"' not in (shown := read_address(address)):
                assert b"Getting the page ready" in shown, shown[:500]
            assert "--open" not in words or browser.with_name("opened").read_text() == address
            headers = {"X-Token": token, "Origin": place, "Content-Type": "application/json"}
            content = json.dumps({"rows": [0], "kind": "accept"}).encode()
            with urlopen(Request(f"{place}/decide", content, headers), timeout=60) as answer:
                assert [held["kind"] for held in json.load(answer)] == ["accept"]
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0
    assert "1 sample decided" in out


def second_review() -> None:
    """Someone else's copy of the run, in which two samples were taken out."""
    shutil.copytree("runs/train-clean", "theirs")
    with DecisionLog(Path("theirs")) as log:
        for row in (0, 1):
            log.add(log.samples.decide(row, "remove", by="Bob"))


GIVEN: dict[str, Callable[[], None]] = {
    "runs/train-clean": lambda: run_command(["clean", "photos/train", "--quiet"]),
    "theirs": second_review,
    "sets": lambda: write_webvision_sets(Path("sets")),
}
"""Folders that pages may begin with, and how they are made."""


def install(words: list[str]) -> None:
    """`pip install` of this project, into a folder; what it needs from elsewhere is not fetched."""
    extras = re.fullmatch(r"\.(?:\[([\w,]+)\])?", words[0])
    assert extras is not None
    there = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {name for name in (extras[1] or "").split(",") if name} <= set(there)
    alone = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", "installed"]
    subprocess.run([sys.executable, "-m", "pip", "install", *alone, f"{ROOT}{words[0][1:]}"], check=True)
    code = "import graphclean; print(graphclean.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": "installed"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(found.stdout.strip()).is_relative_to(Path("installed").resolve())


def check_other(words: list[str]) -> None:
    """What is neither `graphclean` nor `pip`: `torchrun`, a target of make or a script that must be there."""
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    elif words[0] == "torchrun":  # what it would start in every process is run in this one
        options = torchrun.get_args_parser().parse_args(words[1:])
        assert (options.module, options.training_script) == (True, "graphclean")
        run_command(options.training_script_args)
    else:
        assert words[0] == "python", f"what is {words[0]}?"
        assert (ROOT / words[1]).is_file()


def numbers_apart(text: str) -> tuple[list[str], list[float]]:
    number = re.compile(r"\d+(?:\.\d+)?")
    return number.sub("#", text).split(), [float(found) for found in number.findall(text)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_data(folder)
    return folder


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What pages begin with, once it was made."""
    return tmp_path_factory.mktemp("given")


@pytest.fixture(scope="module")
def published() -> Iterator[dict[str, NamedSet]]:
    with makers_server() as entries:
        yield entries


@pytest.fixture
def world(
    data: Path,
    published: dict[str, NamedSet],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    one_thread: None,
) -> Iterator[Path]:
    """A folder of its own for each page, and stand-ins for what can't be had."""
    del one_thread
    folder = tmp_path / "world"
    shutil.copytree(data, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GRAPHCLEAN_DATA", str(tmp_path / "sets"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    for name, named in published.items():
        monkeypatch.setitem(SETS, name, named)
    for name, cell in small_cells().items():
        monkeypatch.setitem(CELLS, name, cell)
    monkeypatch.setattr("graphclean.bench.cells.load_preset", short_preset)
    modules = fake_timm(["convnext_tiny", "resnet50"])
    modules["sentence_transformers"] = fake_sentence_transformers()
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr("datasets.load_dataset", load_dataset)
    with torch.random.fork_rng():
        yield folder


# docs/extend.md builds a package, and is run by test_extend.py.
@pytest.mark.slow
@pytest.mark.parametrize("path", [p for p in PAGES if p.stem != "extend"], ids=lambda path: path.stem)
def test_blocks_run(path: Path, world: Path, given: Path) -> None:
    page = read_page(path)
    give(page, world, given)
    scope: dict[str, Any] = {"__name__": "docs"}
    printed = ""
    for block in page.blocks:
        assert block.language in LANGUAGES, block.text
        if block.language == "text":
            assert not re.search(r"^\$ ", block.text, re.MULTILINE), "commands go into blocks of their own"
        if block.printed:
            check_printed(block, printed)
        elif block.language == "python":
            out = io.StringIO()
            with redirect_stdout(out), warnings.catch_warnings():
                warnings.simplefilter("ignore", DataWarning)
                exec(compile(block.text, str(path), "exec"), scope)
            printed = out.getvalue()
        elif block.language == "sh":
            for words in block.commands:
                if words[0] == "graphclean":
                    run_command(words[1:])
                elif words[:2] == ["pip", "install"]:
                    install(words[2:])
                else:
                    check_other(words)


def give(page: SitePage, world: Path, given: Path) -> None:
    """Put what a page begins with into its folder; each is made once."""
    for name in page.given:
        if (given / name).exists():
            shutil.copytree(given / name, world / name)
        else:
            GIVEN[name]()
            shutil.copytree(world / name, given / name)


def check_printed(block: Block, printed: str) -> None:
    words, numbers = numbers_apart(block.text)
    now_words, now = numbers_apart(printed)
    assert words == now_words
    assert now == pytest.approx(numbers, abs=0.03)


@pytest.mark.parametrize("path", [*PAGES, *BESIDE], ids=lambda path: str(path.relative_to(ROOT)))
def test_code_in_prose_is_right(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing of it is run, but commands, options, settings, targets and names must exist."""
    wrong = [code for code in read_page(path).inline if not is_right(code)]
    capsys.readouterr()  # --help prints
    assert wrong == []


@cache
def all_commands() -> dict[str, Any]:
    return dict(load("hooks").walk("graphclean", typer.main.get_command(app)))


def is_right(code: str) -> bool:
    commands = all_commands()
    if code.startswith("graphclean "):
        code = code.replace("graphclean COMMAND", "graphclean clean")
        return any(
            code == name or (code.startswith(f"{name} ") and accepts(command, code.removeprefix(name)))
            for name, command in commands.items()
        )
    if (
        re.fullmatch(r"--[\w-]+=\S+", code)
        and f"{code.split('=')[0]}" in torchrun.get_args_parser().format_help()
    ):
        return True
    if re.fullmatch(r"--[\w-]+", code):
        return any(code in option.opts for command in commands.values() for option in command.params)
    if re.search(r"(^| )--\w", code):
        return any(accepts(command, code) for command in commands.values())
    if re.match(r"(make|python) [a-z]", code):
        check_other(code.split())
    if re.fullmatch(r"graphclean(\.\w+)+", code):
        pkgutil.resolve_name(code)
    return True


def accepts(command: Any, text: str) -> bool:
    """Whether a command takes these words, when what they leave out in front is added."""
    words = shlex.split(text)
    for missing in range(3):
        try:
            context = command.make_context(command.name, [*["x"] * missing, *words])
        except typer.Exit:  # help was asked for
            return True
        except Exception as error:
            if not hasattr(error, "format_message"):  # not of wrong usage
                raise
        else:
            return all(is_setting(text) for text in context.params.get("settings") or [])
    return False


def is_setting(text: str) -> bool:
    name, _, value = text.partition("=")
    if value in PLACEHOLDERS:
        return name in [f"{part}.{key}" for part, keys in Config().to_dict().items() for key in keys]
    try:
        apply_settings(Config(), [text])
    except InputError:
        return False
    return True


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("graphclean bench run cifar10/sym50 --seeds 0 1", "graphclean bench run cifar10/sym50 --sedes 0"),
        ("graphclean predict RUN DATA", "graphclean foretell RUN DATA"),
        ("--search approx", "--search approximate"),
        ("--data-root", "--dataroot"),
        ("--resume --set ood.threshold=…", "--resume --set ood.eta=…"),
        ("--set training.horizontal_flip=false", "--set training.horizontal_flip=never"),
        ("images.npy --labels labels.csv", "images.npy --label labels.csv"),
    ],
)
def test_wrong_code_in_prose_is_noticed(right: str, wrong: str) -> None:
    assert is_right(right)
    assert not is_right(wrong)


def test_tables_of_settings_name_every_setting_with_its_reason() -> None:
    hooks = load("hooks")
    tables = {section: values for section, values in Config().to_dict().items() if section != "method"}
    for section, values in tables.items():
        table = hooks.settings_table(*section.split())
        assert len(table.splitlines()) == 2 + len(values)
        for name in values:
            setting = rf"{section.split()[0]}\.{name}"
            assert re.search(rf"^\| `{setting}` \| `[^`]+` \| \S.{{5,}} \|$", table, re.MULTILINE)
        assert f"<!-- made: settings {section} -->" in (ROOT / "docs" / "settings.md").read_text()


def test_the_list_of_methods_has_every_setting_once() -> None:
    page = load("hooks").on_page_markdown((ROOT / "docs" / "settings.md").read_text())
    for name in OWN_METHODS:
        made = load_method(name)
        assert f"### {made.info.title}: `{name}`" in page
        assert made.info.paper in page
        for setting in asdict(made.Settings()):
            assert f"| `method.{setting}` | `" in page
    for settings in {load_method(name).Settings for name in OWN_METHODS}:
        sharing = [name for name in OWN_METHODS if load_method(name).Settings is settings]
        assert page.count(f"Settings as of `{sharing[0]}`.") == len(sharing) - 1


def test_every_method_and_detector_is_on_the_page_of_methods() -> None:
    page = (ROOT / "docs" / "methods.md").read_text()
    for hook in ("catalog", "hooks"):
        page = load(hook).on_page_markdown(page)
    for name in OWN_METHODS:
        info = load_method(name).info
        assert re.search(rf"^\| `{name}` \| {re.escape(info.title)}", page, re.MULTILINE)
    for name in OWN_DETECTORS:
        assert f"| `{name}` | {load_detector(name).title}" in page
    assert not re.search("<!-- (?:made|overview)", page)
    kinds = {load_method(name).info.kind for name in OWN_METHODS}
    assert kinds <= set(load("catalog").KINDS), "give the kind a heading in docs/catalog.py"


def test_the_list_of_commands_is_that_of_the_command_line() -> None:
    page = load("hooks").on_page_markdown("before\n<!-- made: commands -->\nafter")
    names = re.findall(r"^## graphclean (.+)$", page, re.MULTILINE)
    assert {"clean", "train", "predict", "apply", "bench run", "data fetch"} <= set(names)
    assert words_in(page, PLACES["docs"]) == []
    assert "`--drop-uncertain` | Remove uncertain samples" in page
    assert "<!--" not in page


@pytest.mark.slow
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


@pytest.mark.slow
def test_figures_are_drawn_from_a_run(tmp_path: Path, one_thread: None) -> None:
    del one_thread
    figures = load("figures")
    story = figures.run_demo(["training.epochs=2"], training=300)
    assert [epoch.number for epoch in story.epochs] == [1, 2]
    assert set(story.epochs[0].counts) == set(KIND_STYLES)
    drawn = figures.draw_all(story, tmp_path)
    shown = set(re.findall(r"images/(digits-[\w.-]+)\)", (ROOT / "docs" / "how-it-works.md").read_text()))
    assert {path.name for path in drawn} == shown
    assert all(path.stat().st_size > 5_000 for path in drawn)
    assert all((ROOT / "docs" / "images" / name).is_file() for name in shown)


@pytest.mark.slow
def test_the_eight_pictures_show_the_verdicts_of_today(one_thread: None) -> None:
    del one_thread
    photos = load("photos")
    found = photos.make_pictures()
    shown = found.verdicts.iloc[photos.choose(found)]
    assert shown["verdict"].value_counts().to_dict() == {"keep": 3, "relabel": 3, "ood": 2}
    assert (shown["proposed_label"] == found.truth[shown.index])[shown["verdict"] == "relabel"].all()
    with Image.open(ROOT / "docs" / "images" / "verdicts.png") as picture:
        assert picture.text["Description"] == photos.facts(found), "run python docs/figures.py"


@pytest.mark.slow
def test_figures_are_drawn_from_a_recorded_run(tmp_path: Path) -> None:
    drawn = {path.name for path in load("figures").draw_recorded(tmp_path)}
    pages = [(ROOT / page).read_text() for page in ("docs/reproduction.md", "results/README.md")]
    assert set(re.findall(r"images/(cifar10-[\w.-]+)\)", "".join(pages))) == drawn
    assert all((ROOT / "docs" / "images" / name).is_file() for name in drawn)
    for name in drawn:
        titles = [
            re.findall(r"<!-- ((?:.+, )?\d+\sseeds?) -->", (folder / name).read_text())
            for folder in (tmp_path, ROOT / "docs" / "images")
        ]
        assert len(titles[0]) == 1
        assert titles[0] == titles[1], "a seed was recorded since; run python docs/figures.py"
