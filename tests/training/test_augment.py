import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from graphclean.training.augment import (
    apply_augmix,
    apply_crops,
    apply_resized_crops,
    draw_augmix,
    draw_beta,
    draw_crops,
    draw_resized_crops,
    mixup,
    read_chains,
    read_levels,
)
from graphclean.training.networks import PIXEL_CENTER
from graphclean.training.operations import OPERATIONS, apply_operations
from graphclean.training.views import scale

INTERPOLATED = ("rotate", "shear_x", "shear_y")
LARGE = [pytest.param(3, side, side, marks=pytest.mark.slow) for side in (224, 299)]
"""Sizes that photos are trained at."""
LEVELS = (0.17, 0.64, 0.97, 1.9, 3.4, 4.7, 5.8, 7.3, 8.6, 9.9)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def crop_and_flip(images: Tensor, generator: torch.Generator, *, pad: int = 4, flip: bool = True) -> Tensor:
    return apply_crops(images, draw_crops(len(images), generator, flip=flip), pad=pad)


def augmix(images: Tensor, generator: torch.Generator, **settings: Any) -> Tensor:
    sizes = {name: settings[name] for name in ("width", "depth") if name in settings}
    return apply_augmix(images, draw_augmix(len(images), generator, **sizes), **settings)


def apply_levels(images: Tensor, operations: Tensor, levels: Tensor, signs: Tensor) -> Tensor:
    """One operation an image at a level of AugMix."""
    amounts = read_levels(operations, levels, signs, *images.shape[2:])
    return apply_operations(images, operations, amounts)


def pictures(kind: str, n: int, channels: int, height: int, width: int) -> Tensor:
    """Noise over all levels, or a smooth field over some of them, so that its contrast can be stretched."""
    if kind == "random":
        return torch.randint(0, 256, (n, channels, height, width), generator=seeded(1), dtype=torch.uint8)
    coarse = 30 + 180 * torch.rand(n, channels, 4, 4, generator=seeded(2))
    fine = torch.nn.functional.interpolate(coarse, size=(height, width), mode="bilinear", align_corners=True)
    return fine.to(torch.uint8)


def with_pillow(image: Tensor, name: str, level: float, sign: float) -> Tensor:
    """Pillow's own operation at the published magnitude of a level."""
    pixels = image.permute(1, 2, 0).numpy()
    picture = Image.fromarray(np.ascontiguousarray(pixels if pixels.shape[2] == 3 else pixels[..., 0]))
    size, bilinear = picture.size, Image.Resampling.BILINEAR
    factor, shear = level * 1.8 / 10 + 0.1, sign * level * 0.3 / 10
    across, down = (sign * int(level * (side / 3) / 10) for side in size)

    def affine(*matrix: float) -> Image.Image:
        return picture.transform(size, Image.Transform.AFFINE, matrix, resample=bilinear)

    operations: dict[str, Callable[[], Image.Image]] = {
        "autocontrast": lambda: ImageOps.autocontrast(picture),
        "equalize": lambda: ImageOps.equalize(picture),
        "posterize": lambda: ImageOps.posterize(picture, 4 - int(level * 4 / 10)),
        "rotate": lambda: picture.rotate(sign * int(level * 30 / 10), resample=bilinear),
        "solarize": lambda: ImageOps.solarize(picture, 256 - int(level * 256 / 10)),
        "shear_x": lambda: affine(1, shear, 0, 0, 1, 0),
        "shear_y": lambda: affine(1, 0, 0, shear, 1, 0),
        "translate_x": lambda: affine(1, 0, across, 0, 1, 0),
        "translate_y": lambda: affine(1, 0, 0, 0, 1, down),
        "color": lambda: ImageEnhance.Color(picture).enhance(factor),
        "contrast": lambda: ImageEnhance.Contrast(picture).enhance(factor),
        "brightness": lambda: ImageEnhance.Brightness(picture).enhance(factor),
        "sharpness": lambda: ImageEnhance.Sharpness(picture).enhance(factor),
    }
    result = torch.from_numpy(np.array(operations[name]()))
    return result.reshape(image.shape[1], image.shape[2], -1).permute(2, 0, 1)


def at_levels(name: str, images: Tensor) -> tuple[Tensor, Tensor]:
    """One image a level, both directions: ours, and Pillow's."""
    levels = torch.tensor(LEVELS, dtype=torch.float64).repeat(2)
    signs = torch.tensor([1.0, -1.0]).repeat_interleave(len(LEVELS))
    ours = apply_levels(images, torch.full((len(images),), OPERATIONS.index(name)), levels, signs)
    rows = zip(images, levels.tolist(), signs.tolist(), strict=True)
    return ours, torch.stack([with_pillow(image, name, level, sign) for image, level, sign in rows])


@pytest.mark.parametrize("kind", ["random", "smooth"])
@pytest.mark.parametrize(
    ("channels", "height", "width"), [(3, 32, 32), (1, 32, 32), (3, 20, 31), (1, 8, 8), *LARGE]
)
@pytest.mark.parametrize("name", [name for name in OPERATIONS if name not in INTERPOLATED])
def test_operation_equals_pillows(name: str, channels: int, height: int, width: int, kind: str) -> None:
    images = pictures(kind, 2 * len(LEVELS), channels, height, width)
    ours, pillows = at_levels(name, images)
    assert torch.equal(ours, pillows)
    idle = {"color": channels == 1, "equalize": height * width <= 255}
    idle["autocontrast"] = kind == "random" and height * width > 255
    if not idle.get(name, False):
        assert not torch.equal(ours, images)


@pytest.mark.parametrize("kind", ["random", "smooth"])
@pytest.mark.parametrize(("channels", "height", "width"), [(3, 32, 32), (1, 32, 32), (3, 20, 31), *LARGE])
@pytest.mark.parametrize("name", INTERPOLATED)
def test_interpolated_operation_is_pillows_within_a_level(
    name: str, channels: int, height: int, width: int, kind: str
) -> None:
    # Pillow interpolates in double precision and cuts the result: a value just under a whole level may tip.
    ours, pillows = at_levels(name, pictures(kind, 2 * len(LEVELS), channels, height, width))
    difference = (ours.int() - pillows.int()).abs()
    assert difference.max() <= 1
    # The slack for rounded coordinates, which grows with the side, tips that fraction of all pixels.
    assert (difference > 0).float().mean() < max(0.005, 1.2 * max(height, width) * 2**-14)
    assert (pillows == 0).any()  # the black that comes in at the edges has been compared too


def test_histogram_edges_equal_pillows() -> None:
    one, two = torch.zeros(1, 32, 32, dtype=torch.uint8), torch.zeros(1, 32, 32, dtype=torch.uint8)
    one += 77
    two[:, ::2] = 9
    rare = two.clone()
    rare[0, 5, 5] = 255
    images = torch.stack([one, two, rare])
    for name in ("autocontrast", "equalize", "contrast"):
        ours = apply_levels(
            images, torch.full((3,), OPERATIONS.index(name)), torch.full((3,), 5.0), torch.ones(3)
        )
        assert torch.equal(ours, torch.stack([with_pillow(image, name, 5, 1) for image in images]))


def test_every_sample_has_its_own_operation() -> None:
    n = len(OPERATIONS)
    images = pictures("smooth", 1, 3, 32, 32).repeat(n + 1, 1, 1, 1)
    ours = apply_levels(images, torch.arange(-1, n), torch.full((n + 1,), 7.3), torch.ones(n + 1))
    assert torch.equal(ours[0], images[0])
    for name, image in zip(OPERATIONS, ours[1:], strict=True):
        assert (image.int() - with_pillow(images[0], name, 7.3, 1).int()).abs().max() <= 1, name
    pairs = torch.combinations(torch.arange(n + 1))
    assert (ours[pairs[:, 0]] != ours[pairs[:, 1]]).flatten(1).any(1).all()


@pytest.mark.parametrize("side", [3, 28, 32, 47, 100, 224])
def test_no_operation_leaves_every_pixel(side: int) -> None:
    image = 255 * torch.randint(0, 2, (1, 1, side, side), generator=seeded(), dtype=torch.uint8)
    none = torch.tensor([-1])
    assert torch.equal(apply_levels(image, none, torch.ones(1), torch.ones(1)), image)


@pytest.mark.parametrize("channels", [1, 3])
def test_crops_equal_a_plain_loop(channels: int) -> None:
    images = pictures("random", 60, channels, 9, 12) | 1  # black is padding alone
    draws = draw_crops(60, seeded())
    ours = apply_crops(images, draws, pad=2)
    assert ours.dtype == torch.uint8
    for image, (top, left, flip), result in zip(images, draws.tolist(), ours, strict=True):
        expected = torch.zeros(channels, 9 + 4, 12 + 4, dtype=torch.uint8)
        expected[:, 2:-2, 2:-2] = image
        y, x = int(top * 5), int(left * 5)
        expected = expected[:, y : y + 9, x : x + 12]
        assert torch.equal(result, expected.flip(2) if flip < 0.5 else expected)
    assert torch.equal(crop_and_flip(images, seeded(), pad=2), ours)


def test_crops_reach_every_offset_and_flip_half() -> None:
    n = 9 * 9 * 2 * 100
    images = torch.zeros(n, 1, 9, 9, dtype=torch.uint8)
    images[:, 0, 4, 4] = 1
    images[:, 0, 4, 3] = 2
    crops = crop_and_flip(images, seeded(), pad=4).flatten(1)
    at = (crops == 1).int().argmax(1)
    counts = torch.bincount(at, minlength=81)
    assert counts.min() > 200 - 5 * math.sqrt(200)
    assert counts.max() < 200 + 5 * math.sqrt(200)
    inner = at % 9 % 8 != 0
    flip_tta = crops.gather(1, (at + 1).clamp(max=80).unsqueeze(1)).squeeze(1) == 2
    assert abs(flip_tta[inner].float().mean() - 0.5) < 0.02


@pytest.mark.parametrize("kind", ["random", "smooth"])
@pytest.mark.parametrize(("channels", "height", "width"), [(3, 32, 32), (1, 8, 8), (3, 20, 31), *LARGE])
def test_resized_crops_are_pillows_within_a_level(channels: int, height: int, width: int, kind: str) -> None:
    """Pillow rounds after each of its two directions, and the weights before."""
    images, draws = pictures(kind, 60, channels, height, width), draw_resized_crops(60, seeded())
    ours = apply_resized_crops(images, draws, smallest=0.2)
    assert ours.dtype == torch.uint8
    fractions = []
    for image, result, (u, v, left, top, flip) in zip(images, ours, draws.tolist(), strict=True):
        area, wider = 0.2 + 0.8 * u, math.exp((2 * v - 1) * math.log(4 / 3))
        across, down = min(math.sqrt(area * wider), 1), min(math.sqrt(area / wider), 1)
        x, y = left * (1 - across), top * (1 - down)
        box = (x * width, y * height, (x + across) * width, (y + down) * height)
        pixels = np.ascontiguousarray(image.permute(1, 2, 0).numpy())
        picture = Image.fromarray(pixels if channels == 3 else pixels[..., 0])
        resized = picture.resize((width, height), Image.Resampling.BILINEAR, box=box)
        if flip < 0.5:
            resized = resized.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        expected = torch.from_numpy(np.array(resized)).reshape(height, width, -1).permute(2, 0, 1)
        assert (result.int() - expected.int()).abs().max() <= 1
        fractions.append(across * down)
    assert 0.2 <= min(fractions) < 0.3
    assert max(fractions) > 0.9


def test_crops_of_a_size_are_parts_of_larger_crops() -> None:
    """Every offset is reached, and with padding those outside the image, too."""
    images = pictures("random", 400, 3, 10, 12) | 1
    draws = draw_crops(400, seeded(), flip=False)
    for pad, offsets in ((0, (4, 6)), (2, (8, 10))):
        ours = apply_crops(images, draws, pad=pad, size=7)
        assert ours.shape == (400, 3, 7, 7)
        seen = set()
        for image, (top, left, _), result in zip(images, draws.tolist(), ours, strict=True):
            y, x = int(top * offsets[0]), int(left * offsets[1])
            padded = torch.nn.functional.pad(image, (pad,) * 4)
            assert torch.equal(result, padded[:, y : y + 7, x : x + 7])
            seen.add((y, x))
        assert seen == {(y, x) for y in range(offsets[0]) for x in range(offsets[1])}
    mirrored = draws.clone()
    mirrored[:, 2] = 0
    flipped = apply_crops(images, mirrored, pad=0, size=7)
    assert torch.equal(flipped, apply_crops(images, draws, pad=0, size=7).flip(3))


def test_resized_crops_of_a_size_are_pillows_within_a_level() -> None:
    """Enlarged, as where a part of 320 pixels becomes 299: there Pillow does not widen its filter."""
    images, draws = pictures("smooth", 40, 3, 16, 16), draw_resized_crops(40, seeded(), flip=False)
    ours = apply_resized_crops(images, draws, smallest=0.4, size=20)
    assert ours.shape == (40, 3, 20, 20)
    for image, result, (u, v, left, top, _) in zip(images, ours, draws.tolist(), strict=True):
        area, wider = 0.4 + 0.6 * u, math.exp((2 * v - 1) * math.log(4 / 3))
        across, down = 16 * min(math.sqrt(area * wider), 1), 16 * min(math.sqrt(area / wider), 1)
        x, y = left * (16 - across), top * (16 - down)
        picture = Image.fromarray(np.ascontiguousarray(image.permute(1, 2, 0).numpy()))
        resized = picture.resize((20, 20), Image.Resampling.BILINEAR, box=(x, y, x + across, y + down))
        expected = torch.from_numpy(np.array(resized)).permute(2, 0, 1)
        inner = (result.int() - expected.int()).abs()
        assert inner.max() <= 2
        assert inner.float().mean() < 0.6


def test_resized_crops_without_flip_are_the_same_crops() -> None:
    images = pictures("smooth", 50, 3, 16, 16)
    mirrored, straight = (
        apply_resized_crops(images, draw_resized_crops(50, seeded(), flip=flip), smallest=0.2)
        for flip in (True, False)
    )
    kept = (mirrored == straight).flatten(1).all(1)
    assert 10 < int(kept.sum()) < 40
    assert ((mirrored.flip(3).int() - straight.int()).abs() <= 1)[~kept].all()


@pytest.mark.parametrize("view", [crop_and_flip, augmix])
def test_a_seed_makes_the_view_and_samples_differ(view: Callable[[Tensor, torch.Generator], Tensor]) -> None:
    images = pictures("random", 1, 3, 32, 32).repeat(12, 1, 1, 1)
    before = torch.get_rng_state()
    first = view(images, seeded())
    assert torch.equal(first, view(images, seeded()))
    assert not torch.equal(first, view(images, seeded(1)))
    assert len(first.flatten(1).unique(dim=0)) >= 9  # of 12; few crops may be alike
    assert torch.equal(before, torch.get_rng_state())
    generator = seeded()
    assert not torch.equal(view(images, generator), view(images, generator))


def test_chains_have_the_published_distribution() -> None:
    n = 20_000
    chains = read_chains(draw_augmix(n, seeded()), severity=2, width=3, depth=3, variant="full")
    operations = chains.operations.view(3, 3, n)
    active = operations >= 0
    assert active[0].all()
    assert not (active[2] & ~active[1]).any()
    for step, share in enumerate([1.0, 2 / 3, 1 / 3]):
        assert torch.allclose(active[step].float().mean(1), torch.tensor(share), atol=0.015)
    lengths = active.sum(0)
    assert abs((lengths == 1).all(0).float().mean() - 1 / 27) < 0.005  # each chain draws its own
    counts = torch.bincount(operations[active].long(), minlength=13) / active.sum()
    assert torch.allclose(counts, torch.tensor(1 / 13), atol=0.003)
    assert chains.levels.min() >= 0.1
    assert chains.levels.max() < 2
    assert abs(chains.levels.mean() - 1.05) < 0.01
    assert set(chains.signs.unique().tolist()) == {-1.0, 1.0}
    assert abs(chains.signs.mean()) < 0.01
    assert torch.allclose(chains.weights.sum(0), torch.ones(n))
    assert torch.allclose(chains.weights.mean(1), torch.full((3,), 1 / 3), atol=0.01)
    assert torch.allclose(chains.weights.var(1), torch.full((3,), 1 / 18), atol=0.002)
    assert abs(chains.mix.mean() - 0.5) < 0.01
    assert abs(chains.mix.var() - 1 / 12) < 0.002
    columns = torch.cat([chains.levels, chains.signs]).view(6 * 3, n)
    mixing = torch.cat([columns, chains.weights[:2], chains.mix.unsqueeze(0)])
    correlation = torch.corrcoef(mixing) - torch.eye(len(mixing))
    correlation[18, 19] = correlation[19, 18] = 0  # the weights of a sample sum to 1
    assert correlation.abs().max() < 5 / math.sqrt(n)


@pytest.mark.parametrize(("width", "depth"), [(1, 1), (2, 4)])
def test_width_and_depth_are_kept(width: int, depth: int) -> None:
    draws = draw_augmix(500, seeded(), width=width, depth=depth)
    chains = read_chains(draws, severity=1, width=width, depth=depth, variant="full")
    lengths = (chains.operations >= 0).sum(0)
    assert chains.weights.shape == (width, 500)
    assert lengths.unique().tolist() == list(range(1, depth + 1))


def test_weights_survive_a_draw_of_zero() -> None:
    draws = torch.zeros(2, 6)
    chains = read_chains(draws, severity=1, width=1, depth=1, variant="full")
    assert chains.weights.tolist() == [[1.0, 1.0]]


def mixed_with_pillow(images: Tensor, draws: Tensor, severity: float, variant: str) -> Tensor:
    """AugMix image by image, chain by chain, as published."""
    chains = read_chains(draws, severity=severity, width=3, depth=3, variant=variant)  # type: ignore[arg-type]
    width, n = chains.weights.shape
    steps = [part.view(3, width, n) for part in chains[:3]]
    result = torch.zeros(images.shape)
    for i, image in enumerate(images):
        for chain in range(width):
            augmented = image
            for operation, level, sign in zip(*(part[:, chain, i].tolist() for part in steps), strict=True):
                if operation >= 0:
                    augmented = with_pillow(augmented, OPERATIONS[operation], level, sign)
            result[i] += chains.weights[chain, i] * augmented
        result[i] = (1 - chains.mix[i]) * image + chains.mix[i] * result[i]
    return result


@pytest.mark.parametrize("variant", ["full", "last-chain"])
@pytest.mark.parametrize("channels", [1, 3])
def test_augmix_equals_pillow_chain_by_chain(channels: int, variant: str) -> None:
    images, draws = pictures("smooth", 48, channels, 32, 32), draw_augmix(48, seeded(3))
    ours = apply_augmix(images, draws, severity=3, variant=variant)  # type: ignore[arg-type]
    assert ours.dtype == torch.float32
    # Without a center what last-chain leaves out is black.
    difference = (ours - mixed_with_pillow(images, draws, 3, variant)).abs()
    # A level that tips in a rotation or shear may be stretched by the operations after it.
    assert (difference > 1e-3).float().mean() < 0.01
    assert difference.max() < 8
    assert torch.equal(
        ours,
        augmix(images, seeded(3), severity=3, variant=variant),  # type: ignore[arg-type]
    )


def test_last_chain_is_the_last_of_the_full_mixture() -> None:
    images, draws = pictures("random", 40, 3, 16, 16), draw_augmix(40, seeded())
    full = read_chains(draws, severity=1, width=3, depth=3, variant="full")
    last = read_chains(draws, severity=1, width=3, depth=3, variant="last-chain")
    assert torch.equal(last.operations, full.operations[:, 80:])
    assert torch.equal(last.weights, full.weights[2:])
    others = draws.clone()
    others[:, [0, *range(2, 12), *range(13, 22)]] *= 0.5  # of the first two chains, all but their weights
    same = apply_augmix(images, others, variant="last-chain")
    assert torch.equal(same, apply_augmix(images, draws, variant="last-chain"))
    assert not torch.allclose(apply_augmix(images, others), apply_augmix(images, draws), atol=1)


def test_last_chain_has_two_thirds_of_the_contrast() -> None:
    """The release mixes what it has normalized: x' = (1 − m) x + m w₃ aug(x), without the other two."""
    images, draws = pictures("smooth", 400, 1, 16, 16), draw_augmix(400, seeded())
    chains = read_chains(draws, severity=1, width=3, depth=3, variant="full")
    ours = scale(apply_augmix(images, draws, variant="last-chain", center=PIXEL_CENTER))
    for i, (m, w) in enumerate(zip(chains.mix, chains.weights[2], strict=True)):
        augmented = images[i : i + 1]
        for step in range(3):
            last = (part[step].view(3, -1)[2, i : i + 1] for part in chains[:3])
            augmented = apply_levels(augmented, *last)
        expected = (1 - m) * scale(images[i : i + 1]) + m * w * scale(augmented)
        assert torch.allclose(ours[i], expected[0], atol=1e-4)
    kept = 1 - chains.mix + chains.mix * chains.weights[2]
    assert abs(kept.mean() - 2 / 3) < 0.03


def test_severity_strengthens_what_is_not_tone() -> None:
    images, geometric = pictures("smooth", 8, 3, 32, 32), torch.tensor([3, 5, 6, 7, 8]).repeat(8)
    images = images.repeat_interleave(5, 0)

    def change(level: float) -> float:
        levels = torch.full((40,), level)
        changed = apply_levels(images, geometric, levels, torch.ones(40))
        return float((changed.float() - images).abs().mean())

    assert 0 < change(1) < change(3) < change(9)
    draws = draw_augmix(300, seeded())
    weak = read_chains(draws, severity=0.1, width=3, depth=3, variant="full")
    assert torch.allclose(weak.levels, torch.tensor(0.1))


def test_black_stays_black_and_flat_stays_flat() -> None:
    black = torch.zeros(64, 3, 32, 32, dtype=torch.uint8)
    assert not augmix(black, seeded(), severity=3).any()
    flat = black + torch.tensor([40, 120, 200], dtype=torch.uint8).view(3, 1, 1)
    views = augmix(flat, seeded())
    assert views.min() >= 0
    assert views.max() <= 255
    # At severity 1 no operation moves a pixel in the middle by more than 2.
    middle = views[..., 8:24, 8:24].flatten(2)
    assert (middle.amax(2) - middle.amin(2)).max() < 1e-3
    tone = torch.tensor([OPERATIONS.index(name) for name in ("autocontrast", "equalize", "sharpness")])
    kept = apply_levels(flat[:3], tone, torch.full((3,), 5.0), torch.ones(3))
    assert torch.equal(kept, flat[:3])


@pytest.mark.parametrize(
    ("shape", "dtype", "settings", "message"),
    [
        ((2, 3, 8, 8), torch.float32, {}, "uint8"),
        ((2, 4, 8, 8), torch.uint8, {}, "1 or 3"),
        ((2, 3, 2, 8), torch.uint8, {}, "3×3 pixels"),
        ((2, 3, 8, 8), torch.uint8, {"severity": 0}, "between 0.1 and 10"),
        ((2, 3, 8, 8), torch.uint8, {"variant": "last"}, "full or last-chain"),
    ],
)
def test_what_augmix_can_not_do_is_refused(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    settings: dict[str, object],
    message: str,
) -> None:
    with pytest.raises(ValueError, match=message):
        augmix(torch.zeros(shape, dtype=dtype), seeded(), **settings)  # type: ignore[arg-type]


def test_nothing_looks_at_a_value() -> None:
    # Tensors without values: a wait for the device, or a shape that depends on a draw, is an error here.
    images = pictures("random", 5, 3, 32, 32).to("meta")
    assert apply_crops(images, draw_crops(5, seeded()).to("meta")).shape == images.shape
    mixed = apply_augmix(images, draw_augmix(5, seeded()).to("meta"))
    assert (mixed.shape, mixed.dtype) == (images.shape, torch.float32)
    targets, permutation = torch.zeros(5, device="meta"), torch.zeros(5, dtype=torch.long, device="meta")
    assert mixup(mixed, targets, torch.zeros((), device="meta"), permutation).images.shape == images.shape


def test_mixup_by_hand() -> None:
    images = torch.tensor([0.0, 8.0, 100.0]).view(3, 1, 1, 1)
    mixed = mixup(images, torch.tensor([5, 6, 7]), torch.tensor(0.75), torch.tensor([2, 1, 0]))
    assert mixed.images.flatten().tolist() == [25.0, 8.0, 75.0]
    assert mixed.targets.tolist() == [5, 6, 7]
    assert mixed.partner_targets.tolist() == [7, 6, 5]
    soft = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    raw = mixup(images.to(torch.uint8), soft, torch.tensor(0.25), torch.tensor([1, 2, 0]))
    assert raw.images.flatten().tolist() == [6.0, 77.0, 25.0]
    assert torch.equal(raw.partner_targets, soft[[1, 2, 0]])


@pytest.mark.parametrize(("a", "b"), [(8, 8), (0.5, 0.5), (1, 3)])
def test_beta_draws(a: float, b: float) -> None:
    before = torch.get_rng_state()
    draws = draw_beta(a, b, seeded(), (40_000,))
    mean, variance = a / (a + b), a * b / ((a + b) ** 2 * (a + b + 1))
    assert abs(draws.mean() - mean) < 5 * math.sqrt(variance / 40_000)
    assert abs(draws.var() / variance - 1) < 0.05
    assert torch.equal(draws, draw_beta(a, b, seeded(), (40_000,)))
    assert draw_beta(a, b, seeded()) != draw_beta(a, b, seeded(1))
    assert draw_beta(a, b, seeded()).shape == ()
    assert torch.equal(before, torch.get_rng_state())


@pytest.fixture
def refuse_waiting() -> Iterator[None]:
    """CUDA calls that wait for the device are errors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode("error")
        yield
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
class TestCuda:
    def test_same_views_as_on_the_cpu(self) -> None:
        images, draws = pictures("smooth", 64, 3, 32, 32), draw_augmix(64, seeded())
        crops = draw_crops(64, seeded())
        assert torch.equal(apply_crops(images.cuda(), crops.cuda()).cpu(), apply_crops(images, crops))
        ours, cpus = apply_augmix(images.cuda(), draws.cuda()).cpu(), apply_augmix(images, draws)
        assert ((ours - cpus).abs() > 1e-3).float().mean() < 0.02

    @pytest.mark.usefixtures("refuse_waiting")
    def test_nothing_waits_for_the_device(self) -> None:
        generator = torch.Generator("cuda").manual_seed(0)
        images = torch.zeros(8, 3, 32, 32, dtype=torch.uint8, device="cuda")
        views = augmix(crop_and_flip(images, generator), generator)
        lam = draw_beta(8, 8, generator)
        permutation = torch.randperm(8, generator=generator, device="cuda")
        mixed = mixup(views, torch.zeros(8, device="cuda"), lam, permutation)
        assert mixed.images.device.type == "cuda"


def test_crops_without_flip_are_the_same_crops() -> None:
    images = torch.arange(64, dtype=torch.uint8).view(1, 1, 8, 8).repeat(40, 1, 1, 1)
    flip_tta, straight = (
        crop_and_flip(images, torch.Generator().manual_seed(3), pad=2, flip=flip) for flip in (True, False)
    )
    unflipped = (flip_tta == straight).flatten(1).all(1)
    assert 5 < int(unflipped.sum()) < 35
    # Rows of `straight` rise wherever they are not padding.
    inner = straight[:, 0, 2:6, 2:6].int()
    assert (inner.diff(dim=2) == 1).all()
