"""Choices and presets for the command line; separate so that `--help` does not import torch."""

import re
from enum import StrEnum
from importlib.resources import files
from itertools import takewhile
from typing import Any

from ..errors import InputError, suggest

ENOUGH = 20_000
"""From this many photos on, a whole network is trained if there is a GPU; below it, arrays of images get few
epochs.

A judgment, not a measurement. Pretrained features put nearly 90 % of the labels right on 2,400 images of
CIFAR-10 (40 % noise); a network trained from scratch, 93 % on 50,000 (50 % noise).
"""


class DeviceName(StrEnum):
    """Devices to choose from."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


class FormatName(StrEnum):
    """Tools that verdicts can be exported to."""

    label_studio = "label-studio"
    fiftyone = "fiftyone"
    cleanlab = "cleanlab"
    hf = "hf"


class NeighborSearch(StrEnum):
    """Neighbor search algorithms."""

    exact = "exact"
    approx = "approx"


def preset_names() -> list[str]:
    """The presets that ship with the package."""
    return sorted(path.name.removesuffix(".toml") for path in _presets() if path.name.endswith(".toml"))


def read_preset(name: str) -> str:
    """The text of a preset, with its reasons."""
    names = preset_names()
    if name not in names:
        raise InputError(f"no preset {name}; {suggest(name, names)}")
    return files(__package__).joinpath("presets", f"{name}.toml").read_text(encoding="utf-8")


def preset_purposes() -> dict[str, str]:
    """Every preset with the first sentence of its comment."""
    found = {}
    for name in preset_names():
        lines = takewhile(lambda line: line.startswith("#"), read_preset(name).splitlines())
        comment = " ".join(line.lstrip("# ") for line in lines)
        found[name] = re.split(r"(?<=\.)\s", comment)[0]
    return found


def _presets() -> Any:
    return files(__package__).joinpath("presets").iterdir()
