"""One way to 32 px, checked against torch's; and the control."""

import numpy as np
import torch
from PIL import Image

from graphclean.data.resize import resampling_control, to_array, to_square
from tests.data.builders import pixels


def photo(array: np.ndarray) -> Image.Image:
    return Image.fromarray(array.transpose(1, 2, 0).copy())


def smooth(count: int) -> np.ndarray:
    """Images without fine detail, as photos mostly are."""
    rough = torch.as_tensor(pixels(count, side=8)).float()
    large = torch.nn.functional.interpolate(rough, size=32, mode="bicubic")
    return large.round().clamp(0, 255).to(torch.uint8).numpy()


def test_images_at_32_px_are_left_alone() -> None:
    (image,) = pixels(1)
    opened = photo(image)
    assert to_square(opened) is opened
    assert np.array_equal(to_array(opened), image)


def test_resampling_is_bicubic_with_antialias() -> None:
    for side in (64, 256, 48, 20):
        (image,) = pixels(1, side=side) // 4 + 96  # Pillow cuts overshoot between its two passes
        oracle = torch.nn.functional.interpolate(
            torch.as_tensor(image)[None].double(), size=32, mode="bicubic", antialias=True
        )[0].clamp(0, 255)
        assert np.abs(to_array(photo(image)) - oracle.numpy()).max() < 1.25  # two roundings


def test_detail_too_fine_for_32_px_does_not_fold_back() -> None:
    stripes = np.zeros((3, 64, 64), dtype=np.uint8)
    stripes[:, :, ::2] = 255
    inner = to_array(photo(stripes))[:, :, 4:-4]
    assert inner.min() > 120
    assert inner.max() < 135


def test_the_center_square_is_taken() -> None:
    wide = np.zeros((3, 40, 120), dtype=np.uint8)
    wide[:, :, 40:80] = 200
    assert (to_array(photo(wide)) == 200).all()
    assert (to_array(photo(wide.transpose(0, 2, 1))) == 200).all()


def test_gray_images_become_rgb() -> None:
    assert to_array(Image.new("L", (50, 50), 77)).tolist() == np.full((3, 32, 32), 77).tolist()


def test_the_control_changes_pixels_little_but_goes_through_jpeg() -> None:
    images = smooth(5)
    control = resampling_control(images)
    assert control.shape == images.shape
    assert control.dtype == np.uint8
    difference = np.abs(control.astype(int) - images)
    assert 0 < difference.mean() < 6
    resampled = np.stack(
        [to_array(photo(image).resize((64, 64), Image.Resampling.BICUBIC)) for image in images]
    )
    assert not np.array_equal(control, resampled)
