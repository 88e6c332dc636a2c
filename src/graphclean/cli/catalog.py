"""List and describe presets, methods and detectors."""

from __future__ import annotations

import json
from dataclasses import asdict
from textwrap import indent
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..config.presets import preset_purposes, read_preset
from . import display
from .loading import loading
from .options import Json

if TYPE_CHECKING:
    from ..ood.detector import Detector
    from ..training.method import Method

Name = Annotated[str | None, typer.Argument(metavar="NAME", help="Name of one to show (default: list all).")]


def presets(name: Name = None) -> None:
    """List the presets of `train`, or show one with its settings and their reasons."""
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
    rows = [{**row, "title": "; needs ".join([row["title"], *row["needs"]])} for row in found]
    hint = (
        "cost: training passes per sample and epoch\n"
        "Paper and settings of one: graphclean methods NAME\n"
        "Train with it: graphclean train --method NAME"
    )
    display.show_facts(rows, {"name": "method", "cost": "cost"}, "what it is", hint)


def detectors(name: Name = None, as_json: Json = False) -> None:
    """List the OOD detectors of `train`, or show one with its parameters."""
    with loading():
        from ..ood.detectors import detector_names, load_detector

    if name is not None:
        described = _detector_facts(load_detector(name))
        typer.echo(json.dumps(described, indent=2) if as_json else _fact_lines(described))
        return
    found = [_detector_facts(load_detector(known)) for known in detector_names()]
    if as_json:
        typer.echo(json.dumps(found, indent=2))
        return
    about = "its score: larger is more OOD"
    hint = (
        "cost: multiplications for d features and N samples, or additional passes\n"
        "Paper and parameters of one: graphclean detectors NAME\n"
        "Train with it: graphclean train --detector NAME"
    )
    rows = [{**row, "needs": row["needs"][0]} for row in found]
    display.show_facts(rows, {"name": "detector", "needs": "needs", "cost": "cost"}, about, hint)


def _detector_facts(detector: type[Detector]) -> dict[str, Any]:
    from ..ood.detectors import list_needs

    facts = {key: getattr(detector, key) for key in ("name", "title", "paper", "cost", "choices")}
    return {**facts, "needs": list_needs(detector), "export": "no" if detector.needs == "inputs" else "ONNX"}


def _method_facts(method: type[Method]) -> dict[str, Any]:
    return {**asdict(method.info), "needs": list(method.info.needs), "detector": method.detector}


def _describe_method(method: type[Method]) -> dict[str, Any]:
    """The facts about a method, and its settings."""
    from ..config.overrides import field_reasons

    reasons = field_reasons(method.Settings)
    settings = {
        name: {"default": value, "reason": reasons.get(name, "")}
        for name, value in asdict(method.Settings()).items()
    }
    return {**_method_facts(method), "settings": settings}


def _method_text(described: dict[str, Any]) -> str:
    lines = [
        _fact_lines({**described, "cost": f"{described['cost']:g} training passes per sample and epoch"})
    ]
    for name, setting in described["settings"].items():
        lines += ["", f"method.{name} = {setting['default']}", indent(setting["reason"], "    ")]
    return "\n".join(lines)


def _fact_lines(facts: dict[str, Any]) -> str:
    """The title, and a line for each non-empty fact except settings and names, which are shown elsewhere."""
    lines = [facts["title"]]
    for what, fact in facts.items():
        if fact and what not in ("name", "title", "settings"):
            lines.append(f"{what}: {', '.join(fact) if isinstance(fact, list) else fact}")
    return "\n".join(lines)
