"""The pages' descriptions of settings, presets and commands, generated from the package when the site is
built.

A page requests one with a comment on its own line: `<!-- made: settings audit -->`, `<!-- made: methods -->`,
`<!-- made: detectors -->`, `<!-- made: presets -->` or `<!-- made: commands -->`.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any

import typer

from graphclean.bench.markdown import markdown_table
from graphclean.cli.app import app
from graphclean.config import Config
from graphclean.config.overrides import field_reasons
from graphclean.config.presets import preset_purposes, read_preset
from graphclean.methods import OWN_METHODS, load_method
from graphclean.ood.detectors import OWN_DETECTORS, list_needs, load_detector

REQUEST = re.compile(r"^<!-- made: (\w+)((?: [\w-]+)*) -->$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """mkdocs hook: a page with all requested parts inserted."""
    return REQUEST.sub(lambda match: MAKERS[match[1]](*match[2].split()), markdown)


def settings_table(section: str, method: str | None = None) -> str:
    """The settings of a section or a method: name, default and reason."""
    defaults = getattr(Config(), section) if method is None else load_method(method).Settings()
    reasons = field_reasons(type(defaults))
    rows = [
        (f"`{section}.{name}`", f"`{_as_typed(getattr(defaults, name))}`", reasons[name])
        for name in (field.name for field in fields(defaults))
    ]
    return markdown_table(("setting", "default", "what it does, and why"), rows)


def methods_list() -> str:
    """Every method of the package with its settings; shared settings are listed once."""
    parts, tables = [], dict[type, str]()
    for name in OWN_METHODS:
        info, settings = load_method(name).info, load_method(name).Settings
        needs = f" Needs {' and '.join(info.needs)}." if info.needs else ""
        facts = [info.paper, f"Follows {info.follows}." if info.follows and info.paper else info.follows]
        about = " ".join(f"{fact.removesuffix('.')}." for fact in facts if fact) + needs
        same = tables.get(settings)
        table = f"Settings as of `{same}`." if same else settings_table("method", name)
        tables.setdefault(settings, name)
        parts.append(f"### {info.title}: `{name}`\n\n{about.strip()}\n\n{table}")
    return "\n\n".join(parts)


def detectors_list() -> str:
    """Every detector of the package: its score, its inputs, and how its parameters are chosen."""
    rows = [
        (
            f"`{made.name}`",
            f"{made.title}. {made.paper}.",
            ", ".join(list_needs(made)),
            made.cost,
            made.choices,
        )
        for made in map(load_detector, OWN_DETECTORS)
    ]
    return markdown_table(("detector", "score, and its paper", "reads", "cost", "parameters"), rows)


def presets_list() -> str:
    """The source of every preset."""
    parts = []
    for name in preset_purposes():
        lines = read_preset(name).strip()
        parts.append(f"### {name}\n\n```toml\n{lines}\n```")
    return "\n\n".join(parts)


def commands_list() -> str:
    """Every command with its arguments and options."""
    parts = []
    for name, command in walk("graphclean", typer.main.get_command(app)):
        about = inspect.cleandoc(command.help or "")
        rows = [(_named(parameter), parameter.help or "") for parameter in _shown(command)]
        table = markdown_table(("argument or option", "meaning"), rows) if rows else ""
        parts.append(f"## {name}\n\n{about}\n\n{table}".strip())
    return "\n\n".join(parts)


MAKERS: dict[str, Callable[..., str]] = {
    "settings": settings_table,
    "methods": methods_list,
    "detectors": detectors_list,
    "presets": presets_list,
    "commands": commands_list,
}


def walk(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """All commands, excluding groups."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
        return
    for word, child in inner.items():
        yield from walk(f"{name} {word}", child)


def _shown(command: Any) -> list[Any]:
    return [p for p in command.params if not getattr(p, "hidden", False) and p.name != "help"]


def _named(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        text = (parameter.metavar or parameter.name).upper()
        return f"`{text if parameter.required else f'[{text}]'}`"
    return ", ".join(f"`{option}`" for option in parameter.opts)


def _as_typed(value: Any) -> str:
    """A value in the syntax of `--set`."""
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
