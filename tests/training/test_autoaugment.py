"""AutoAugment against Pillow, sub-policy by sub-policy, and the probabilities of its policy."""

import functools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from graphclean.training.autoaugment import FILL, POLICY, Parts, apply_autoaugment, draw_autoaugment
from graphclean.training.operations import OPERATIONS
from tests.training.test_augment import LARGE, pictures, seeded

GRIDS = {
    "shear_y": np.linspace(0, 0.3, 10),
    "translate_x": np.linspace(0, 150 / 331, 10),
    "translate_y": np.linspace(0, 150 / 331, 10),
    "rotate": np.linspace(0, 30, 10),
    "color": np.linspace(0, 0.9, 10),
    "posterize": np.round(np.linspace(8, 4, 10)),
    "solarize": np.linspace(256, 0, 10),
    "contrast": np.linspace(0, 0.9, 10),
    "sharpness": np.linspace(0, 0.9, 10),
    "brightness": np.linspace(0, 0.9, 10),
}
"""The published magnitudes, level by level."""
INTERPOLATED = ("rotate", "shear_y")


def with_pillow(image: Tensor, name: str, level: int, sign: int) -> Tensor:
    """Pillow's own operation at the published magnitude of a level."""
    pixels = np.ascontiguousarray(image.permute(1, 2, 0).numpy())
    picture = Image.fromarray(pixels if pixels.shape[2] == 3 else pixels[..., 0])
    size, bilinear = picture.size, Image.Resampling.BILINEAR
    gray = (FILL,) * 3 if pixels.shape[2] == 3 else FILL
    amount = float(GRIDS[name][level]) if name in GRIDS else 0.0

    def affine(*matrix: float, resample: Image.Resampling = bilinear) -> Image.Image:
        return picture.transform(size, Image.Transform.AFFINE, matrix, resample=resample, fillcolor=gray)

    nearest = functools.partial(affine, resample=Image.Resampling.NEAREST)
    operations: dict[str, Callable[[], Image.Image]] = {
        "autocontrast": lambda: ImageOps.autocontrast(picture),
        "equalize": lambda: ImageOps.equalize(picture),
        "invert": lambda: ImageOps.invert(picture),
        "posterize": lambda: ImageOps.posterize(picture, int(amount)),
        "solarize": lambda: ImageOps.solarize(picture, amount),  # type: ignore[arg-type]
        "rotate": lambda: picture.rotate(sign * amount, resample=bilinear, fillcolor=gray),
        "shear_y": lambda: affine(1, 0, 0, sign * amount, 1, 0),
        "translate_x": lambda: nearest(1, 0, sign * amount * size[0], 0, 1, 0),
        "translate_y": lambda: nearest(1, 0, 0, 0, 1, sign * amount * size[1]),
        "color": lambda: ImageEnhance.Color(picture).enhance(1 + sign * amount),
        "contrast": lambda: ImageEnhance.Contrast(picture).enhance(1 + sign * amount),
        "brightness": lambda: ImageEnhance.Brightness(picture).enhance(1 + sign * amount),
        "sharpness": lambda: ImageEnhance.Sharpness(picture).enhance(1 + sign * amount),
    }
    result = torch.from_numpy(np.array(operations[name]()))
    return result.reshape(image.shape[1], image.shape[2], -1).permute(2, 0, 1)


class Drawn:
    """Parts drawn from numbers that a test chose: sub-policy, what of it is applied, and directions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, rows: list[tuple[int, bool, bool, int, int]]) -> None:
        numbers = torch.tensor(
            [
                [
                    (policy + 0.5) / 25,
                    *(0.0 if on else 0.99 for on in (first, second)),
                    *(0.25 if s > 0 else 0.75 for s in (a, b)),
                ]
                for policy, first, second, a, b in rows
            ]
        )
        monkeypatch.setattr(torch, "rand", lambda *_, **__: numbers)
        self.parts = draw_autoaugment(len(rows), seeded())
        monkeypatch.undo()


@pytest.mark.parametrize(
    ("channels", "height", "width"), [(3, 32, 32), (1, 32, 32), (3, 20, 31), (1, 8, 8), LARGE[0]]
)
@pytest.mark.parametrize("kind", ["random", "smooth"])
def test_every_sub_policy_equals_pillows(
    monkeypatch: pytest.MonkeyPatch, channels: int, height: int, width: int, kind: str
) -> None:
    """Each of its parts alone and both in a row, in all directions; to the bit but where interpolated."""
    rows = [
        (policy, first, second, a, b)
        for policy in range(25)
        for first, second in ((True, False), (False, True), (True, True))
        if all(p > 0 for on, (p, *_) in zip((first, second), POLICY[policy], strict=True) if on)
        for a, b in ((1, 1), (1, -1), (-1, 1), (-1, -1))
    ]
    images = pictures(kind, len(rows), channels, height, width)
    ours = apply_autoaugment(images, Drawn(monkeypatch, rows).parts)
    assert ours.dtype == torch.uint8
    tipped = []
    for row, image, result in zip(rows, images, ours, strict=True):
        policy, *on = row[:3]
        expected, rough = image, 0
        for applied, sign, (_, name, level) in zip(on, row[3:], POLICY[policy], strict=True):
            if applied:
                expected = with_pillow(expected, name, level, sign)
                rough += name in INTERPOLATED
        difference = (result.int() - expected.int()).abs()
        # Pillow interpolates in double precision and cuts the result: what is just under a level may tip.
        # Where posterize follows, a level is a step of its five bits.
        step = 8 if POLICY[policy][1][1] == "posterize" and on[1] else 1
        assert difference.max() <= (step if rough else 0), (row, POLICY[policy])
        if rough:
            tipped.append((difference > 0).float().mean())
    # At the slope of level 8, 4/15, a fifteenth of what is interpolated is a whole level, and may tip.
    slack = max(height, width) * 2**-14 if height > 32 else 0
    assert torch.stack(tipped).mean() < 0.02 + slack


PUBLISHED = """
.1 invert, .2 contrast 6; .7 rotate 2, .3 translate_x 9; .8 sharpness 1, .9 sharpness 3; .5 shear_y 8,
.7 translate_y 9; .5 autocontrast, .9 equalize; .2 shear_y 7, .3 posterize 7; .4 color 3, .6 brightness 7;
.3 sharpness 9, .7 brightness 9; .6 equalize, .5 equalize; .6 contrast 7, .6 sharpness 5; .7 color 7,
.5 translate_x 8; .3 equalize, .4 autocontrast; .4 translate_y 3, .2 sharpness 6; .9 brightness 6, .2 color 8;
.5 solarize 2, 0 invert; .2 equalize, .6 autocontrast; .2 equalize, .6 equalize; .9 color 9, .6 equalize;
.8 autocontrast, .2 solarize 8; .1 brightness 3, .7 color 0; .4 solarize 5, .9 autocontrast; .9 translate_y 9,
.7 translate_y 9; .9 autocontrast, .8 solarize 3; .8 equalize, .1 invert; .7 translate_y 9, .9 autocontrast
"""
"""The table of the paper once more, without the levels of operations that take none."""


def test_the_policy_is_the_published_one() -> None:
    pairs = [[part.split() for part in pair.split(",")] for pair in " ".join(PUBLISHED.split()).split(";")]
    assert len(pairs) == len(POLICY)
    for published, ours in zip(pairs, POLICY, strict=True):
        for (p, name, *level), (probability, operation, found) in zip(published, ours, strict=True):
            assert (float(p), name) == (probability, operation)
            assert level == [] or int(level[0]) == found
            assert bool(level) == (name in GRIDS)


def test_sub_policies_and_their_parts_come_with_their_probabilities() -> None:
    n = 250_000
    parts = draw_autoaugment(n, seeded())
    assert parts.operations.shape == parts.amounts.shape == (2, n)
    expected = torch.zeros(2, len(OPERATIONS))
    for pair in POLICY:
        for row, (probability, name, _) in enumerate(pair):
            expected[row, OPERATIONS.index("solarize" if name == "invert" else name)] += probability / 25
    for row in range(2):
        drawn = parts.operations[row]
        found = torch.bincount(drawn[drawn >= 0], minlength=len(OPERATIONS)) / n
        assert torch.allclose(found, expected[row], atol=5 * 0.5 / math.sqrt(n))
    # Whether the one is applied says nothing of the other, but for what the sub-policy says of both.
    both = (parts.operations >= 0).all(0).float().mean()
    assert abs(both - sum(a[0] * b[0] for a, b in POLICY) / 25) < 5 * 0.5 / math.sqrt(n)


def test_either_direction_is_as_probable_and_amounts_are_the_published() -> None:
    parts = draw_autoaugment(100_000, seeded(1))
    for row in range(2):
        for name in ("rotate", "shear_y", "translate_x", "translate_y"):
            here = parts.amounts[row][parts.operations[row] == OPERATIONS.index(name)]
            wanted = {
                round(float(GRIDS[name][level]), 6)
                for p in POLICY
                for _, part, level in p[row : row + 1]
                if part == name
            }
            assert {round(value, 6) for value in here.abs().unique().tolist()} == wanted
            if wanted:
                assert abs((here > 0).float().mean() - 0.5) < 5 * 0.5 / math.sqrt(len(here))
        for name in ("color", "contrast", "brightness", "sharpness"):
            here = parts.amounts[row][parts.operations[row] == OPERATIONS.index(name)] - 1
            wanted = {
                round(float(GRIDS[name][level]), 6)
                for p in POLICY
                for _, part, level in p[row : row + 1]
                if part == name
            }
            assert {round(value, 6) for value in here.abs().unique().tolist()} == wanted
    first, second = (torch.sign(row) for row in parts.amounts)
    moved = ((parts.operations == OPERATIONS.index("translate_y")).all(0)).nonzero().squeeze(1)
    assert abs((first * second)[moved].mean()) < 5 / math.sqrt(len(moved))  # each has its own direction


def test_a_seed_makes_the_view_and_nothing_else() -> None:
    images = pictures("smooth", 1, 3, 32, 32).repeat(60, 1, 1, 1)
    before = torch.get_rng_state()
    first = apply_autoaugment(images, draw_autoaugment(60, seeded()))
    assert torch.equal(first, apply_autoaugment(images, draw_autoaugment(60, seeded())))
    assert not torch.equal(first, apply_autoaugment(images, draw_autoaugment(60, seeded(1))))
    assert len(first.flatten(1).unique(dim=0)) > 20
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.slow
def test_it_is_traced_whole() -> None:
    """No break in the graph, and the same code for other draws."""
    images = pictures("smooth", 16, 3, 32, 32)
    traced: list[int] = []

    def count(module: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., object]:
        traced.append(len(module.graph.nodes))
        return module.forward

    compiled = torch.compile(apply_autoaugment, backend=count, fullgraph=True, dynamic=False)
    for seed in range(3):
        parts = draw_autoaugment(16, seeded(seed))
        assert torch.equal(compiled(images, parts), apply_autoaugment(images, parts))
    assert len(traced) == 1


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu_it_is_the_same_and_waits_for_nothing() -> None:
    images, parts = pictures("smooth", 64, 3, 32, 32), draw_autoaugment(64, seeded())
    ours = apply_autoaugment(images.cuda(), Parts(*(part.cuda() for part in parts))).cpu()
    assert ((ours.int() - apply_autoaugment(images, parts).int()).abs() > 0).float().mean() < 0.02
    generator, there = torch.Generator("cuda").manual_seed(0), images.cuda()
    draw_autoaugment(64, generator)  # reads the policy, once
    torch.cuda.set_sync_debug_mode("error")
    try:
        apply_autoaugment(there, draw_autoaugment(64, generator))
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_images_of_another_kind_are_refused() -> None:
    parts = draw_autoaugment(2, seeded())
    assert isinstance(parts, Parts)
    with pytest.raises(ValueError, match="uint8 images"):
        apply_autoaugment(torch.zeros(2, 3, 8, 8), parts)
    with pytest.raises(ValueError, match="3×3 pixels or more"):
        apply_autoaugment(torch.zeros(2, 3, 2, 8, dtype=torch.uint8), parts)
