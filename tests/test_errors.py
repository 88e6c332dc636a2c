"""Messages name arguments; each front door spells them its own way."""

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import graphclean
from graphclean.cli.app import app
from graphclean.cli.options import as_option
from graphclean.embed.efficientnet import EXTRAS
from graphclean.errors import InputError, RunStopped, arg, extra, occupied

ROOT = Path(graphclean.__file__).parent
BELOW = [path for path in sorted(ROOT.rglob("*.py")) if path.parent.name != "cli"]


def test_an_argument_is_spelled_by_the_front_door() -> None:
    for error in (InputError(f"use {arg('path_column')}"), RunStopped(f"use {arg('path_column')}", 1)):
        assert str(error) == "use path_column"
        assert error.spelled(as_option) == "use --path-column"


def test_what_may_be_replaced_says_how() -> None:
    error = occupied(Path("model.onnx"), "the file exists")
    assert str(error) == "model.onnx: the file exists; use overwrite to replace it, or another out"
    assert "--overwrite to replace it, or another --out" in error.spelled(as_option)


def test_hints_name_extras_that_there_are() -> None:
    """Nothing is on PyPI under this name, so they install from the source folder."""
    extras = tomllib.loads((ROOT.parents[1] / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    named = set()
    for path in sorted(ROOT.rglob("*.py")):
        text = path.read_text()
        assert "pip install graphclean" not in text, path
        assert 'pip install "graphclean' not in text, path
        named |= set(re.findall(r"\bextra\(['\"](\w+)['\"]\)", text))
    assert {"timm", "hf", "onnx"} <= named
    assert named | set(EXTRAS.values()) <= extras.keys()
    assert extra("hf") == 'the extra "hf": pip install ".[hf]" in the source folder of graphclean'


def test_every_argument_in_a_message_is_an_option() -> None:
    def options(group: Any) -> set[str]:
        names = {name for parameter in group.params for name in parameter.opts}
        return names.union(*(options(command) for command in getattr(group, "commands", {}).values()))

    named = {
        argument for path in BELOW for argument in re.findall(r"\barg\(['\"](\w+)['\"]\)", path.read_text())
    }
    assert {"out", "form"} <= named
    of_python = {"ids"}  # of arrays, which the command line has only in files
    missing = {as_option(argument) for argument in named - of_python} - options(get_command(app))
    assert missing == set()


@pytest.mark.parametrize("path", BELOW, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_error_below_the_command_line_names_an_option(path: Path) -> None:
    raised = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Raise)]
    texts = [
        text.value
        for node in raised
        for text in ast.walk(node)
        if isinstance(text, ast.Constant) and isinstance(text.value, str)
    ]
    assert not [text for text in texts if "--" in text and "`graphclean" not in text and "pip " not in text]
