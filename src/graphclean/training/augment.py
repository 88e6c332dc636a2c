"""Augmentation of image batches on their device: crops and flips, AugMix, mixup.

Images are uint8 (B, C, H, W) with C = 1 or 3. Every sample has its own random numbers, from one generator.
Shapes never depend on them, and nothing synchronizes with the host. Each augmentation consists of a `draw_…`
and an `apply_…` function: the latter is pure tensor code for torch.compile, which can't trace a generator.
"""

from typing import Literal, NamedTuple, get_args

import torch
from torch import Generator, Tensor
from torch.nn.functional import grid_sample
from torch.nn.functional import pad as pad_edges

from .operations import OPERATIONS, apply_plan, check_images, plan_operations

Variant = Literal["full", "last-chain"]


def draw_crops(n: int, generator: Generator, *, flip: bool = True) -> Tensor:
    """The uniform random numbers that `apply_crops` needs for `n` images.

    Without `flip` no image is flipped, and the crops are the same.
    """
    draws = torch.rand(n, 3, generator=generator, device=generator.device)
    if not flip:
        draws[:, 2] = 1
    return draws


def apply_crops(images: Tensor, draws: Tensor, *, pad: int = 4, size: int = 0) -> Tensor:
    """The weak view: a random crop of the image padded with `pad` black pixels, flipped with probability ½.

    `draws` determine the row and column offsets, then the flip. Crops have `size` pixels a side, or 0: those
    of the image.
    """
    (height, width), (h, w) = images.shape[2:], _view_sides(images, size)
    top = (draws[:, :1] * (height + 2 * pad - h + 1)).long()
    left = (draws[:, 1:2] * (width + 2 * pad - w + 1)).long()
    columns = torch.arange(w, device=images.device)
    columns = torch.where(draws[:, 2:] < 0.5, w - 1 - columns, columns) + left
    rows = (torch.arange(h, device=images.device) + top) * (width + 2 * pad)
    index = (rows.unsqueeze(2) + columns.unsqueeze(1)).flatten(1)
    padded = pad_edges(images, (pad, pad, pad, pad)).flatten(2)
    cropped = padded.gather(2, index.unsqueeze(1).expand(-1, images.shape[1], -1))
    return cropped.view(*images.shape[:2], h, w)


def _view_sides(images: Tensor, size: int) -> tuple[int, int]:
    """Height and width of crops of `size`; 0: as the images."""
    height, width = images.shape[2:]
    return (size, size) if size else (height, width)


def draw_resized_crops(n: int, generator: Generator, *, flip: bool = True) -> Tensor:
    """The uniform random numbers that `apply_resized_crops` needs for `n` images."""
    draws = torch.rand(n, 5, generator=generator, device=generator.device)
    if not flip:
        draws[:, 4] = 1
    return draws


def apply_resized_crops(images: Tensor, draws: Tensor, *, smallest: float, size: int = 0) -> Tensor:
    """SimCLR's random resized crop: a part of each image scaled to full size, flipped with probability ½.

    `draws` determine the area, a fraction from `smallest` to 1, the aspect ratio, from ¾ to 4/3, the
    horizontal and vertical position, and the flip. The part is scaled to `size` pixels a side, or 0: to the
    size of the image.
    """
    height, width = _view_sides(images, size)
    area = smallest + (1 - smallest) * draws[:, :1]
    wider = (4 / 3) ** (2 * draws[:, 1:2] - 1)
    sides = torch.cat([area * wider, area / wider], 1).sqrt().clamp(max=1)
    # Coordinates run from −1 to 1 over the image.
    x_middle, y_middle = ((2 * draws[:, 2:4] - 1) * (1 - sides)).unsqueeze(2).unbind(1)
    x_reach, y_reach = sides.unsqueeze(2).unbind(1)
    x_reach = torch.where(draws[:, 4:] < 0.5, -x_reach, x_reach)
    x, y = (torch.linspace(1 / n - 1, 1 - 1 / n, n, device=images.device) for n in (width, height))
    columns, rows = x_middle + x_reach * x, y_middle + y_reach * y
    shape = (-1, height, width)
    grid = torch.stack([columns.unsqueeze(1).expand(shape), rows.unsqueeze(2).expand(shape)], -1)
    parts = grid_sample(images.float(), grid, mode="bilinear", padding_mode="border", align_corners=False)
    return parts.round_().to(torch.uint8)


def draw_augmix(n: int, generator: Generator, *, width: int = 3, depth: int = 3) -> Tensor:
    """The uniform random numbers that `apply_augmix` needs for `n` images."""
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
    """AugMix (Hendrycks et al., 2020) as published, with all 13 operations; returns float32, 0 to 255.

    An image passes through `width` chains of 1 to `depth` random operations (published as depth −1, with 3);
    Dirichlet(1, …, 1) weights mix the chains, and Beta(1, 1) mixes the result with the original image. The
    level of an operation is uniform between 0.1 and `severity`, out of 10. All chains of all images are
    processed in parallel.

    `last-chain` is not AugMix but the behavior of the paper's release: only the last chain of the mixture is
    used, with its weight, and the others have no effect. Their weight goes to `center`, the level that is 0
    for the network, which costs a third of the contrast on average.
    """
    check_images(images)
    if not 0.1 <= severity <= 10:
        raise ValueError(f"the severity of AugMix is between 0.1 and 10, not {severity}")
    chains = read_chains(draws, severity=severity, width=width, depth=depth, variant=variant)
    amounts = read_levels(chains.operations, chains.levels, chains.signs, *images.shape[2:])
    plan = plan_operations(chains.operations, amounts, *images.shape[2:])
    augmented = images.repeat(len(chains.weights), 1, 1, 1)
    for step in range(depth):
        augmented = apply_plan(augmented, type(plan)(*(part[step] for part in plan)))
    share = (chains.weights * chains.mix).view(-1, len(images), 1, 1, 1)
    mixture = (augmented.view(-1, *images.shape) * share).sum(0)
    mixed = mixture + images * (1 - chains.mix).view(-1, 1, 1, 1)
    if variant == "full":
        return mixed
    return mixed + center * ((1 - chains.weights.sum(0)) * chains.mix).view(-1, 1, 1, 1)


class Chains(NamedTuple):
    """The AugMix operations of a batch; n chains of B images give n·B entries per step, chain by chain."""

    operations: Tensor
    """(depth, n·B) indices into OPERATIONS; −1 after the end of a shorter chain."""
    levels: Tensor
    signs: Tensor
    """1 or −1: the direction of a geometric operation."""
    weights: Tensor
    """(n, B), summing to 1 over all sampled chains."""
    mix: Tensor
    """(B,) weight of the mixture; the original image has the rest."""


def read_chains(draws: Tensor, *, severity: float, width: int, depth: int, variant: Variant) -> Chains:
    """Convert uniform random numbers, one row per image, to chains."""
    if variant not in get_args(Variant):
        raise ValueError(f"AugMix comes as {' or '.join(get_args(Variant))}, not {variant}")
    uniform = draws[:, :-1].reshape(len(draws), width, 2 + 3 * depth).permute(2, 1, 0)
    # Normalized exponential variables are Dirichlet(1, …, 1); the sign cancels; draws may be 0, not 1.
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


def read_levels(operations: Tensor, levels: Tensor, signs: Tensor, height: int, width: int) -> Tensor:
    """The published magnitude of each operation at its level, out of 10, for images of a size."""
    levels, signs = levels.double(), signs.double()
    factor, shear = levels * 0.18 + 0.1, levels * 0.03 * signs
    amounts = {
        "posterize": (levels * 0.4 + 4).trunc(),
        "rotate": (levels * 3).trunc() * signs,
        "solarize": 256 - (levels * 25.6).trunc(),
        "translate_x": (levels * (width / 30)).trunc() * signs,
        "translate_y": (levels * (height / 30)).trunc() * signs,
        **dict.fromkeys(("shear_x", "shear_y"), shear),
        **dict.fromkeys(("color", "contrast", "brightness", "sharpness"), factor),
    }
    found = torch.zeros_like(levels)
    for name, amount in amounts.items():
        found = torch.where(operations == OPERATIONS.index(name), amount, found)
    return found


class Mixed(NamedTuple):
    """Images after mixup, and the targets of their two components, with weights λ and 1 − λ."""

    images: Tensor
    targets: Tensor
    partner_targets: Tensor


def mixup(images: Tensor, targets: Tensor, lam: Tensor, permutation: Tensor) -> Mixed:
    """Mix λ of each image with 1 − λ of its partner; targets may be labels, one-hot or soft."""
    mixed = lam * images + (1 - lam) * images[permutation]
    return Mixed(mixed, targets, targets[permutation])


def draw_beta(a: float, b: float, generator: Generator, size: tuple[int, ...] = ()) -> Tensor:
    """Beta(a, b) random numbers, one unless `size` is given; torch's own distributions take no generator."""
    first, second = (
        torch._standard_gamma(torch.full(size, float(c), device=generator.device), generator=generator)
        for c in (a, b)
    )
    return first / (first + second)
