"""Measurements of a photo, taken while it is decoded for its embedding, so that it is decoded only once."""

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
"""One record per photo: width and height of the upright photo; the 5th and 99th percentile of brightness and
the largest standard deviation of a channel (white is 1); the entropy of all channel values in bits; the
standard deviations of its gray thumbnail's edges (white is 255) and of that thumbnail's histogram; the 99th
percentile of the range between a pixel's channels (0 to 1); and a perceptual hash, which changes little when
a photo is recompressed, rescaled, slightly cropped or brightened.
"""
MEASURED_SIDE = 128
"""Larger photos are subsampled evenly to this side in pixels, which preserves the distribution of values."""
EDGE_SIDE = 64
"""Longer side in pixels at which edges are detected, however large a photo is."""
HASHED_SIDE, WAVES = 32, 8
"""Side in pixels of the hashed image, and the number of lowest frequencies along each side."""
LUMINANCE = np.array([0.241, 0.691, 0.068], dtype=np.float32)
"""Weights of squared red, green and blue in perceived brightness."""

COSINES = np.cos(np.pi / HASHED_SIDE * np.outer(np.arange(WAVES), np.arange(HASHED_SIDE) + 0.5))
"""The lowest frequencies of the DCT, as rows."""

Measures: TypeAlias = npt.NDArray[np.void]
"""Records of `MEASURES`."""


def measure_photo(image: Image.Image, size: tuple[int, int] | None = None) -> tuple[Any, ...]:
    """The record of an upright RGB photo; `size` is that of the photo, if the image is a smaller copy."""
    small = _shrink(image, MEASURED_SIDE, Image.Resampling.NEAREST)
    pixels = np.asarray(small, dtype=np.float32).reshape(-1, 3) / 255
    darkest, brightest = np.percentile(np.sqrt(np.square(pixels) @ LUMINANCE), [5, 99])
    thumbnail = _shrink(image, EDGE_SIDE, Image.Resampling.BICUBIC).convert("L")
    edges = np.asarray(thumbnail.filter(ImageFilter.FIND_EDGES), dtype=np.float32)
    return (
        *(size if size is not None else image.size),
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
    """Perceptual hash: which of the lowest DCT frequencies, except the mean, exceed their median: 63 bits,
    then 0.
    """
    square = gray.resize((HASHED_SIDE, HASHED_SIDE), Image.Resampling.BILINEAR)
    low = (COSINES @ np.asarray(square, dtype=np.float64) @ COSINES.T).ravel()[1:]
    bits = np.append(low > np.median(low), False)
    return int(np.packbits(bits).view(">i8")[0])


def _shrink(image: Image.Image, side: int, how: Image.Resampling) -> Image.Image:
    """Downscale a photo whose longer side exceeds `side`."""
    ratio = max(image.size) / side
    if ratio <= 1:
        return image
    size = max(int(image.width // ratio), 1), max(int(image.height // ratio), 1)
    return image.resize(size, how)
