"""SimCLR's color jitter: Pillow's enhancers in any order, and a hue against the standard library."""

import colorsys

import numpy as np
import pytest
import torch

from graphclean.training.color_jitter import Jitter, apply_jitter, draw_jitter, shift_hue
from graphclean.training.operations import OPERATIONS, apply_operations


def pictures(n: int = 6, channels: int = 3) -> torch.Tensor:
    return torch.randint(0, 256, (n, channels, 5, 4), generator=torch.Generator().manual_seed(0)).to(
        torch.uint8
    )


def test_the_hue_is_shifted_as_the_standard_library_does_it() -> None:
    images = pictures()
    images[0, :, 0, 0] = 128  # gray has no hue
    shift = torch.tensor([0.1, -0.1, 0.0, 0.05, 0.33, 1.0])
    found = shift_hue(images, shift)
    for image, moved, by in zip(images, found, shift.tolist(), strict=True):
        for pixel, after in zip(image.flatten(1).T, moved.flatten(1).T, strict=True):
            hue, saturation, value = colorsys.rgb_to_hsv(*(pixel.double() / 255).tolist())
            expected = colorsys.hsv_to_rgb((hue + by) % 1, saturation, value)
            assert np.abs(255 * np.array(expected) - after.numpy()).max() <= 0.51


def test_draws_are_within_their_bounds_and_come_in_every_order() -> None:
    jitter = draw_jitter(20_000, torch.Generator().manual_seed(0))
    names = [OPERATIONS.index(name) for name in ("brightness", "contrast", "color")]
    jittered = jitter.operations[0] >= 0
    assert float(jittered.float().mean()) == pytest.approx(0.8, abs=0.01)
    orders = torch.unique(jitter.operations[:, jittered], dim=1)
    assert orders.shape == (3, 6)
    assert sorted(orders[:, 0].tolist()) == sorted(names)
    assert float(jitter.amounts.min()) == pytest.approx(0.6, abs=1e-3)
    assert float(jitter.amounts.max()) == pytest.approx(1.4, abs=1e-3)
    assert not jitter.hue[~jittered].any()
    assert float(jitter.hue.abs().max()) == pytest.approx(0.1, abs=1e-3)
    assert float((jitter.gray >= 0).float().mean()) == pytest.approx(0.2, abs=0.01)


def test_operations_follow_each_other_then_the_hue_then_gray() -> None:
    images = pictures(3)
    brightness, contrast, color = (OPERATIONS.index(name) for name in ("brightness", "contrast", "color"))
    jitter = Jitter(
        torch.tensor([[brightness, -1, color], [contrast, -1, brightness], [color, -1, contrast]]),
        torch.tensor([[1.2, 1, 0.7], [0.8, 1, 1.3], [1.4, 1, 0.6]]),
        torch.tensor([0.05, 0.0, -0.1]),
        torch.tensor([-1, -1, color]),
    )
    found = apply_jitter(images, jitter)
    for i in (0, 2):
        one = images[i : i + 1]
        for operation, amount in zip(jitter.operations[:, i], jitter.amounts[:, i], strict=True):
            one = apply_operations(one, operation[None], amount[None])
        one = shift_hue(one, jitter.hue[i : i + 1])
        if i == 2:
            one = apply_operations(one, torch.tensor([color]), torch.zeros(1))
        assert torch.equal(found[i : i + 1], one)
    assert torch.equal(found[1], images[1])
    assert (found[2] == found[2, :1]).all(), "gray"


def test_images_of_one_channel_stay_so() -> None:
    images = pictures(50, 1)
    found = apply_jitter(images, draw_jitter(50, torch.Generator().manual_seed(0)))
    assert found.shape == images.shape
    assert not torch.equal(found, images)
