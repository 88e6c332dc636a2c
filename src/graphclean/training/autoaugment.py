"""AutoAugment with the policy that was found for CIFAR-10 (Cubuk et al., CVPR 2019), for a batch of images.

As in `augment`, a view is a `draw_…` and an `apply_…` of it, and shapes never depend on a draw.
"""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from .operations import OPERATIONS, apply_plan, check_images, plan_operations

Part = tuple[float, str, int]
"""Probability, operation, and level from 0 to 9."""

POLICY: tuple[tuple[Part, Part], ...] = (
    ((0.1, "invert", 7), (0.2, "contrast", 6)),
    ((0.7, "rotate", 2), (0.3, "translate_x", 9)),
    ((0.8, "sharpness", 1), (0.9, "sharpness", 3)),
    ((0.5, "shear_y", 8), (0.7, "translate_y", 9)),
    ((0.5, "autocontrast", 8), (0.9, "equalize", 2)),
    ((0.2, "shear_y", 7), (0.3, "posterize", 7)),
    ((0.4, "color", 3), (0.6, "brightness", 7)),
    ((0.3, "sharpness", 9), (0.7, "brightness", 9)),
    ((0.6, "equalize", 5), (0.5, "equalize", 1)),
    ((0.6, "contrast", 7), (0.6, "sharpness", 5)),
    ((0.7, "color", 7), (0.5, "translate_x", 8)),
    ((0.3, "equalize", 7), (0.4, "autocontrast", 8)),
    ((0.4, "translate_y", 3), (0.2, "sharpness", 6)),
    ((0.9, "brightness", 6), (0.2, "color", 8)),
    ((0.5, "solarize", 2), (0.0, "invert", 3)),
    ((0.2, "equalize", 0), (0.6, "autocontrast", 0)),
    ((0.2, "equalize", 8), (0.6, "equalize", 4)),
    ((0.9, "color", 9), (0.6, "equalize", 6)),
    ((0.8, "autocontrast", 4), (0.2, "solarize", 8)),
    ((0.1, "brightness", 3), (0.7, "color", 0)),
    ((0.4, "solarize", 5), (0.9, "autocontrast", 3)),
    ((0.9, "translate_y", 9), (0.7, "translate_y", 9)),
    ((0.9, "autocontrast", 2), (0.8, "solarize", 3)),
    ((0.8, "equalize", 8), (0.1, "invert", 3)),
    ((0.7, "translate_y", 9), (0.9, "autocontrast", 1)),
)
"""Its 25 sub-policies: each is two operations in a row."""
FILL = 128
"""The gray that comes in at the edges."""
GEOMETRIC = {"shear_x": 0.3, "shear_y": 0.3, "translate_x": 150 / 331, "translate_y": 150 / 331, "rotate": 30}
"""At level 9: slope, fraction of the side, degrees; in either direction."""
ENHANCERS = ("color", "contrast", "brightness", "sharpness")
STRONGEST = 0.9
"""What an enhancer at level 9 takes from a factor of 1, or adds to it."""


class Parts(NamedTuple):
    """What is done to n images: a row for each of the two operations in a row."""

    operations: Tensor
    """(2, n) places in OPERATIONS; −1: none."""
    amounts: Tensor
    """(2, n) as `apply_operations` takes them, but translations in fractions of the side."""


def draw_autoaugment(n: int, generator: Generator) -> Parts:
    """A sub-policy for each of `n` images, and which of its operations are applied, in which direction."""
    device = generator.device
    uniform = torch.rand(n, 5, generator=generator, device=device)
    operations, probability, base, step = (column.T for column in _read_policy(device))
    chosen = (uniform[:, 0] * len(POLICY)).long()
    applied = probability[:, chosen] > uniform[:, 1:3].T
    sign = torch.where(uniform[:, 3:].T < 0.5, 1.0, -1.0)
    return Parts(torch.where(applied, operations[:, chosen], -1), base[:, chosen] + sign * step[:, chosen])


def apply_autoaugment(images: Tensor, parts: Parts) -> Tensor:
    """The images (uint8) after both operations; interpolated, and at the edges gray."""
    check_images(images)
    height, width = images.shape[2:]
    amounts = parts.amounts
    for name, side in (("translate_x", width), ("translate_y", height)):
        # Whole pixels: a shift by half a pixel would blur.
        moved = parts.operations == OPERATIONS.index(name)
        amounts = torch.where(moved, (amounts * side + 0.5).floor(), amounts)
    plan = plan_operations(parts.operations, amounts, height, width)
    for part in range(2):
        images = apply_plan(images, type(plan)(*(stage[part] for stage in plan)), fill=FILL)
    return images


@lru_cache
def _read_policy(device: torch.device) -> tuple[Tensor, ...]:
    """The policy as tables (25, 2): operation, probability, amount, and what a sign adds to the amount."""
    rows = [[_read_part(part) for part in parts] for parts in POLICY]
    operations = torch.tensor([[OPERATIONS.index(name) for name, *_ in row] for row in rows], device=device)
    numbers = torch.tensor([[part[1:] for part in row] for row in rows], dtype=torch.float64, device=device)
    return (operations, *numbers.unbind(-1))


def _read_part(part: Part) -> tuple[str, float, float, float]:
    """Operation, probability, its amount, and what a sign adds to that."""
    probability, name, level = part
    high = level / 9
    if name in GEOMETRIC:
        return name, probability, 0, high * GEOMETRIC[name]
    if name in ENHANCERS:
        return name, probability, 1, high * STRONGEST
    if name == "posterize":  # from 8 bits to 4
        return name, probability, 8 - round(8 - 4 * high), 0
    if name == "solarize":
        return name, probability, 256 - 256 * high, 0
    # To invert is to solarize from level 0; autocontrast and equalize take no amount.
    return ("solarize" if name == "invert" else name), probability, 0, 0
