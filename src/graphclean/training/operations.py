"""Pillow's operations on a batch of images, each image with its own, made where the images are.

Images are uint8 (B, C, H, W) with C = 1 or 3. Shapes never depend on what is asked for, and nothing waits for
the device.
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
"""The operations by their published names; each is drawn as its place in this list.

What the amount of one means: the bits that posterize drops, the level from which solarize inverts, degrees of
a rotation to the left, the slope of a shear, the pixels of a translation, the factor of the enhancers.
"""

GRAY = (19595 / 65536, 38470 / 65536, 7471 / 65536)
"""Shares of red, green and blue in Pillow's gray; sums of them are exact in single precision."""


def apply_operations(images: Tensor, operations: Tensor, amounts: Tensor, *, fill: int = 0) -> Tensor:
    """One operation an image, by its place in OPERATIONS (−1: none), as Pillow does it by that amount.

    What a geometric operation brings in at the edges has the level `fill`.
    """
    check_images(images)
    return apply_plan(images, plan_operations(operations, amounts, *images.shape[2:]), fill=fill)


def check_images(images: Tensor) -> None:
    """Refuse what the operations are not made for."""
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3):
        raise ValueError(
            f"operations need uint8 images (B, 1 or 3, H, W), not {images.dtype} {tuple(images.shape)}"
        )
    if min(images.shape[2:]) < 3:
        raise ValueError(f"operations need images of 3×3 pixels or more, not {tuple(images.shape[2:])}")


class Plan(NamedTuple):
    """What one operation a sample comes to, as far as the pixels have no say.

    Three stages follow each other: tables of tone, the warp, the blend. Each leaves a sample as it is unless
    the operation is its own, so that all samples pass all stages and none is picked out.
    """

    table: Tensor
    """(…, 1, 256) posterize and solarize; otherwise each value itself."""
    contrast: Tensor
    """(…, 1) the tone factor works around the mean gray, not 0."""
    tone_factor: Tensor
    """(…, 1, 1) of contrast and brightness; otherwise 1."""
    autocontrast: Tensor
    equalize: Tensor
    grid: Tensor
    """(…, H, W, 2) where each pixel comes from, as `grid_sample` takes it."""
    inside: Tensor
    """(…, 1, H, W) that place is in the image."""
    color: Tensor
    """(…, 1, 1, 1) the factor blends with the gray image, not the smooth one."""
    factor: Tensor
    """(…, 1, 1, 1) of color and sharpness; otherwise 1."""


def plan_operations(operations: Tensor, amounts: Tensor, height: int, width: int) -> Plan:
    """What `apply_plan` needs for images of a size; amounts are in double precision, as Python's are."""
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
    # Places run from −1 to 1 over the image; Pillow shears from the corner and rotates around the center.
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
    """All samples through tone, warp and blend, and the only clamp at the end."""
    gray = _gray(images)
    index = images.flatten(2).long()
    # Pillow cuts what it interpolates down to a whole level; the slack is for the rounding of the places.
    table = _tone_table(images, index, gray, plan) + max(images.shape[2:]) * 2**-14
    toned = table.gather(2, index).view(images.shape)
    sampled = grid_sample(toned, plan.grid, mode="bilinear", padding_mode="border", align_corners=False)
    warped = sampled.mul_(plan.inside).floor_()
    if fill:
        warped = warped.add_(~plan.inside, alpha=fill)
    other = torch.where(plan.color, gray, _smooth(images))
    return (warped - other).mul_(plan.factor).add_(other).clamp_(0, 255).to(torch.uint8)


def _gray(images: Tensor) -> Tensor:
    """Pillow's gray image, (B, 1, H, W), whole levels as float32."""
    if images.shape[1] == 1:
        return images.float()
    gray = (images[:, :1] * GRAY[0]).add_(images[:, 1:2], alpha=GRAY[1]).add_(images[:, 2:], alpha=GRAY[2])
    return gray.add_(0.5).floor_()


def _smooth(images: Tensor) -> Tensor:
    """Pillow's SMOOTH filter: the pixel five times, its neighbors once, over 13; the border stays."""
    short = images.short()
    three = (short[..., :-2, :] + short[..., 1:-1, :]).add_(short[..., 2:, :])
    nine = (three[..., :-2] + three[..., 1:-1]).add_(three[..., 2:])
    smooth = images.float()
    smooth[..., 1:-1, 1:-1] = nine.add_(short[..., 1:-1, 1:-1], alpha=4).div(13).round_()
    return smooth


def _tone_table(images: Tensor, index: Tensor, gray: Tensor, plan: Plan) -> Tensor:
    """The tone operations as one table a sample and channel, (B, C, 256): whole levels, not yet clamped."""
    pixels = index.shape[2]
    mean = (gray.flatten(1).sum(1, keepdim=True, dtype=torch.float64) / pixels).add_(0.5).floor_()
    center = (mean * plan.contrast).float().unsqueeze(2)
    tone = (plan.table - center) * plan.tone_factor + center

    # A stretch of 0 to 255 leaves the levels alone. In double precision and in this order, as Pillow has it:
    # levels are cut, not rounded, and a number over a tensor would be its reciprocal times the number. The
    # extremes are those of the int64 copy: compiled for a CPU, the minimum of uint8 comes out as 0.
    low, high = torch.aminmax(index, dim=2, keepdim=True)
    alone = (high == low) | ~plan.autocontrast
    spread = torch.where(alone, 255, high.double() - low.double())
    scale = torch.full_like(spread, 255) / spread
    offset = scale * torch.where(alone, 0, low.double())
    tone = (tone * scale - offset).int()
    if pixels <= 255:
        return tone  # Pillow's step between levels is 0 then, and an equalized image stays as it is

    ones = torch.ones((), dtype=torch.int32, device=images.device).expand(index.shape)
    counts = torch.zeros_like(tone).scatter_add_(2, index, ones)
    step = (pixels - counts.gather(2, high)) // 255
    below = counts.cumsum(2, dtype=torch.int32) - counts
    equal = (below + step // 2) // step.clamp(min=1)
    return torch.where(plan.equalize & (step > 0), equal, tone)
