"""Flips, shifts and rotations of square images, which networks learn to tell apart."""

import torch
from torch import Tensor

from ..errors import InputError

ROTATIONS = 4
"""By quarter turns."""
TRANSFORMATIONS = 2 * 3 * 3 * ROTATIONS
"""A flip or none, a shift or none along each axis and to either side, and a rotation."""
SHIFT = 4
"""The shift is a side over this: 8 of 32 pixels."""


def check_square(images: Tensor) -> None:
    """Refuse what a quarter turn changes the shape of."""
    if images.shape[2] != images.shape[3]:
        size = "×".join(map(str, images.shape[2:]))
        raise InputError(f"rotations by 90° need square images, not {size} pixels; resize or pad them")


def rotate_all(images: Tensor) -> Tensor:
    """All images (B, C, H, H) as they are, then all turned by 90°, by 180°, and by 270°."""
    check_square(images)
    return torch.cat([images.rot90(turns, (2, 3)) for turns in range(ROTATIONS)])


def transform(images: Tensor, which: Tensor) -> Tensor:
    """Each image (B, C, H, H) by the transformation of its number: mirrored, then shifted, then turned.

    A shift brings in the image's own reflection. Number 0 leaves it as it is.
    """
    check_square(images)
    side = images.shape[2]
    step = side // SHIFT
    if not step:
        raise InputError(f"shifts by a quarter of the side need images of {SHIFT}×{SHIFT} pixels or more")
    place = torch.arange(side, device=images.device)
    turns, across, down, mirrored = (
        part.view(-1, 1, 1) for part in (which % 4, which // 4 % 3, which // 12 % 3, which // 36)
    )
    rows, columns = place.view(1, -1, 1), place.view(1, 1, -1)
    back_rows, back_columns = side - 1 - rows, side - 1 - columns
    # Where each pixel of the result lay before the rotation, before the shift and before the flip.
    y, x = rows, columns
    for turn, before in enumerate(((columns, back_rows), (back_rows, back_columns), (back_columns, rows)), 1):
        y, x = (torch.where(turns == turn, then, now) for then, now in zip(before, (y, x), strict=True))
    y, x = (_reflect(at + _signed(by) * step, side) for at, by in ((y, down), (x, across)))
    x = torch.where(mirrored > 0, side - 1 - x, x)
    index = (y * side + x).flatten(1).unsqueeze(1).expand(-1, images.shape[1], -1)
    return images.flatten(2).gather(2, index).view(images.shape)


def _signed(by: Tensor) -> Tensor:
    """0, 1 and −1 of 0, 1 and 2."""
    return torch.where(by == 2, -1, by)


def _reflect(at: Tensor, side: int) -> Tensor:
    """Places outside the image as those inside that mirror them."""
    at = at.abs()
    return torch.where(at >= side, 2 * (side - 1) - at, at)
