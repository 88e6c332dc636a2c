"""Escaping of data in a page."""

import json
from typing import Any

from .._files import plain

ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def to_json(value: Any) -> str:
    """JSON for a script element: nothing in it can end the element or open another."""
    try:
        text = _dump(value)
    except (TypeError, ValueError):  # convert only arrays and infinities: plain values need no copy
        text = _dump(plain(value))
    for character, escape in ESCAPES.items():
        text = text.replace(character, escape)
    return text


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def count_bytes(text: str) -> int:
    """Bytes of text in the page; lone surrogates become escapes."""
    return len(text.encode("utf-8", "backslashreplace"))
