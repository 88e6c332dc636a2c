"""Data in a page, made harmless."""

import json
from typing import Any

from .._files import plain

ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def to_json(value: Any) -> str:
    """JSON that can stand in a script element: nothing in it can end the element or open another."""
    text = json.dumps(plain(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character, escape in ESCAPES.items():
        text = text.replace(character, escape)
    return text


def count_bytes(text: str) -> int:
    """Of text in the page; a lone surrogate becomes an escape."""
    return len(text.encode("utf-8", "backslashreplace"))
