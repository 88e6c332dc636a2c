"""Data in a page can't do harm."""

import json
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from graphclean.report.escape import count_bytes, to_json


@settings(deadline=None)
@given(st.recursive(st.text() | st.integers() | st.none(), st.lists, max_leaves=8))
def test_json_says_the_same_and_can_not_leave_its_element(value: object) -> None:
    text = to_json(value)
    assert json.loads(text) == value
    assert not re.search(r"[<>&\u2028\u2029]", text)


def test_json_has_no_nan() -> None:
    assert to_json([float("nan"), float("inf")]) == "[null,null]"


def test_bytes_are_those_of_the_page() -> None:
    assert count_bytes("aζ") == 3
    assert count_bytes("\udcff") == 6
