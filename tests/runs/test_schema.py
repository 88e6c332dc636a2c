"""Values from JSON against their shapes, worked by hand."""

import re
from pathlib import Path
from typing import Any, TypedDict

import pytest

from graphclean._files import check_shape
from graphclean.errors import InputError
from graphclean.runs.schema import ConfigFile


class Box(TypedDict, total=False):
    size: float
    count: int
    names: list[str]
    more: dict[str, int | None]
    open: bool


GOOD: dict[str, Any] = {
    "size": 1,
    "count": 2,
    "names": ["a"],
    "more": {"x": None, "y": 3},
    "open": True,
    "?": [],
}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, None),
        ({"size": 0.5, "names": [], "more": {}}, None),
        ({"size": True}, "size is not a number"),
        ({"size": float("nan")}, "size is not a number"),
        ({"size": None}, "size is not a number"),
        ({"count": 1.0}, "count is not a whole number"),
        ({"count": "1"}, "count is not a whole number"),
        ({"names": "abc"}, "names is not a list"),
        ({"names": ["a", 1]}, "names.1 is not text"),
        ({"more": []}, "more is not a table"),
        ({"more": {"x": "y"}}, "more.x is not a whole number or null"),
        ({"open": 1}, "open is not true or false"),
    ],
)
def test_the_field_that_is_wrong_is_named(changed: dict[str, Any], said: str | None) -> None:
    value = GOOD | changed
    if said is None:
        assert check_shape(value, Box, Path("box.json")) is value
        return
    with pytest.raises(InputError, match=rf"^{re.escape(f'box.json: damaged: {said}')}$"):
        check_shape(value, Box, Path("box.json"))


def test_what_must_be_there_is_missed() -> None:
    assert check_shape({"graphclean": "1", "format": 2}, ConfigFile, Path("c"))
    with pytest.raises(InputError, match=r"^c: damaged: no format in it$"):
        check_shape({"graphclean": "1"}, ConfigFile, Path("c"))
    with pytest.raises(InputError, match=r"^c: damaged: it is not a table$"):
        check_shape([], ConfigFile, Path("c"))
