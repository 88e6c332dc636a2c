"""What is measured of a photo while it is decoded for its embedding, so that it is decoded once."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFilter

MEASURES = np.dtype(
    [
        *((name, np.int32) for name in ("width", "height")),
        *((name, np.float32) for name in ("darkest", "brightest", "contrast", "entropy")),
        *((name, np.float32) for name in ("edges", "peaks", "color")),
        ("hash", np.int64),
    ]
)
"""One record a photo: pixels of the upright photo; the 5th and the 99th percentile of brightness and the
largest standard deviation of a channel (white is 1); the entropy of all values of all channels in bits; the
standard deviation of the edges of its gray thumbnail (white is 255) and that of the thumbnail's histogram;
the 99th percentile of how far the channels of a pixel are apart (white and black are 1 apart); and a
perceptual hash, which changes little when a photo is saved again, scaled, cropped a little or brightened.
"""
MEASURED_SIDE = 128
"""Of larger photos so many pixels a side are measured, evenly spread: values keep their distribution."""
EDGE_SIDE = 64
"""Pixels of the longer side at which edges are sought, however large a photo is."""
HASHED_SIDE, WAVES = 32, 8
"""Pixels a side of what is hashed, and the number of its lowest frequencies along each side."""
LUMINANCE = np.array([0.241, 0.691, 0.068], dtype=np.float32)
"""Of squared red, green and blue, as they are perceived."""

COSINES = np.cos(np.pi / HASHED_SIDE * np.outer(np.arange(WAVES), np.arange(HASHED_SIDE) + 0.5))
"""The lowest frequencies of the DCT, as rows."""

Measures: TypeAlias = npt.NDArray[np.void]
"""Records of `MEASURES`."""


def measure_photo(image: Image.Image) -> tuple[Any, ...]:
    """The record of an upright RGB photo."""
    small = _shrink(image, MEASURED_SIDE, Image.Resampling.NEAREST)
    pixels = np.asarray(small, dtype=np.float32).reshape(-1, 3) / 255
    darkest, brightest = np.percentile(np.sqrt(np.square(pixels) @ LUMINANCE), [5, 99])
    thumbnail = _shrink(image, EDGE_SIDE, Image.Resampling.BICUBIC).convert("L")
    edges = np.asarray(thumbnail.filter(ImageFilter.FIND_EDGES), dtype=np.float32)
    return (
        *image.size,
        float(darkest),
        float(brightest),
        float(pixels.std(0).max()),
        small.entropy(),
        float(edges.std()),
        float(np.std(thumbnail.histogram())),
        float(np.quantile(np.ptp(pixels, axis=1), 0.99)),
        _perceptual_hash(thumbnail),
    )


def as_measures(records: list[tuple[Any, ...]]) -> Measures:
    """Records of several photos as one array."""
    return np.array(records, dtype=MEASURES)


def _perceptual_hash(gray: Image.Image) -> int:
    """Which of the lowest frequencies (DCT, without the mean) are over their median: 63 bits, then 0."""
    square = gray.resize((HASHED_SIDE, HASHED_SIDE), Image.Resampling.BILINEAR)
    low = (COSINES @ np.asarray(square, dtype=np.float64) @ COSINES.T).ravel()[1:]
    bits = np.append(low > np.median(low), False)
    return int(np.packbits(bits).view(">i8")[0])


def _shrink(image: Image.Image, side: int, how: Image.Resampling) -> Image.Image:
    """The same photo, its longer side no longer than `side`."""
    ratio = max(image.size) / side
    if ratio <= 1:
        return image
    size = max(int(image.width // ratio), 1), max(int(image.height // ratio), 1)
    return image.resize(size, how)
