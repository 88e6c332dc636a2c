"""Validation of JSON from disk against a typed shape."""

import math
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints, is_typeddict

from .errors import InputError

JsonObject = dict[str, Any]
"""Any JSON object."""
WORDS = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    NoneType: "null",
    list: "a list",
    dict: "a table",
}


def check_shape(value: Any, shape: Any, path: Path) -> Any:
    """Return the value if it has the shape; otherwise raise an error that names the file and the field."""
    wrong = _find_wrong(value, shape, "")
    if wrong is not None:
        raise InputError(f"{path}: damaged: {wrong}")
    return value


def _find_wrong(value: Any, shape: Any, field: str) -> str | None:
    """What is wrong with the first invalid field, if any."""
    if shape is Any:
        return None
    if isinstance(shape, UnionType):
        fits = any(_find_wrong(value, one, field) is None for one in get_args(shape))
        return None if fits else f"{field or 'it'} is not {_describe(shape)}"
    if not _is_one(value, _outer(shape)):
        return f"{field or 'it'} is not {_describe(shape)}"
    inner: list[tuple[Any, Any]] = []
    if is_typeddict(shape):
        missing = sorted(shape.__required_keys__ - value.keys())
        if missing:
            return f"no {_below(field, missing[0])} in it"
        inner = [(name, kind) for name, kind in get_type_hints(shape).items() if name in value]
    elif get_args(shape):
        keys = value if isinstance(value, dict) else range(len(value))
        inner = [(key, get_args(shape)[-1]) for key in keys]
    found = (_find_wrong(value[key], kind, _below(field, key)) for key, kind in inner)
    return next((wrong for wrong in found if wrong is not None), None)


def _is_one(value: Any, kind: type) -> bool:
    if kind is float:
        return _is_one(value, int) or (isinstance(value, float) and math.isfinite(value))
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))


def _outer(shape: Any) -> Any:
    return dict if is_typeddict(shape) else get_origin(shape) or shape


def _below(field: str, key: Any) -> str:
    return f"{field}.{key}" if field else str(key)


def _describe(shape: Any) -> str:
    shapes = get_args(shape) if isinstance(shape, UnionType) else (shape,)
    return " or ".join(WORDS[_outer(one)] for one in shapes)
