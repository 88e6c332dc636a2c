"""CONTRIBUTING.md: its rooms are those of the import rules, and the journeys through them are real."""

import inspect
import pkgutil
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from graphclean.cli.app import app
from tests.site import ROOT
from tests.test_rooms import ORDER

pytestmark = pytest.mark.skipif(not (ROOT / "CONTRIBUTING.md").exists(), reason="needs the source tree")

STEP = re.compile(r"^( *)- `([\w.]+)`", re.MULTILINE)
AGAIN = {
    # Looked for neighbors first, then for components of what was selected.
    "clean": {"graph": 3},
    # Signals stop training between `prepare` and `finish`, so that the job calls all three; the trainer
    # calls its method at every seam, and the settings of a method are checked before data is read.
    "train": {"methods": 5, "ood": 3, "training": 3},
    # A model is loaded first, and judges later.
    "predict": {"training": 2},
    "export": {"training": 2},
    # The verdicts, and then the pictures.
    "report": {"runs": 2},
    # The lock, the verdicts, and every decision. The address is told before the page is made, and the
    # server answers meanwhile.
    "review": {"runs": 3, "report": 3},
    "bench run": {"bench": 3, "training": 4},
}
"""Rooms that a journey enters more than once, and why."""


class Call(NamedTuple):
    caller: str | None
    called: str


def journeys() -> dict[str, list[Call]]:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    found = re.findall(r"^### graphclean ([\w ]+)\n\n((?: *- .+\n)+)", text, re.MULTILINE)
    return {name: list(calls(steps)) for name, steps in found}


def calls(steps: str) -> Iterator[Call]:
    above: list[str] = []
    for indent, name in STEP.findall(steps):
        del above[len(indent) // 2 :]
        yield Call(above[-1] if above else None, name)
        above.append(name)


def resolve(name: str) -> Any:
    return pkgutil.resolve_name(f"graphclean.{name}")


def source(name: str) -> str:
    module = inspect.getmodule(resolve(name))
    assert module is not None
    return inspect.getsource(module)


def entered(steps: list[Call]) -> Counter[str]:
    """How often each room is entered from another one."""
    rooms = [
        (call.caller.split(".")[0] if call.caller else None, call.called.split(".")[0]) for call in steps
    ]
    return Counter(room for before, room in rooms if before != room)


def test_the_rooms_are_those_of_the_import_rules() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text().partition("## The rooms")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \| \S", text, re.MULTILINE) == ORDER


def test_there_is_a_journey_for_each_command_that_works() -> None:
    named = [
        command.name or command.callback.__name__ for command in app.registered_commands if command.callback
    ]
    lists = {"presets", "methods", "detectors"}
    assert set(journeys()) == {*named, "bench run"} - lists


@pytest.mark.parametrize("name", journeys() or ["none"])
def test_a_journey_is_real(name: str) -> None:
    steps = journeys()[name]
    assert steps[0].caller is None
    assert all(call.caller is not None for call in steps[1:])
    for call in steps:
        assert callable(resolve(call.called)), call.called
        if call.caller is not None:
            word = call.called.split(".")[-1]
            assert re.search(rf"\b{word}\b", source(call.caller)), f"{call.caller} does not name {word}"


@pytest.mark.parametrize("name", journeys() or ["none"])
def test_a_journey_enters_each_room_once_but_for_what_is_said(name: str) -> None:
    often = {room: count for room, count in entered(journeys()[name]).items() if count > 1}
    assert often == AGAIN.get(name, {})


def test_the_checks_can_fail() -> None:
    steps = list(calls("- `cli.app.clean`\n  - `runs.clean.clean`\n    - `cli.app.train`\n"))
    assert steps[2] == Call("runs.clean.clean", "cli.app.train")
    assert entered(steps) == {"cli": 2, "runs": 1}
    with pytest.raises(AttributeError):
        resolve("runs.clean.cleen")
