"""Views of a batch of images, made where the images are: crop and flip, AugMix, mixup.

Images are uint8 (B, C, H, W) with C = 1 or 3. Every sample has draws of its own, from one generator. Shapes
never depend on a draw and nothing waits for the device. A view is a `draw_…` and an `apply_…` of it: the
latter is plain tensor code, for torch.compile, which can't trace a generator.
"""

import math
from typing import Literal, NamedTuple, get_args

import torch
from torch import Generator, Tensor
from torch.nn.functional import grid_sample
from torch.nn.functional import pad as pad_edges

Variant = Literal["full", "last-chain"]

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
"""The operations of AugMix by their published names; each is drawn as its place in this list."""

GRAY = (19595 / 65536, 38470 / 65536, 7471 / 65536)
"""Shares of red, green and blue in Pillow's gray; sums of them are exact in single precision."""


def draw_crops(n: int, generator: Generator, *, flip: bool = True) -> Tensor:
    """The uniform numbers that `apply_crops` needs for `n` images.

    Without `flip` nothing is mirrored, and the crops are the same.
    """
    draws = torch.rand(n, 3, generator=generator, device=generator.device)
    if not flip:
        draws[:, 2] = 1
    return draws


def apply_crops(images: Tensor, draws: Tensor, *, pad: int = 4) -> Tensor:
    """The weak view: a random crop of the image with `pad` black pixels around it, mirrored half the time.

    `draws` say row and column offset, then the flip.
    """
    height, width = images.shape[2:]
    top, left = (draws[:, :2] * (2 * pad + 1)).long().unsqueeze(2).unbind(1)
    columns = torch.arange(width, device=images.device)
    columns = torch.where(draws[:, 2:] < 0.5, width - 1 - columns, columns) + left
    rows = (torch.arange(height, device=images.device) + top) * (width + 2 * pad)
    index = (rows.unsqueeze(2) + columns.unsqueeze(1)).flatten(1)
    padded = pad_edges(images, (pad, pad, pad, pad)).flatten(2)
    return padded.gather(2, index.unsqueeze(1).expand(-1, images.shape[1], -1)).view(images.shape)


def draw_augmix(n: int, generator: Generator, *, width: int = 3, depth: int = 3) -> Tensor:
    """The uniform numbers that `apply_augmix` needs for `n` images."""
    return torch.rand(n, width * (2 + 3 * depth) + 1, generator=generator, device=generator.device)


def apply_augmix(
    images: Tensor,
    draws: Tensor,
    *,
    severity: float = 1,
    width: int = 3,
    depth: int = 3,
    variant: Variant = "full",
    center: float = 0.0,
) -> Tensor:
    """AugMix (Hendrycks et al., 2020) as published, with all 13 operations: float32, 0 to 255.

    An image goes through `width` chains of 1 to `depth` random operations (published as depth −1, with 3);
    Dirichlet(1, …, 1) weights make one mixture of them, and Beta(1, 1) mixes that with the image itself.
    An operation's level is uniform between 0.1 and `severity`, of 10. All chains of all images go through
    the operations side by side.

    `last-chain` is not AugMix but what the authors' release of the paper does: of the mixture only the last
    chain is left, with the weight it has in it, and the others have no effect. What their weights leave out
    is `center`, the level that is 0 to the network: on average a third of the contrast.
    """
    _check(images, severity)
    chains = read_chains(draws, severity=severity, width=width, depth=depth, variant=variant)
    plan = _plan(chains.operations, chains.levels, chains.signs, *images.shape[2:])
    augmented = images.repeat(len(chains.weights), 1, 1, 1)
    for step in range(depth):
        augmented = _apply(augmented, _Plan(*(part[step] for part in plan)))
    share = (chains.weights * chains.mix).view(-1, len(images), 1, 1, 1)
    mixture = (augmented.view(-1, *images.shape) * share).sum(0)
    mixed = mixture + images * (1 - chains.mix).view(-1, 1, 1, 1)
    if variant == "full":
        return mixed
    return mixed + center * ((1 - chains.weights.sum(0)) * chains.mix).view(-1, 1, 1, 1)


class Chains(NamedTuple):
    """What AugMix does to each image; with n chains of B images a step has n·B entries, chain by chain."""

    operations: Tensor
    """(depth, n·B) places in OPERATIONS; −1 after the end of a shorter chain."""
    levels: Tensor
    signs: Tensor
    """1 or −1: the direction of a geometric operation."""
    weights: Tensor
    """(n, B), summing to 1 over all chains that are drawn."""
    mix: Tensor
    """(B,) share of the mixture; the image itself has the rest."""


def read_chains(draws: Tensor, *, severity: float, width: int, depth: int, variant: Variant) -> Chains:
    """Turn uniform numbers, a row an image, into chains."""
    if variant not in get_args(Variant):
        raise ValueError(f"AugMix comes as {' or '.join(get_args(Variant))}, not {variant}")
    uniform = draws[:, :-1].reshape(len(draws), width, 2 + 3 * depth).permute(2, 1, 0)
    # Exponential numbers over their sum are Dirichlet(1, …, 1); the sign cancels, and 0 may be drawn, 1 not.
    weights = uniform[1].clamp(min=2**-25).log()
    weights = weights / weights.sum(0)
    if variant == "last-chain":
        uniform, weights = uniform[:, -1:], weights[-1:]
    length = (uniform[0] * depth).int() + 1
    choice, level, sign = uniform[2:].reshape(3, depth, -1)
    steps = torch.arange(depth, device=draws.device).unsqueeze(1)
    operations = torch.where(steps < length.flatten(), (choice * len(OPERATIONS)).int(), -1)
    return Chains(
        operations,
        0.1 + level * (severity - 0.1),
        torch.where(sign < 0.5, 1.0, -1.0),
        weights,
        draws[:, -1],
    )


def apply_operations(images: Tensor, operations: Tensor, levels: Tensor, signs: Tensor) -> Tensor:
    """One operation an image, by its place in OPERATIONS (−1: none), as Pillow does it at that level."""
    _check(images, 10)
    return _apply(images, _plan(operations, levels, signs, *images.shape[2:]))


def _check(images: Tensor, severity: float) -> None:
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] not in (1, 3):
        raise ValueError(
            f"AugMix needs uint8 images (B, 1 or 3, H, W), not {images.dtype} {tuple(images.shape)}"
        )
    if min(images.shape[2:]) < 3:
        raise ValueError(f"AugMix needs images of 3×3 pixels or more, not {tuple(images.shape[2:])}")
    if not 0.1 <= severity <= 10:
        raise ValueError(f"the severity of AugMix is between 0.1 and 10, not {severity}")


class _Plan(NamedTuple):
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


def _plan(operations: Tensor, levels: Tensor, signs: Tensor, height: int, width: int) -> _Plan:
    """The published magnitudes, in double precision so that whole numbers are cut as Python cuts them."""
    device = operations.device
    places = torch.arange(len(OPERATIONS), device=device)
    drawn = operations.unsqueeze(-1) == places
    chosen = dict(zip(OPERATIONS, drawn.unbind(-1), strict=True))
    signed = dict(zip(OPERATIONS, (drawn * signs.double().unsqueeze(-1)).unbind(-1), strict=True))
    levels = levels.double()

    ramp = torch.arange(256, device=device, dtype=torch.int32)
    inverted = ((levels * 25.6).int() * chosen["solarize"]).unsqueeze(-1)
    dropped = ((levels * 0.4 + 4).int() * chosen["posterize"]).unsqueeze(-1)
    table = (torch.where(ramp < 256 - inverted, ramp, 255 - ramp) >> dropped) << dropped

    factor, one = (levels * 0.18 + 0.1).float(), torch.ones((), device=device)
    tone_factor = torch.where(chosen["contrast"] | chosen["brightness"], factor, one)
    blend_factor = torch.where(chosen["color"] | chosen["sharpness"], factor, one)

    angle = (levels * 3).trunc() * signed["rotate"] * (-math.pi / 180)
    shear_x = levels * (0.03 * height / width) * signed["shear_x"]
    shear_y = levels * (0.03 * width / height) * signed["shear_y"]
    across = (levels * (width / 30)).trunc() * signed["translate_x"] * (2 / width)
    down = (levels * (height / 30)).trunc() * signed["translate_y"] * (2 / height)
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
    return _Plan(
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


def _apply(images: Tensor, plan: _Plan) -> Tensor:
    """All samples through tone, warp and blend, and the only clamp at the end."""
    gray = _gray(images)
    index = images.flatten(2).long()
    # Pillow cuts what it interpolates down to a whole level; the slack is for the rounding of the places.
    table = _tone_table(images, index, gray, plan) + max(images.shape[2:]) * 2**-14
    toned = table.gather(2, index).view(images.shape)
    sampled = grid_sample(toned, plan.grid, mode="bilinear", padding_mode="border", align_corners=False)
    warped = sampled.mul_(plan.inside).floor_()
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


def _tone_table(images: Tensor, index: Tensor, gray: Tensor, plan: _Plan) -> Tensor:
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


class Mixed(NamedTuple):
    """Images after mixup, and the targets of the two images in each: λ of the first, 1 − λ of the second."""

    images: Tensor
    targets: Tensor
    partner_targets: Tensor


def mixup(images: Tensor, targets: Tensor, lam: Tensor, permutation: Tensor) -> Mixed:
    """Mixup: λ of each image and 1 − λ of its partner; the targets may be labels, one-hot or soft."""
    mixed = lam * images + (1 - lam) * images[permutation]
    return Mixed(mixed, targets, targets[permutation])


def draw_beta(a: float, b: float, generator: Generator, size: tuple[int, ...] = ()) -> Tensor:
    """Beta(a, b) numbers, one unless `size` is given: torch's own distributions take no generator."""
    first, second = (
        torch._standard_gamma(torch.full(size, float(c), device=generator.device), generator=generator)
        for c in (a, b)
    )
    return first / (first + second)
