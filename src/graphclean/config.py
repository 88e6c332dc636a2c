"""One tree of frozen settings, and `--set section.name=value` on top of it."""

import difflib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, get_args, get_origin, get_type_hints

from .audit import AuditSettings
from .errors import InputError


@dataclass(frozen=True)
class Config:
    """Every setting of a run, by section. What each means stands with its section."""

    audit: AuditSettings = field(default_factory=AuditSettings)

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return asdict(self)


def apply_settings(config: Config, assignments: Sequence[str]) -> Config:
    """Apply `section.name=value` in order; an unknown name is refused with the nearest right one."""
    known = [
        f"{section.name}.{f.name}"
        for section in fields(config)
        for f in fields(section_of(config, section.name))
    ]
    for assignment in assignments:
        name, equals, text = assignment.partition("=")
        name = name.strip()
        if not equals:
            raise InputError(f"--set {assignment}: write it as section.name=value")
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}"
            raise InputError(f"--set {name}: no such setting; {hint}")
        section_name, _, key = name.partition(".")
        section = section_of(config, section_name)
        value = _parse(text.strip(), get_type_hints(type(section))[key], name)
        try:
            changed = replace(section, **{key: value})
        except ValueError as error:
            raise InputError(f"--set {assignment}: {error}") from error
        config = replace(config, **{section_name: changed})
    return config


def section_of(config: Config, name: str) -> Any:
    """A section of the tree by its name."""
    return getattr(config, name)


def _parse(text: str, kind: Any, name: str) -> Any:
    """Text as a value of the setting's type."""
    try:
        if get_origin(kind) is tuple:
            item = get_args(kind)[0]
            return tuple(item(part) for part in text.strip("()[]").split(",") if part.strip())
        if get_origin(kind) is Literal and text not in get_args(kind):
            raise ValueError(text)
        return text if get_origin(kind) is Literal else kind(text)
    except ValueError as error:
        raise InputError(f"--set {name}: {text!r} is not {_describe(kind)}") from error


def _describe(kind: Any) -> str:
    if get_origin(kind) is tuple:
        return "a list of whole numbers such as 10,20,50"
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    return {int: "a whole number", float: "a number"}.get(kind, str(kind))
