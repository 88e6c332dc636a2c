"""The one way to resize to a small square, and a control that tests whether it leaves a trace."""

from io import BytesIO

import numpy as np
import numpy.typing as npt
from PIL import Image

DECODED_SIDE = 32
"""Side in pixels of every image of the paper's cells."""
CONTROL_SIDE = 64
"""TinyImageNet's original size, from which its images are scaled down."""
CONTROL_QUALITY = 90


def to_square(image: Image.Image, size: int = DECODED_SIDE) -> Image.Image:
    """An RGB image of `size` px a side: the center square, resampled once; an image of that size is
    unchanged.

    Bicubic, with the filter widened to the scale (Pillow's `resize`), so that detail does not alias.
    """
    image = image if image.mode == "RGB" else image.convert("RGB")
    width, height = image.size
    if (width, height) == (size, size):
        return image
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    # Cropped first: `resize` with a box would look past its edges. A square needs no copy of itself.
    square = image if width == height else image.crop((left, top, left + side, top + side))
    return square.resize((size, size), Image.Resampling.BICUBIC)


def to_array(image: Image.Image, size: int = DECODED_SIDE) -> npt.NDArray[np.uint8]:
    """The same as an array with channels first: (3, size, size)."""
    return np.asarray(to_square(image, size), dtype=np.uint8).transpose(2, 0, 1)


def resampling_control(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Images (N, 3, 32, 32) processed like the OOD images: enlarged to 64 px, through JPEG, and scaled down.

    A detector that separates these from the originals detects the resampling, not the class.
    """
    return np.stack([_control_one(image) for image in images])


def _control_one(image: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    large = Image.fromarray(np.ascontiguousarray(image.transpose(1, 2, 0))).resize(
        (CONTROL_SIDE, CONTROL_SIDE), Image.Resampling.BICUBIC
    )
    stored = BytesIO()
    large.save(stored, "JPEG", quality=CONTROL_QUALITY)
    with Image.open(stored, formats=("JPEG",)) as opened:
        return to_array(opened)
