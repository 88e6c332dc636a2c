"""What is measured of a photo while it is decoded for its embedding, so that it is decoded once."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image

MEASURES = np.dtype(
    [
        *((name, np.int32) for name in ("width", "height")),
        *((name, np.float32) for name in ("darkest", "brightest", "contrast", "entropy")),
        *((name, np.float32) for name in ("sharpness", "color")),
    ]
)
"""One record a photo: pixels of the upright photo; the 5th and the 99th percentile of brightness and the
largest standard deviation of a channel (white is 1); the entropy of brightness in bits; the variance of its
Laplacian over its own; and the 99th percentile of how far the channels of a pixel are apart.
"""
MEASURED_SIDE = 128
"""Pixels of the longer side of the copy that is measured; smaller photos are measured as they are."""

Measures: TypeAlias = npt.NDArray[np.void]
"""Records of `MEASURES`."""


def measure_photo(image: Image.Image) -> tuple[Any, ...]:
    """The record of an upright RGB photo."""
    scale = min(1.0, MEASURED_SIDE / max(image.size))
    sides = max(1, round(image.width * scale)), max(1, round(image.height * scale))
    small = image if sides == image.size else image.resize(sides, Image.Resampling.BOX)
    pixels = np.asarray(small, dtype=np.float32)
    gray = np.asarray(small.convert("L"))
    levels = np.bincount(gray.ravel(), minlength=256)
    rank = np.cumsum(levels) / gray.size
    fraction = levels[levels > 0] / gray.size
    light = np.asarray(gray / 255, dtype=np.float32)
    return (
        *image.size,
        int(np.searchsorted(rank, 0.05)) / 255,
        int(np.searchsorted(rank, 0.99)) / 255,
        float(pixels.std((0, 1)).max()) / 255,
        float(-(fraction * np.log2(fraction)).sum()),
        _laplacian_variance(light) / max(float(light.var()), 1e-9),
        float(np.quantile(np.ptp(pixels, axis=2), 0.99)) / 255,
    )


def as_measures(records: list[tuple[Any, ...]]) -> Measures:
    """Records of several photos as one array."""
    return np.array(records, dtype=MEASURES)


def _laplacian_variance(light: npt.NDArray[np.float32]) -> float:
    """Of the four neighbors less the middle; 0 where a photo has no inner pixel."""
    if min(light.shape) < 3:
        return 0.0
    sides = light[:-2, 1:-1] + light[2:, 1:-1] + light[1:-1, :-2] + light[1:-1, 2:]
    return float((sides - 4 * light[1:-1, 1:-1]).var())
