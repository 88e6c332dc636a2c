"""What is measured of a photo, against plain definitions."""

from io import BytesIO

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageFilter
from scipy import fft, ndimage, stats

from graphclean.cleaning.duplicates import HASH_BITS
from graphclean.data.measures import (
    EDGE_SIDE,
    MEASURED_SIDE,
    MEASURES,
    Measures,
    as_measures,
    measure_photo,
)


def measured(image: Image.Image) -> Measures:
    return as_measures([measure_photo(image)])[0]


def noise(seed: int = 0, size: tuple[int, int] = (60, 40), high: int = 256) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, high, (size[1], size[0], 3))
    return Image.fromarray(pixels.astype(np.uint8))


def test_measures_are_those_of_their_definitions() -> None:
    """Of a photo small enough to be measured as it is."""
    image = noise()
    found = measured(image)
    pixels = np.asarray(image) / 255
    red, green, blue = (np.asarray(image, dtype=np.float64)[..., channel] for channel in range(3))
    brightness = np.sqrt(0.241 * red**2 + 0.691 * green**2 + 0.068 * blue**2) / 255
    gray = np.asarray(image.convert("L"), dtype=np.float64)
    kernel = -np.ones((3, 3))
    kernel[1, 1] = 8
    edges = gray.copy()  # those at the rim stay as they are
    edges[1:-1, 1:-1] = ndimage.convolve(gray, kernel).clip(0, 255)[1:-1, 1:-1]
    values = np.concatenate([np.bincount(np.asarray(image)[..., channel].ravel()) for channel in range(3)])
    expected = {
        "width": 60,
        "height": 40,
        "darkest": np.percentile(brightness, 5),
        "brightest": np.percentile(brightness, 99),
        "contrast": pixels.reshape(-1, 3).std(0).max(),
        "entropy": stats.entropy(values, base=2),
        "edges": edges.std(),
        "peaks": np.bincount(gray.astype(int).ravel(), minlength=256).std(),
        "color": np.quantile(pixels.max(2) - pixels.min(2), 0.99),
    }
    assert {*expected, "hash"} == set(MEASURES.names or ())
    for name, value in expected.items():
        assert float(found[name]) == pytest.approx(value, rel=1e-4), name


def test_of_large_photos_a_part_is_measured_and_blur_shows() -> None:
    sharp = noise(size=(900, 600))
    small, large = measured(sharp.resize((128, 85), Image.Resampling.NEAREST)), measured(sharp)
    assert (large["width"], large["height"]) == (900, 600)
    assert MEASURED_SIDE == 128
    for name in ("darkest", "brightest", "contrast", "entropy", "color"):
        assert float(large[name]) == pytest.approx(float(small[name]), rel=1e-5), name
    thumbnail = sharp.resize((EDGE_SIDE, 42), Image.Resampling.BICUBIC)
    assert float(large["edges"]) == pytest.approx(float(measured(thumbnail)["edges"]), rel=1e-5)
    blurred = measured(noise(size=(60, 40)).filter(ImageFilter.GaussianBlur(4)))
    assert blurred["edges"] < measured(noise(size=(60, 40)))["edges"] / 3


@pytest.mark.parametrize("size", [(1, 1), (2, 500), (4000, 1)])
def test_odd_shapes_have_measures(size: tuple[int, int]) -> None:
    found = measured(Image.new("RGB", size, (9, 9, 9)))
    assert (found["width"], found["height"]) == size
    assert all(np.isfinite(found[name]) for name in MEASURES.names or ())
    assert (found["edges"], found["color"]) == (0, 0)
    assert found["contrast"] == pytest.approx(0, abs=1e-6)
    assert found["entropy"] == pytest.approx(np.log2(3))  # one value in each of three channels


def scene(seed: int) -> Image.Image:
    """Smooth shapes, as photos have."""
    rng = np.random.default_rng(seed)
    rough = ndimage.gaussian_filter(rng.normal(size=(120, 160, 3)), (12, 12, 0))
    return Image.fromarray((128 + 60 * rough / rough.std()).clip(0, 255).astype(np.uint8))


def bits(image: Image.Image) -> np.ndarray:
    return np.unpackbits(np.array(measured(image)["hash"]).astype(">i8").reshape(1).view(np.uint8))


def test_the_hash_is_of_the_lowest_frequencies() -> None:
    """By SciPy's DCT."""
    image = scene(0).resize((32, 32))
    low = fft.dctn(np.asarray(image.convert("L"), dtype=float))[:8, :8].ravel()[1:]
    assert bits(image).tolist() == [*(low > np.median(low)).astype(int), 0]


def test_the_hash_stays_where_a_photo_is_saved_again_and_differs_between_photos() -> None:
    photos = [scene(seed) for seed in range(20)]
    hashes = np.array([bits(photo) for photo in photos])
    for photo, own in zip(photos, hashes, strict=True):
        saved = BytesIO()
        photo.save(saved, "JPEG", quality=50)
        changed = {
            "saved again": Image.open(saved).convert("RGB"),
            "scaled": photo.resize((80, 60)),
            "brightened": ImageEnhance.Brightness(photo).enhance(1.2),
            "cropped": photo.crop((4, 6, 156, 120)),
        }
        for how, other in changed.items():
            assert (bits(other) != own).sum() <= (4 if how in ("saved again", "scaled") else HASH_BITS), how
    apart = (hashes[:, None] != hashes[None]).sum(2)[np.triu_indices(20, 1)]
    assert apart.mean() == pytest.approx(31.5, abs=1)
    assert apart.min() > HASH_BITS
