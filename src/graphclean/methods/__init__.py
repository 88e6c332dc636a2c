"""Methods by name, each in a module of its own that is loaded when asked for."""

from dataclasses import asdict, replace
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from ..config import Config, MethodChoice
from ..config.overrides import read_settings
from ..errors import InputError, suggest
from ..training.method import Method

BUILT_IN = {
    "ngc": "graphclean.methods.ngc:NGC",
    "cross_entropy": "graphclean.methods.cross_entropy:CrossEntropy",
    "sampled_labels": "graphclean.methods.sampled_labels:SampledLabels",
    "elr": "graphclean.methods.elr:ELR",
}
ENTRY_POINTS = "graphclean.methods"
"""The group in which other packages register theirs."""


def method_names() -> list[str]:
    """All that there are: ours, then those of other packages."""
    return [*BUILT_IN, *sorted(entry_points(group=ENTRY_POINTS).names - BUILT_IN.keys())]


def load_method(name: str) -> type[Method]:
    """The class of a method."""
    if name in BUILT_IN:
        module, _, made = BUILT_IN[name].partition(":")
        found: Any = getattr(import_module(module), made)
    else:
        theirs = entry_points(group=ENTRY_POINTS, name=name)
        if not theirs:
            raise InputError(f"method.name={name}: no such method; {suggest(name, method_names())}")
        found = next(iter(theirs)).load()
    loaded: type[Method] = found
    return loaded


def build_method(config: Config) -> Method:
    """The method that the settings name, with its own settings checked."""
    made = load_method(config.method.name)
    return made(read_settings(made.Settings, config.method.settings, "method"), config.graph)


def complete_settings(config: Config) -> Config:
    """The same with every setting of its method, checked; one of another method is refused."""
    made = build_method(config)
    return replace(config, method=MethodChoice(config.method.name, asdict(made.settings)))
