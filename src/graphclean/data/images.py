"""One encoded image, from a file or from bytes: opened with care, and as RGB whatever it was."""

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import IO, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError, features

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
"""All that Pillow may try, whatever a file is called: its other readers are needless risk."""
DEPTHS = (2**8 - 1, 2**12 - 1, 2**16 - 1)
"""The whitest value of deep gray images, by the bits that are used of it."""
NO_FILE = "no such file"
PIXEL_BYTES, WEBP_PIXEL_BYTES = 10, 18
"""Peak memory per pixel while an image is decoded and converted to RGB; the library for WebP makes copies."""
GIVEN_BACK = 2**26
"""Reservations in bytes after which memory is given back."""
STRIP = 2**20
"""Pixels converted at a time where the conversion needs large intermediate copies."""

ORIENTATION, SIDEWAYS = ExifTags.Base.Orientation, (5, 6, 7, 8)
"""EXIF's orientation, and its values for images that lie on their side."""
Decoder: TypeAlias = Literal["pillow", "simplejpeg"]
SMALLEST_SCALED = 16
"""Side in pixels below which two scales of a JPEG may have the same size."""


@dataclass(frozen=True)
class FilePart:
    """A file within another one, such as a member of a tar archive."""

    path: Path
    offset: int
    size: int

    def read(self) -> bytes:
        """The content; `UnreadableImage` where the file is gone or has become shorter."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                content = file.read(self.size)
        except OSError as error:
            raise UnreadableImage(short_reason(error)) from error
        if len(content) < self.size:
            raise UnreadableImage("truncated")
        return content


Encoded: TypeAlias = Path | bytes | FilePart
"""An image file, its content, or its place in an archive."""


class OpenedImage(NamedTuple):
    """An image, which may have been decoded at a smaller scale."""

    image: Image.Image
    size: tuple[int, int]
    """Width and height of the upright image at its full scale."""


class Room:
    """A memory budget shared by all threads: a reservation waits until enough is free."""

    def __init__(self, size: int) -> None:
        self.size = self.free = size
        self._changed = threading.Condition()

    @contextmanager
    def reserved(self, size: int) -> Iterator[None]:
        """Hold that many bytes during the block; anything larger than the budget gets all of it."""
        size = min(size, self.size)
        with self._changed:
            self._changed.wait_for(lambda: self.free >= size)
            self.free -= size
        try:
            yield
        finally:
            if size >= GIVEN_BACK:
                _return_memory()
            with self._changed:
                self.free += size
                self._changed.notify_all()


def _return_memory() -> None:
    """Give freed memory back to the system: glibc keeps for each thread what its largest image took."""
    with suppress(OSError, AttributeError, TypeError):  # another library, or Windows
        ctypes.CDLL(None).malloc_trim(0)


DECODING = Room(2**30)
"""For images decoded at the same time; the largest image accepted takes nearly all of it.

Only a WebP image of more than 60 million pixels takes more, up to 1.5 times as much, and is decoded alone.
"""


class UnreadableImage(Exception):  # noqa: N818 – it names the file's state, not a fault of ours
    """A file that gives no image; the message is a short reason."""


def open_image(source: Encoded, side: int | None = None) -> Image.Image:
    """The first frame of a file, upright, as RGB on white; `UnreadableImage` whatever is wrong with it.

    Safe in threads. Above `Image.MAX_IMAGE_PIXELS`, where Pillow only warns, the file is refused. Where
    about `side` pixels a side will do, a JPEG is decoded no larger than needed.
    """
    return read_image(source, side).image


def read_image(source: Encoded, side: int | None = None, decoder: Decoder = "pillow") -> OpenedImage:
    """`open_image`, with the size at full scale.

    With `decoder` simplejpeg, that decodes JPEGs, except those that it rejects. Its pixels are the same as
    Pillow's where both were built with the same version of libjpeg-turbo.
    """
    try:
        with _open(source) as file:
            image: Image.Image = Image.open(file, formats=FORMATS)
            if image.width * image.height > (Image.MAX_IMAGE_PIXELS or float("inf")):
                raise Image.DecompressionBombError
            full = image.size
            if side is not None:
                image.draft(None, (side, side))
            if decoder == "simplejpeg" and image.format == "JPEG" and image.mode in ("RGB", "L"):
                image = _decode_fast(image, file, full)
            image.load()
            with suppress(Exception):  # broken EXIF data does not spoil the pixels
                turned = image.getexif().get(ORIENTATION) in SIDEWAYS
                ImageOps.exif_transpose(image, in_place=True)
                full = full[::-1] if turned else full
            return OpenedImage(_to_rgb(image), full)
    except UnreadableImage:
        raise
    except Exception as error:  # Pillow raises nearly anything on broken files
        raise UnreadableImage(short_reason(error)) from error


def _open(source: Encoded) -> IO[bytes]:
    """The file, or its content as one; refused where there is nothing to read."""
    if isinstance(source, Path):
        if not source.is_file():
            raise UnreadableImage("not a file" if source.exists() else NO_FILE)
        if source.stat().st_size == 0:
            raise UnreadableImage("empty file")
        return source.open("rb")
    content = source.read() if isinstance(source, FilePart) else source
    if not content:
        raise UnreadableImage("no bytes of an image")
    return BytesIO(content)


def _decode_fast(image: Image.Image, file: IO[bytes], full: tuple[int, int]) -> Image.Image:
    """A JPEG, opened by Pillow, as decoded by simplejpeg at the same scale; as it was if that refuses it."""
    import simplejpeg

    if image.size != full and min(image.size) < SMALLEST_SCALED:
        return image
    place = file.tell()
    file.seek(0)
    least = {} if image.size == full else {"min_width": image.width, "min_height": image.height}
    gray = image.mode == "L"
    try:
        pixels = simplejpeg.decode_jpeg(file.read(), colorspace="GRAY" if gray else "RGB", **least)
    except ValueError:  # it stops where Pillow goes on
        pixels = None
    file.seek(place)
    if pixels is None or pixels.shape[1::-1] != image.size:
        return image
    decoded = Image.fromarray(pixels[:, :, 0] if gray else pixels)
    decoded.info = image.info  # with the orientation
    return decoded


def find_decoder() -> Decoder:
    """The fastest installed decoder of JPEGs (extra jpeg)."""
    return "simplejpeg" if find_spec("simplejpeg") is not None else "pillow"


def decoder_version(decoder: Decoder) -> str:
    """What the pixels of an image depend on besides its file."""
    parts = [f"Pillow {version('pillow')}", f"libjpeg-turbo {features.version('libjpeg_turbo')}"]
    return ", ".join([*parts, *([f"simplejpeg {version('simplejpeg')}"] if decoder != "pillow" else [])])


def decoded_bytes(source: Encoded, side: int | None = None) -> int:
    """Peak memory of `open_image`; 0 for files it rejects before decoding."""
    try:
        with _open(source) as file:
            image = Image.open(file, formats=FORMATS)
            if side is not None:
                image.draft(None, (side, side))
            return peak_bytes(image)
    except Exception:  # as there
        return 0


def peak_bytes(image: Image.Image) -> int:
    """Peak memory until an image that was opened, but not loaded, is decoded and converted."""
    return image.width * image.height * (WEBP_PIXEL_BYTES if image.format == "WEBP" else PIXEL_BYTES)


def _to_rgb(image: Image.Image) -> Image.Image:
    """An RGB image; what is transparent becomes white."""
    if image.mode.startswith("I") or image.mode == "F":
        image = Image.fromarray(_to_bytes(image))
    if not image.has_transparency_data:
        return image if image.mode == "RGB" else image.convert("RGB")
    opaque = Image.new("RGB", image.size)
    for rows in _strips(image.height, image.width):
        part = image.crop((0, rows.start, image.width, rows.stop)).convert("RGBA")
        opaque.paste(Image.alpha_composite(Image.new("RGBA", part.size, "white"), part), (0, rows.start))
    return opaque


def _to_bytes(gray: Image.Image) -> npt.NDArray[np.uint8]:
    """Deep gray values as 0 to 255: whole numbers by the fewest usual bits that hold them, others by range.

    Scanners write 12 bits into files of 16, which say nothing of it and would come out nearly black.
    """

    def values(rows: slice) -> npt.NDArray[np.float32]:
        strip = np.asarray(gray.crop((0, rows.start, gray.width, rows.stop)))
        return np.nan_to_num(strip.astype(np.float32), posinf=0, neginf=0)

    strips = list(_strips(gray.height, gray.width))
    low = min(float(values(rows).min()) for rows in strips)
    high = max(float(values(rows).max()) for rows in strips)
    if gray.mode != "F" and low >= 0 and high <= DEPTHS[-1]:
        low, high = 0, next(depth for depth in DEPTHS if high <= depth)
    found = np.empty((gray.height, gray.width), dtype=np.uint8)
    for rows in strips:
        found[rows] = np.rint((values(rows) - low) * (255 / ((high - low) or 1)))
    return found


def _strips(height: int, width: int) -> Iterator[slice]:
    """Rows in pieces of about `STRIP` pixels."""
    step = max(STRIP // max(width, 1), 1)
    return (slice(top, min(top + step, height)) for top in range(0, height, step))


def short_reason(error: Exception) -> str:
    """An error in a few words."""
    if isinstance(error, Image.DecompressionBombError | Image.DecompressionBombWarning):
        return "too many pixels"
    if isinstance(error, UnidentifiedImageError):
        return "not an image"
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno).lower()
    return "truncated" if "truncated" in str(error).lower() else "damaged"
