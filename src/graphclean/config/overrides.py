"""One tree of immutable settings, with presets and `--set section.name=value` on top."""

import ast
import inspect
import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import pairwise
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ..errors import InputError, arg, suggest
from .presets import read_preset
from .settings import PER_DATA_SET, Config, MethodChoice

METHOD, DETECTOR = "method.name", "ood.detector"
T = TypeVar("T")


def load_preset(name: str, start: Config | None = None) -> Config:
    """Load a preset; settings that it does not name are taken from `start`, or keep their defaults."""
    return _from_tree(tomllib.loads(read_preset(name)), f"preset {name}", start)


def left_open(name: str) -> tuple[str, ...]:
    """Settings that a preset leaves to be chosen for each data set, as the paper's presets do."""
    named = named_settings(name)
    return tuple(setting for setting in PER_DATA_SET if setting not in named)


def named_settings(preset: str) -> set[str]:
    """The settings that a preset names, as `section.name`."""
    tree = tomllib.loads(read_preset(preset))
    return {f"{section}.{key}" for section, values in tree.items() for key in values}


def recorded_settings(tree: dict[str, dict[str, Any]], where: str) -> Config:
    """Restore the settings that `to_dict` wrote to JSON."""
    return _from_tree(tree, where)


def _from_tree(tree: dict[str, dict[str, Any]], where: str, start: Config | None = None) -> Config:
    config = start if start is not None else Config()
    for section, values in tree.items():
        for name, value in _method_first((f"{section}.{key}", value) for key, value in values.items()):
            config = _assign(config, name, value, f"{where}: {name}")
    return config


def apply_settings(config: Config, assignments: Sequence[str], sections: Sequence[str] = ()) -> Config:
    """Apply `section.name=value` in order; an unknown name is refused with the nearest valid one.

    With `sections`, only settings of these are accepted: one that would have no effect is an error, too.
    """
    pairs = []
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise InputError(f"{assignment}: write settings as section.name=value")
        pairs.append((name.strip(), text.strip()))
    for name, value in _method_first(pairs):
        config = _assign(config, name, value, name, sections)
    return config


def with_choice(name: str, option: str, value: str | None, settings: Sequence[str]) -> list[str]:
    """Settings with one that has an `option` of its own, where that is given; both may not differ."""
    if value is None:
        return list(settings)
    for setting in settings:
        key, _, other = setting.partition("=")
        if key.strip() == name and other.strip() != value:
            raise InputError(f"{arg(option)} {value}, and the setting {setting} another; drop one")
    return [f"{name}={value}", *settings]


def change_settings(config: Config, changes: Mapping[str, Any]) -> Config:
    """The same from Python: `{"section.name": value}`."""
    for name, value in _method_first(changes.items()):
        config = _assign(config, name, value, name)
    return config


def _method_first(pairs: Iterable[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """Put the method's name first: the other settings of the section depend on it."""
    return sorted(pairs, key=lambda pair: pair[0] != METHOD)


def differing_settings(config: Config, base: Config) -> dict[str, Any]:
    """The arguments of `change_settings` that turn `base` into `config`."""
    before = base.to_dict()
    return {
        f"{section}.{key}": value
        for section, values in config.to_dict().items()
        for key, value in values.items()
        if key not in before[section] or value != before[section][key]
    }


def read_settings(kind: type[T], values: Mapping[str, Any], section: str) -> T:
    """Plain values as a dataclass of settings; an unknown name is refused with the nearest valid one."""
    made = kind()
    for name, value in values.items():
        made = _set(made, name, value, f"{section}.{name}", section)
    return made


def _assign(config: Config, name: str, value: Any, where: str, sections: Sequence[str] = ()) -> Config:
    parts = [part.name for part in fields(config) if not sections or part.name in sections]
    section, _, key = name.partition(".")
    if section == "method" and section in parts and key:
        if key == "name" and not isinstance(value, str):
            raise InputError(f"{where}: not the name of a method")
        return replace(config, method=_assign_method(config.method, key, value))
    if section not in parts or key not in {one.name for one in fields(getattr(config, section))}:
        known = [f"{part}.{one.name}" for part in parts for one in fields(getattr(config, part))]
        raise InputError(f"{where}: no such setting; {suggest(name, known)}")
    return replace(config, **{section: _set(getattr(config, section), key, value, where, section)})


def _assign_method(chosen: MethodChoice, key: str, value: Any) -> MethodChoice:
    """Set the method; settings of the previous method are dropped, and the method itself checks its own."""
    if key != "name":
        return replace(chosen, settings={**chosen.settings, key: value})
    return chosen if value == chosen.name else MethodChoice(str(value))


def _set(settings: T, key: str, value: Any, where: str, section: str) -> T:
    known = [f"{section}.{one.name}" for one in fields(settings)]  # type: ignore[arg-type]
    if f"{section}.{key}" not in known:
        raise InputError(f"{where}: no such setting; {suggest(f'{section}.{key}', known)}")
    kind = get_type_hints(type(settings))[key]
    try:
        parsed = _parse(value, kind)
    except (TypeError, ValueError) as error:
        shown = "null" if value is None else repr(value)
        raise InputError(f"{where}: {shown} is not {_describe(kind)}") from error
    try:
        return replace(settings, **{key: parsed})  # type: ignore[type-var]
    except ValueError as error:
        raise InputError(f"{where}={value}: {error}") from error


def _parse(value: Any, kind: Any) -> Any:
    """Convert text or a TOML value to the setting's type."""
    if value is None:
        raise ValueError(value)
    if get_origin(kind) is tuple:
        parts = value.strip("()[]").split(",") if isinstance(value, str) else value
        return tuple(get_args(kind)[0](part) for part in parts if str(part).strip())
    if get_origin(kind) is Union:
        number, auto = get_args(kind)
        return value if value in get_args(auto) else _parse(value, number)
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise ValueError(value)
        return value
    if kind is bool:
        if str(value).lower() not in ("true", "false"):
            raise ValueError(value)
        return str(value).lower() == "true"
    if kind is int and isinstance(value, float):
        raise ValueError(value)
    if kind in (int, float) and str(value) in ("True", "False"):
        raise ValueError(value)  # to Python, truth values are numbers
    parsed = kind(value)
    if kind is float and not math.isfinite(parsed):
        raise ValueError(value)
    return parsed


def _describe(kind: Any) -> str:
    if get_origin(kind) is tuple:
        return "a list of whole numbers such as 10,20,50"
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    if get_origin(kind) is Union:
        return " or ".join([_describe(get_args(kind)[0]), *get_args(get_args(kind)[1])])
    return {int: "a whole number", float: "a number", bool: "true or false"}.get(kind, "text")


def field_reasons(kind: type) -> dict[str, str]:
    """The docstring of each field of a settings dataclass, inherited fields first."""
    reasons = {}
    for made in filter(is_dataclass, reversed(kind.__mro__)):
        (definition,) = ast.parse(inspect.getsource(made)).body
        assert isinstance(definition, ast.ClassDef)
        for field, text in pairwise(definition.body):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(reason))):
                    reasons[name] = inspect.cleandoc(reason)
    return reasons
