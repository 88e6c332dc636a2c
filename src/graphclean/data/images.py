"""One encoded image, from a file or from bytes: opened with care, and as RGB whatever it was."""

import os
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
"""All that Pillow may try, whatever a file is called: its other readers are needless risk."""
DEPTHS = (2**8 - 1, 2**12 - 1, 2**16 - 1)
"""The whitest value of deep gray images, by the bits that are used of it."""
NO_FILE = "no such file"

Encoded: TypeAlias = Path | bytes
"""An image file, or the content of one."""


class UnreadableImage(Exception):  # noqa: N818 – it names the file's state, not a fault of ours
    """A file that gives no image; the message is a short reason."""


def open_image(source: Encoded, side: int | None = None) -> Image.Image:
    """The first frame of a file, upright, as RGB on white; `UnreadableImage` whatever is wrong with it.

    Safe in threads. Above `Image.MAX_IMAGE_PIXELS`, where Pillow only warns, the file is refused. Where
    about `side` pixels a side will do, a JPEG is decoded no larger than needed.
    """
    try:
        if isinstance(source, Path):
            if not source.is_file():
                raise UnreadableImage("not a file" if source.exists() else NO_FILE)
            if source.stat().st_size == 0:
                raise UnreadableImage("empty file")
        elif not source:
            raise UnreadableImage("no bytes of an image")
        with source.open("rb") if isinstance(source, Path) else BytesIO(source) as file:
            image = Image.open(file, formats=FORMATS)
            if image.width * image.height > (Image.MAX_IMAGE_PIXELS or float("inf")):
                raise Image.DecompressionBombError
            if side is not None:
                image.draft(None, (side, side))
            image.load()
            with suppress(Exception):  # broken EXIF data does not spoil the pixels
                ImageOps.exif_transpose(image, in_place=True)
            return _to_rgb(image)
    except UnreadableImage:
        raise
    except Exception as error:  # Pillow raises nearly anything on broken files
        raise UnreadableImage(short_reason(error)) from error


def _to_rgb(image: Image.Image) -> Image.Image:
    """A new RGB image; what is transparent becomes white."""
    if image.mode.startswith("I") or image.mode == "F":
        image = Image.fromarray(_to_bytes(np.asarray(image)))
    if image.has_transparency_data:
        white = Image.new("RGBA", image.size, "white")
        image = Image.alpha_composite(white, image.convert("RGBA"))
    return image.convert("RGB")


def _to_bytes(gray: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Deep gray values as 0 to 255: whole numbers by the fewest usual bits that hold them, others by range.

    Scanners write 12 bits into files of 16, which say nothing of it and would come out nearly black.
    """
    values = np.nan_to_num(gray.astype(np.float32), posinf=0, neginf=0)
    low, high = float(values.min()), float(values.max())
    if gray.dtype.kind in "ui" and low >= 0 and high <= DEPTHS[-1]:
        low, high = 0, next(depth for depth in DEPTHS if high <= depth)
    return np.asarray(np.rint((values - low) * (255 / ((high - low) or 1))), dtype=np.uint8)


def short_reason(error: Exception) -> str:
    """An error in a few words."""
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return "too many pixels"
    if isinstance(error, UnidentifiedImageError):
        return "not an image"
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno).lower()
    return "truncated" if "truncated" in str(error).lower() else "damaged"
