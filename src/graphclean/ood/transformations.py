"""Flips, shifts and rotations of square images, which networks learn to distinguish."""

import torch
from torch import Tensor

from ..errors import InputError

ROTATIONS = 4
"""Multiples of 90°."""
TRANSFORMATIONS = 2 * 3 * 3 * ROTATIONS
"""A flip or none, a shift in either direction or none along each axis, and a rotation."""
SHIFT = 4
"""The shift is the side divided by this: 8 of 32 pixels."""


def check_square(images: Tensor) -> None:
    """Refuse images whose shape a rotation by 90° changes."""
    if images.shape[2] != images.shape[3]:
        size = "×".join(map(str, images.shape[2:]))
        raise InputError(f"rotations by 90° need square images, not {size} pixels; resize or pad them")


def rotate_all(images: Tensor) -> Tensor:
    """All images (B, C, H, H) unrotated, then all rotated by 90°, by 180°, and by 270°."""
    check_square(images)
    return torch.cat([images.rot90(turns, (2, 3)) for turns in range(ROTATIONS)])


def transform(images: Tensor, which: Tensor) -> Tensor:
    """Transform each image (B, C, H, H) by its number in `which`: flip, then shift, then rotate.

    Shifts fill up with the image's own reflection. Number 0 is the identity.
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
    # Position of each pixel of the result before the rotation, then before the shift and the flip.
    y, x = rows, columns
    for turn, before in enumerate(((columns, back_rows), (back_rows, back_columns), (back_columns, rows)), 1):
        y, x = (torch.where(turns == turn, then, now) for then, now in zip(before, (y, x), strict=True))
    y, x = (_reflect(at + _signed(by) * step, side) for at, by in ((y, down), (x, across)))
    x = torch.where(mirrored > 0, side - 1 - x, x)
    index = (y * side + x).flatten(1).unsqueeze(1).expand(-1, images.shape[1], -1)
    return images.flatten(2).gather(2, index).view(images.shape)


def _signed(by: Tensor) -> Tensor:
    """Map 0, 1 and 2 to 0, 1 and −1."""
    return torch.where(by == 2, -1, by)


def _reflect(at: Tensor, side: int) -> Tensor:
    """Reflect positions outside the image to its inside."""
    at = at.abs()
    return torch.where(at >= side, 2 * (side - 1) - at, at)
