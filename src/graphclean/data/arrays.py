"""Images as arrays in .npz and .npy files, converted to one form: uint8, (N, C, H, W), gray or RGB."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..errors import InputError, MissingLabels, arg
from .labels import match_labels
from .numpy_files import Numbers, array_shapes, load_arrays, one_a_row, pick_array, pick_labels
from .tables import Names, check_file, refuse_unused

Images = npt.NDArray[np.uint8]
PixelKind = Literal["bytes", "bool", "integers", "fractions"]

CHANNELS = (1, 3, 4)
SCAN_BLOCK = 1024
"""Images converted at a time, so that wide types are never held twice in memory as a whole."""
DIM = 16
"""If the brightest pixel of a set is at most this, of 255, its values are probably not in 0..255."""


@dataclass(frozen=True)
class Pixels:
    """The values of the training images that map to 0 and 255; new images of the same type use the same
    mapping.
    """

    kind: PixelKind
    low: float
    high: float


@dataclass(frozen=True)
class ImageArrays:
    """Images, with labels if the file has them."""

    images: Images
    pixels: Pixels
    labels: Any = None
    notes: list[str] = field(default_factory=list)


def holds_images(path: Path, names: Names) -> bool:
    """Whether a .npz or .npy file should be read as images rather than features."""
    if path.suffix.lower() not in (".npz", ".npy") or not path.is_file() or path.stat().st_size == 0:
        return False
    if names.images_key is not None:
        return True
    if names.features_key is not None:
        return False
    shapes = array_shapes(path)
    images = [name for name, shape in shapes.items() if len(shape) in (3, 4)]
    features = [name for name, shape in shapes.items() if len(shape) == 2 and not one_a_row(shape)]
    if images and features:
        raise InputError(
            f"{path}: it holds images ({', '.join(images)}) and features ({', '.join(features)}); "
            f"choose with {arg('images_key')} or {arg('features_key')}"
        )
    return bool(images)


def read_images(
    path: Path,
    *,
    labels: Path | None = None,
    names: Names | None = None,
    labeled: bool = True,
    pixels: Pixels | None = None,
) -> ImageArrays:
    """Read images, and their labels from the same file or from the file `labels`.

    With `labeled=False` (prediction) labels are neither required nor read; `pixels` is then the mapping of
    the training images.
    """
    names = names if names is not None else Names()
    check_file(path)
    for name in ("label_column", "id_column") if labels is None else ():
        refuse_unused(names, name, path)
    if path.suffix.lower() == ".npy":
        refuse_unused(names, "images_key", path)
    arrays = load_arrays(path)
    found = pick_array(
        path, arrays, names.images_key, lambda a: a.ndim in (3, 4), "image array", arg("images_key")
    )
    images, used, notes = to_bytes(found, pixels, where=str(path))
    given: Any = None
    if labeled and labels is not None:
        given = match_labels(None, labels, names)
    elif labeled:
        flat = any(one_a_row(array.shape) for array in arrays.values())
        if path.suffix.lower() == ".npy" or (names.labels_key is None and not flat):
            raise MissingLabels(f"{path}: there are no labels in it", f"give them with {arg('labels')}")
        given = pick_labels(path, arrays, names.labels_key)
    return ImageArrays(images, used, given, notes)


def to_bytes(
    array: Numbers, pixels: Pixels | None = None, *, where: str = "images"
) -> tuple[Images, Pixels, list[str]]:
    """Convert images of any usual type and axis order to uint8 (N, C, H, W); returns the mapping of values
    and notes.

    Gray images have one channel; transparency becomes white, as for photos. `pixels` is the mapping of
    earlier images: arrays of the same type are scaled alike.
    """
    _check_type(array, where)
    first = _channels_first(array, where)
    found = _find_pixels(array, where, pixels)
    notes = []
    if found != pixels and found.kind == "integers":
        notes.append(f"{array.dtype} values from {found.low:g} to {found.high:g} were scaled to 0 to 255")
    if found != pixels and found.kind == "fractions" and found.high == 1:
        notes.append("values from 0 to 1 were scaled to 0 to 255")
    images = np.empty((len(first), *_shape(first)), dtype=np.uint8)
    for start in range(0, len(first), SCAN_BLOCK):
        images[start : start + SCAN_BLOCK] = _convert(first[start : start + SCAN_BLOCK], found)
    if first.shape[1] == 4:
        notes.append("transparent pixels were painted white")
    if images.max() <= DIM:
        notes.append(f"the brightest pixel is {images.max()} of 255: should the values be scaled?")
    return images, found, notes


def _check_type(array: Numbers, where: str) -> None:
    if array.dtype.kind not in "buif":
        raise InputError(f"{where}: images must be numbers, not {array.dtype}")
    if array.ndim not in (3, 4):
        raise InputError(f"{where}: images are arrays of 3 or 4 dimensions, not of shape {array.shape}")
    if 0 in array.shape:
        raise InputError(f"{where}: the images are empty: an array of shape {array.shape}")


def _channels_first(array: Numbers, where: str) -> Numbers:
    """A view as (N, C, H, W); refused if the shape is ambiguous."""
    shape = array.shape
    if array.ndim == 3:
        if shape[2] in CHANNELS:
            raise InputError(
                f"{where}: shape {shape} looks like one color image; many are (N, H, W) or (N, H, W, C)"
            )
        return array[:, None]
    ahead, behind = shape[1] in CHANNELS, shape[3] in CHANNELS
    if ahead and behind:
        raise InputError(
            f"{where}: shape {shape} may have its channels first or last: images this small don't show it"
        )
    if not ahead and not behind:
        raise InputError(f"{where}: shape {shape} has no axis of 1, 3 or 4 channels, neither second nor last")
    return array if ahead else np.moveaxis(array, 3, 1)


def _shape(first: Numbers) -> tuple[int, ...]:
    """The shape of one image without its alpha channel."""
    return (min(first.shape[1], 3), *first.shape[2:])


def _find_pixels(array: Numbers, where: str, earlier: Pixels | None) -> Pixels:
    """What the values mean, from their type and range, or as for earlier images of the same type."""
    if array.dtype == np.bool_:
        return Pixels("bool", 0, 1)
    if array.dtype == np.uint8:
        return Pixels("bytes", 0, 255)
    low, high = float(array.min()), float(array.max())
    whole = array.dtype.kind in "iu"
    if not whole and not np.isfinite(low + high):
        rows = np.flatnonzero(~np.isfinite(array.reshape(len(array), -1)).all(1))
        some = ", ".join(str(row) for row in rows[:3]) + (", …" if len(rows) > 3 else "")
        count = f"{len(rows)} of {len(array)} images (counted from 0: {some})"
        raise InputError(f"{where}: NaN or infinite values in {count}; drop or mend them")
    if earlier is not None and earlier.kind in (("integers", "bytes") if whole else ("fractions",)):
        other_scale = earlier.kind == "fractions" and earlier.high > 1 and 0 < high <= 1
        if earlier.kind != "integers" and (low < 0 or high > earlier.high or other_scale):
            raise InputError(
                f"{where}: values from {low:g} to {high:g}, but the run was trained on "
                f"{earlier.low:g} to {earlier.high:g}"
            )
        return earlier
    if whole:
        return Pixels("bytes", 0, 255) if low >= 0 and high <= 255 else Pixels("integers", min(low, 0), high)
    if low >= 0 and high <= 1:
        return Pixels("fractions", 0, 1)
    if low >= 0 and 4 * DIM < high <= 255:
        return Pixels("fractions", 0, 255)
    raise InputError(
        f"{where}: values from {low:g} to {high:g} are neither 0 to 1 nor 0 to 255; "
        "scale them, or save them as uint8"
    )


def _convert(block: Numbers, pixels: Pixels) -> Images:
    if pixels.kind != "bytes":
        scaled = (block.astype(np.float64) - pixels.low) * (255 / ((pixels.high - pixels.low) or 1))
        block = np.rint(scaled.clip(0, 255))
    if block.shape[1] == 4:
        opaque = block[:, 3:].astype(np.float64) / 255
        block = np.rint(block[:, :3] * opaque + 255 * (1 - opaque))
    return block.astype(np.uint8)
