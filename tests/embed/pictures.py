"""Small pictures made by formulas, each with something wrong, or nothing."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageFilter

Plane = npt.NDArray[np.float64]


def scene(width: int = 96, height: int = 64) -> Image.Image:
    """Bright and dark, in color, with edges: waves, and a disk with a checkerboard on it."""
    y, x = np.mgrid[:height, :width] / max(width, height)
    disk = (x - 0.5) ** 2 + (y - 0.33) ** 2 < 0.04
    board = ((np.floor(16 * x) + np.floor(16 * y)) % 2) * disk
    return _image(
        0.5 + 0.5 * np.sin(9 * x + 4 * y) * (1 - disk) - 0.4 * board,
        0.5 + 0.4 * np.cos(7 * y - 3 * x),
        x * (1 - disk) + board,
    )


def _image(*planes: Plane) -> Image.Image:
    return Image.fromarray(np.rint(255 * np.clip(np.stack(planes, -1), 0, 1)).astype(np.uint8))


def _scaled(factor: float, offset: float = 0.0) -> Image.Image:
    pixels = np.asarray(scene(), dtype=np.float64) / 255
    return _image(*np.moveaxis(offset + factor * pixels, -1, 0))


PICTURES: dict[str, Callable[[], Image.Image]] = {
    "scene": scene,
    "dark": lambda: _scaled(0.25),
    "bright": lambda: _scaled(0.04, 0.96),
    "blurred": lambda: scene(640, 480).filter(ImageFilter.GaussianBlur(120)),
    "two tones": lambda: scene().convert("1").convert("RGB"),
    "large": lambda: scene(600, 400),
    "long": lambda: scene(200, 40),
    "gray": lambda: scene().convert("L").convert("RGB"),
    "blank": lambda: Image.new("RGB", (96, 64), (40, 90, 160)),
    "black": lambda: Image.new("RGB", (96, 64)),
}
