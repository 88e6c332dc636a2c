"""What there is to choose from: presets, methods, detectors."""

from dataclasses import fields
from typing import Annotated

import typer

from ..config.presets import preset_purposes, read_preset
from . import display
from .loading import loading

Name = Annotated[str | None, typer.Argument(metavar="NAME", help="The one to show (default: list all).")]


def presets(name: Name = None) -> None:
    """List the presets of `train`, or show one with its reasons."""
    if name is None:
        display.show_list(preset_purposes(), "preset", "for", "All settings of one: graphclean presets NAME")
    else:
        typer.echo(read_preset(name), nl=False)


def methods(name: Name = None) -> None:
    """List the methods of `train`, or show one with its settings and their reasons."""
    with loading():
        from ..config.overrides import field_reasons
        from ..methods import load_method, method_names

    if name is None:
        titles = {known: load_method(known).info.title for known in method_names()}
        hint = "Settings of one: graphclean methods NAME; use it: --set method.name=NAME"
        display.show_list(titles, "method", "what it is", hint)
        return
    method = load_method(name)
    info, settings = method.info, method.Settings()
    facts = {
        "paper": info.paper,
        "kind": info.kind,
        "networks": str(info.networks),
        "cost": f"{info.cost:g} training passes a sample and epoch",
        "needs": ", ".join(info.needs),
        "follows": info.follows,
    }
    lines = [info.title, *(f"{what}: {told}" for what, told in facts.items() if told)]
    reasons = field_reasons(type(settings))
    for field in fields(settings):
        lines += ["", f"method.{field.name} = {getattr(settings, field.name)}", f"    {reasons[field.name]}"]
    typer.echo("\n".join(lines))


def detectors() -> None:
    """List the detectors that can tell OOD inputs, for `ood.detector`."""
    with loading():
        from ..ood.detectors import detector_names, load_detector

    titles = {name: load_detector(name).title for name in detector_names()}
    display.show_list(titles, "detector", "its score, larger is more OOD", "Use one: --set ood.detector=NAME")
