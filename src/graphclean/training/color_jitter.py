"""The color jitter of SimCLR (Chen et al., ICML 2020) for a batch of images.

As in `augment`, there is a `draw_…` and an `apply_…` function, and shapes never depend on random numbers.
"""

from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from .operations import OPERATIONS, apply_operations, check_images

JITTERED, GRAYED = 0.8, 0.2
"""Fractions of images whose colors are jittered, and that are converted to gray."""
STRENGTH, HUE = 0.4, 0.1
"""Largest deviation of the brightness, contrast and saturation factors from 1, and hue shift in circles."""
JITTERS = ("brightness", "contrast", "color")


class Jitter(NamedTuple):
    """The jitter of n images."""

    operations: Tensor
    """(3, n) indices into OPERATIONS, applied in order; −1: none."""
    amounts: Tensor
    """(3, n)."""
    hue: Tensor
    """(n,) shifts of the hue, as fractions of the color circle."""
    gray: Tensor
    """(n,) indices into OPERATIONS: color, with an amount of 0, or none."""


def draw_jitter(n: int, generator: Generator) -> Jitter:
    """Sample a jitter for each of `n` images; the enhancers are in random order, followed by the hue."""
    device = generator.device
    uniform = torch.rand(n, 9, generator=generator, device=device)
    jittered = uniform[:, 0] < JITTERED
    order = uniform[:, 1:4].argsort(1).T
    hue = (2 * uniform[:, 7] - 1) * HUE
    return Jitter(
        torch.where(jittered, _places(device)[order], -1),
        1 + (2 * uniform[:, 4:7].T - 1) * STRENGTH,
        torch.where(jittered, hue, torch.zeros_like(hue)),
        torch.where(uniform[:, 8] < GRAYED, OPERATIONS.index("color"), -1),
    )


@lru_cache
def _places(device: torch.device) -> Tensor:
    """Indices of the enhancers; cached, since a copy to the device would synchronize in every step."""
    return torch.tensor([OPERATIONS.index(name) for name in JITTERS], device=device)


def apply_jitter(images: Tensor, jitter: Jitter) -> Tensor:
    """Images (uint8) with jittered colors; images of one channel change only in brightness and contrast."""
    check_images(images)
    for operations, amounts in zip(jitter.operations, jitter.amounts, strict=True):
        images = apply_operations(images, operations, amounts)
    if images.shape[1] == 1:
        return images
    return apply_operations(shift_hue(images, jitter.hue), jitter.gray, torch.zeros_like(jitter.hue))


def shift_hue(images: Tensor, shift: Tensor) -> Tensor:
    """Images (uint8, B × 3 × H × W) with the hue of all pixels shifted by a fraction of the color circle."""
    red, green, blue = images.float().unbind(1)
    value = torch.maximum(torch.maximum(red, green), blue)
    chroma = value - torch.minimum(torch.minimum(red, green), blue)
    safe = chroma.clamp(min=1)
    hue = torch.where(
        value == red,
        (green - blue) / safe,
        torch.where(value == green, (blue - red) / safe + 2, (red - green) / safe + 4),
    )
    hue = hue + 6 * shift.view(-1, 1, 1)
    channels = []
    for corner in (5, 3, 1):
        place = (corner + hue).remainder(6)
        channels.append(value - chroma * torch.minimum(place, 4 - place).clamp(0, 1))
    return torch.stack(channels, 1).round_().to(torch.uint8)
