"""What there is to choose from: presets, methods, detectors."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..config.presets import preset_purposes, read_preset
from . import display
from .loading import loading
from .options import Json

if TYPE_CHECKING:
    from ..training.method import Method

Name = Annotated[str | None, typer.Argument(metavar="NAME", help="The one to show (default: list all).")]


def presets(name: Name = None) -> None:
    """List the presets of `train`, or show one with its reasons."""
    if name is None:
        display.show_list(preset_purposes(), "preset", "for", "All settings of one: graphclean presets NAME")
    else:
        typer.echo(read_preset(name), nl=False)


def methods(name: Name = None, as_json: Json = False) -> None:
    """List the methods of `train`, or show one with its settings and their reasons."""
    with loading():
        from ..methods import load_method, method_names

    if name is not None:
        described = _describe_method(load_method(name))
        typer.echo(json.dumps(described, indent=2) if as_json else _method_text(described))
        return
    found = [_method_facts(load_method(known)) for known in method_names()]
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    hint = "Settings of one: graphclean methods NAME; use it: --set method.name=NAME"
    display.show_facts(found, {"name": "method", "cost": "cost", "needs": "needs"}, "what it is", hint)


def detectors(as_json: Json = False) -> None:
    """List the detectors that can tell OOD inputs, for `ood.detector`."""
    with loading():
        from ..ood.detectors import detector_names, load_detector

    found = [
        {key: getattr(made, key) for key in ("name", "title", "paper", "needs")}
        for made in map(load_detector, detector_names())
    ]
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    about, hint = "its score: larger is more OOD", "Use one: --set ood.detector=NAME"
    display.show_facts(found, {"name": "detector", "needs": "needs"}, about, hint)


def _method_facts(method: type[Method]) -> dict[str, Any]:
    return {**asdict(method.info), "needs": list(method.info.needs), "detector": method.detector}


def _describe_method(method: type[Method]) -> dict[str, Any]:
    """What there is to know of a method, and its settings."""
    from ..config.overrides import field_reasons

    reasons = field_reasons(method.Settings)
    settings = {
        name: {"default": value, "reason": reasons.get(name, "")}
        for name, value in asdict(method.Settings()).items()
    }
    return {**_method_facts(method), "settings": settings}


def _method_text(described: dict[str, Any]) -> str:
    facts = {
        "paper": described["paper"],
        "kind": described["kind"],
        "networks": described["networks"],
        "cost": f"{described['cost']:g} training passes a sample and epoch",
        "needs": ", ".join(described["needs"]),
        "detector": described["detector"],
        "follows": described["follows"],
    }
    lines = [described["title"], *(f"{what}: {fact}" for what, fact in facts.items() if fact)]
    for name, setting in described["settings"].items():
        lines += ["", f"method.{name} = {setting['default']}", f"    {setting['reason']}"]
    return "\n".join(lines)
