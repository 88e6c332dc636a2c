"""One tree of frozen settings; presets and `--set section.name=value` on top of it."""

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

from .audit import AuditSettings
from .choices import read_preset
from .errors import InputError, suggest
from .graph import GraphSettings
from .learn.settings import LearnSettings
from .ood import OodSettings


@dataclass(frozen=True)
class Config:
    """Every setting of a run, by section. What each means stands with its section."""

    audit: AuditSettings = field(default_factory=AuditSettings)
    """Verdicts."""
    graph: GraphSettings = field(default_factory=GraphSettings)
    """The graph step of training, every epoch."""
    learn: LearnSettings = field(default_factory=LearnSettings)
    """Training."""
    ood: OodSettings = field(default_factory=OodSettings)
    """The detector of a training run."""

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return asdict(self)


def load_preset(name: str, start: Config | None = None) -> Config:
    """A preset as settings: what it does not name is as in `start`, or keeps its default."""
    return _from_tree(tomllib.loads(read_preset(name)), f"preset {name}", start)


def recorded_settings(tree: dict[str, dict[str, Any]], where: str) -> Config:
    """The settings that `to_dict` gave, read back from JSON."""
    return _from_tree(tree, where)


def _from_tree(tree: dict[str, dict[str, Any]], where: str, start: Config | None = None) -> Config:
    config = start if start is not None else Config()
    for section, values in tree.items():
        for key, value in values.items():
            config = _assign(config, f"{section}.{key}", value, f"{where}: {section}.{key}")
    return config


def apply_settings(config: Config, assignments: Sequence[str], sections: Sequence[str] = ()) -> Config:
    """Apply `section.name=value` in order; an unknown name is refused with the nearest right one.

    With `sections`, only theirs are known: a setting that would have no effect is an error too.
    """
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        if not equals:
            raise InputError(f"--set {assignment}: write it as section.name=value")
        config = _assign(config, name.strip(), text.strip(), f"--set {name.strip()}", sections)
    return config


def change_settings(config: Config, changes: Mapping[str, Any]) -> Config:
    """The same from Python: `{"section.name": value}`."""
    for name, value in changes.items():
        config = _assign(config, name, value, name)
    return config


def differing_settings(config: Config, base: Config) -> dict[str, Any]:
    """What `change_settings` needs to make `config` of `base`."""
    before = base.to_dict()
    return {
        f"{section}.{key}": value
        for section, values in config.to_dict().items()
        for key, value in values.items()
        if value != before[section][key]
    }


def _assign(config: Config, name: str, value: Any, where: str, sections: Sequence[str] = ()) -> Config:
    parts = [part.name for part in fields(config) if not sections or part.name in sections]
    known = [f"{part}.{setting.name}" for part in parts for setting in fields(getattr(config, part))]
    if name not in known:
        raise InputError(f"{where}: no such setting; {suggest(name, known)}")
    section_name, _, key = name.partition(".")
    section = getattr(config, section_name)
    kind = get_type_hints(type(section))[key]
    try:
        parsed = _parse(value, kind)
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: {value!r} is not {_describe(kind)}") from error
    try:
        changed = replace(section, **{key: parsed})
    except ValueError as error:
        raise InputError(f"{where}={value}: {error}") from error
    return replace(config, **{section_name: changed})


def _parse(value: Any, kind: Any) -> Any:
    """Text, or a TOML value, as a value of the setting's type."""
    if get_origin(kind) is tuple:
        parts = value.strip("()[]").split(",") if isinstance(value, str) else value
        return tuple(get_args(kind)[0](part) for part in parts if str(part).strip())
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
    return {int: "a whole number", float: "a number", bool: "true or false"}.get(kind, "text")
