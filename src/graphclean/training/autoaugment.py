"""AutoAugment with the policy found for CIFAR-10 (Cubuk et al., CVPR 2019), for batches of images.

As in `augment`, there is a `draw_…` and an `apply_…` function, and shapes never depend on random numbers.
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
"""The 25 sub-policies, each of two consecutive operations."""
FILL = 128
"""Gray level for pixels from outside the image."""
GEOMETRIC = {"shear_x": 0.3, "shear_y": 0.3, "translate_x": 150 / 331, "translate_y": 150 / 331, "rotate": 30}
"""Magnitudes at level 9, in either direction: slope, fraction of the side, degrees."""
ENHANCERS = ("color", "contrast", "brightness", "sharpness")
STRONGEST = 0.9
"""Largest deviation of an enhancement factor from 1, at level 9."""


class Parts(NamedTuple):
    """The operations for n images: one row for each of the two consecutive operations."""

    operations: Tensor
    """(2, n) indices into OPERATIONS; −1: none."""
    amounts: Tensor
    """(2, n) as in `apply_operations`, but translations as fractions of the side."""


def draw_autoaugment(n: int, generator: Generator) -> Parts:
    """Sample a sub-policy for each of `n` images, which of its operations to apply, and their direction."""
    device = generator.device
    uniform = torch.rand(n, 5, generator=generator, device=device)
    operations, probability, base, step = (column.T for column in _read_policy(device))
    chosen = (uniform[:, 0] * len(POLICY)).long()
    applied = probability[:, chosen] > uniform[:, 1:3].T
    sign = torch.where(uniform[:, 3:].T < 0.5, 1.0, -1.0)
    return Parts(torch.where(applied, operations[:, chosen], -1), base[:, chosen] + sign * step[:, chosen])


def apply_autoaugment(images: Tensor, parts: Parts) -> Tensor:
    """Apply both operations to images (uint8), with interpolation and a gray background."""
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
    """The policy as tables (25, 2): operation, probability, amount, and its term with a random sign."""
    rows = [[_read_part(part) for part in parts] for parts in POLICY]
    operations = torch.tensor([[OPERATIONS.index(name) for name, *_ in row] for row in rows], device=device)
    numbers = torch.tensor([[part[1:] for part in row] for row in rows], dtype=torch.float64, device=device)
    return (operations, *numbers.unbind(-1))


def _read_part(part: Part) -> tuple[str, float, float, float]:
    """Operation, probability, amount, and its term with a random sign."""
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
    # Inverting is solarizing from level 0; autocontrast and equalize have no amount.
    return ("solarize" if name == "invert" else name), probability, 0, 0
