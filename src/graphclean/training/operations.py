"""Pillow's operations for a batch of images, with an operation per image, on the images' device.

Images are uint8 (B, C, H, W) with C = 1 or 3. Shapes never depend on the operations, and nothing synchronizes
with the host.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import grid_sample

OPERATIONS = (
    "autocontrast",
    "equalize",
    "posterize",
    "rotate",
    "solarize",
    "shear_x",
    "shear_y",
    "translate_x",
    "translate_y",
    "color",
    "contrast",
    "brightness",
    "sharpness",
)
"""The operations by their published names; they are represented by their index here.

Their amounts are: the number of bits that posterize drops, the level from which solarize inverts, degrees of
a counterclockwise rotation, the slope of a shear, the pixels of a translation, and the factor of an enhancer.
"""

GRAY = (19595 / 65536, 38470 / 65536, 7471 / 65536)
"""Weights of red, green and blue in Pillow's gray; sums of them are exact in single precision."""


def apply_operations(images: Tensor, operations: Tensor, amounts: Tensor, *, fill: int = 0) -> Tensor:
    """Apply one operation per image, by index in OPERATIONS (−1: none), with Pillow's result for that amount.

    Pixels from outside the image get the level `fill`.
    """
    check_images(images)
    return apply_plan(images, plan_operations(operations, amounts, *images.shape[2:]), fill=fill)


def check_images(images: Tensor) -> None:
    """Refuse images that the operations don't support."""
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3):
        raise ValueError(
            f"operations need uint8 images (B, 1 or 3, H, W), not {images.dtype} {tuple(images.shape)}"
        )
    if min(images.shape[2:]) < 3:
        raise ValueError(f"operations need images of 3×3 pixels or more, not {tuple(images.shape[2:])}")


class Plan(NamedTuple):
    """Parameters of one operation per sample, as far as they don't depend on the pixels.

    There are three consecutive stages: tone tables, warp, and blend. Each stage is the identity for samples
    with operations of other stages, so that all samples pass through all stages without indexing.
    """

    table: Tensor
    """(…, 1, 256) of posterize and solarize; otherwise the identity."""
    contrast: Tensor
    """(…, 1) whether the tone factor is relative to the mean gray rather than 0."""
    tone_factor: Tensor
    """(…, 1, 1) of contrast and brightness; otherwise 1."""
    autocontrast: Tensor
    equalize: Tensor
    grid: Tensor
    """(…, H, W, 2) source position of each pixel, as in `grid_sample`."""
    inside: Tensor
    """(…, 1, H, W) whether that position is inside the image."""
    color: Tensor
    """(…, 1, 1, 1) whether to blend with the gray image rather than the smoothed one."""
    factor: Tensor
    """(…, 1, 1, 1) of color and sharpness; otherwise 1."""


def plan_operations(operations: Tensor, amounts: Tensor, height: int, width: int) -> Plan:
    """The plan for images of a size; amounts are in double precision, as in Python."""
    device = operations.device
    drawn = operations.unsqueeze(-1) == torch.arange(len(OPERATIONS), device=device)
    chosen = dict(zip(OPERATIONS, drawn.unbind(-1), strict=True))
    amounts = amounts.double()

    def amount(name: str, otherwise: float = 0) -> Tensor:
        return torch.where(chosen[name], amounts, otherwise)

    ramp = torch.arange(256, device=device, dtype=torch.int32)
    inverted = ramp >= amount("solarize", 256).unsqueeze(-1)
    dropped = amount("posterize").int().unsqueeze(-1)
    table = (torch.where(inverted, 255 - ramp, ramp) >> dropped) << dropped

    factor, one = amounts.float(), torch.ones((), device=device)
    tone_factor = torch.where(chosen["contrast"] | chosen["brightness"], factor, one)
    blend_factor = torch.where(chosen["color"] | chosen["sharpness"], factor, one)

    angle = amount("rotate") * (-math.pi / 180)
    shear_x, shear_y = amount("shear_x") * (height / width), amount("shear_y") * (width / height)
    across, down = amount("translate_x") * (2 / width), amount("translate_y") * (2 / height)
    # Coordinates run from −1 to 1 over the image; Pillow shears from the corner, rotates around the center.
    cos, sin = angle.cos(), angle.sin()
    x_from = (cos, torch.add(shear_x, sin, alpha=height / width), shear_x + across)
    y_from = (torch.add(shear_y, sin, alpha=-width / height), cos, shear_y + down)
    affine = torch.stack([*x_from, *y_from], -1).float()[..., None, None, :]
    x, y = (
        torch.linspace(1 / n - 1, 1 - 1 / n, n, dtype=torch.float64, device=device).float()
        for n in (width, height)
    )
    rows = torch.addcmul(affine[..., 2::3], affine[..., 1::3], y.view(-1, 1, 1))
    grid = torch.addcmul(rows, affine[..., ::3], x.view(-1, 1))
    inside = grid.abs() < 1
    return Plan(
        table.float().unsqueeze(-2),
        chosen["contrast"].unsqueeze(-1),
        tone_factor[..., None, None],
        chosen["autocontrast"][..., None, None],
        chosen["equalize"][..., None, None],
        grid,
        (inside[..., 0] & inside[..., 1]).unsqueeze(-3),
        chosen["color"][..., None, None, None],
        blend_factor[..., None, None, None],
    )


def apply_plan(images: Tensor, plan: Plan, *, fill: int = 0) -> Tensor:
    """Apply tone, warp and blend to all samples, with a single clamp at the end."""
    gray = _gray(images)
    index = images.flatten(2).long()
    # Pillow truncates interpolated values to integers; the slack allows for rounding of the coordinates.
    table = _tone_table(images, index, gray, plan) + max(images.shape[2:]) * 2**-14
    toned = table.gather(2, index).view(images.shape)
    sampled = grid_sample(toned, plan.grid, mode="bilinear", padding_mode="border", align_corners=False)
    warped = sampled.mul_(plan.inside).floor_()
    if fill:
        warped = warped.add_(~plan.inside, alpha=fill)
    other = torch.where(plan.color, gray, _smooth(images))
    return (warped - other).mul_(plan.factor).add_(other).clamp_(0, 255).to(torch.uint8)


def _gray(images: Tensor) -> Tensor:
    """Pillow's gray image, (B, 1, H, W), integer levels as float32."""
    if images.shape[1] == 1:
        return images.float()
    gray = (images[:, :1] * GRAY[0]).add_(images[:, 1:2], alpha=GRAY[1]).add_(images[:, 2:], alpha=GRAY[2])
    return gray.add_(0.5).floor_()


def _smooth(images: Tensor) -> Tensor:
    """Pillow's SMOOTH filter: five times the pixel plus its neighbors, over 13; the border is unchanged."""
    short = images.short()
    three = (short[..., :-2, :] + short[..., 1:-1, :]).add_(short[..., 2:, :])
    nine = (three[..., :-2] + three[..., 1:-1]).add_(three[..., 2:])
    smooth = images.float()
    smooth[..., 1:-1, 1:-1] = nine.add_(short[..., 1:-1, 1:-1], alpha=4).div(13).round_()
    return smooth


def _tone_table(images: Tensor, index: Tensor, gray: Tensor, plan: Plan) -> Tensor:
    """The tone operations as one table per sample and channel, (B, C, 256): integers, not yet clamped."""
    pixels = index.shape[2]
    mean = (gray.flatten(1).sum(1, keepdim=True, dtype=torch.float64) / pixels).add_(0.5).floor_()
    center = (mean * plan.contrast).float().unsqueeze(2)
    tone = (plan.table - center) * plan.tone_factor + center

    # A stretch from 0 to 255 is the identity. In double precision and in this order, as in Pillow: levels are
    # truncated, not rounded, and PyTorch divides a number by a tensor via the reciprocal. The extremes are
    # those of the int64 copy, since compiled for a CPU the minimum of uint8 is always 0.
    low, high = torch.aminmax(index, dim=2, keepdim=True)
    alone = (high == low) | ~plan.autocontrast
    spread = torch.where(alone, 255, high.double() - low.double())
    scale = torch.full_like(spread, 255) / spread
    offset = scale * torch.where(alone, 0, low.double())
    tone = (tone * scale - offset).int()
    if pixels <= 255:
        return tone  # Pillow's step between levels is 0 then, so that equalizing changes nothing

    ones = torch.ones((), dtype=torch.int32, device=images.device).expand(index.shape)
    counts = torch.zeros_like(tone).scatter_add_(2, index, ones)
    step = (pixels - counts.gather(2, high)) // 255
    below = counts.cumsum(2, dtype=torch.int32) - counts
    equal = (below + step // 2) // step.clamp(min=1)
    return torch.where(plan.equalize & (step > 0), equal, tone)
