"""What is measured of a photo, against plain definitions."""

import numpy as np
import pytest
from PIL import Image, ImageFilter
from scipy import ndimage, stats

from graphclean.embed.measures import MEASURED_SIDE, MEASURES, Measures, as_measures, measure_photo


def measured(image: Image.Image) -> Measures:
    return as_measures([measure_photo(image)])[0]


def noise(seed: int = 0, size: tuple[int, int] = (90, 60), high: int = 256) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, high, (size[1], size[0], 3))
    return Image.fromarray(pixels.astype(np.uint8))


def test_measures_are_those_of_their_definitions() -> None:
    """Of a photo small enough to be measured as it is."""
    image = noise()
    found = measured(image)
    gray = np.asarray(image.convert("L")) / 255
    pixels = np.asarray(image) / 255
    laplacian = ndimage.laplace(gray)[1:-1, 1:-1]
    expected = {
        "width": 90,
        "height": 60,
        "darkest": np.quantile(gray, 0.05, method="inverted_cdf"),
        "brightest": np.quantile(gray, 0.99, method="inverted_cdf"),
        "contrast": pixels.reshape(-1, 3).std(0).max(),
        "entropy": stats.entropy(np.unique(gray, return_counts=True)[1], base=2),
        "sharpness": laplacian.var() / gray.var(),
        "color": np.quantile(pixels.max(2) - pixels.min(2), 0.99),
    }
    assert set(expected) == set(MEASURES.names or ())
    for name, value in expected.items():
        assert float(found[name]) == pytest.approx(value, rel=1e-4), name


def test_large_photos_are_measured_small_and_blur_shows() -> None:
    sharp = noise(size=(300, 200))
    blurred = sharp.filter(ImageFilter.GaussianBlur(8))
    assert (measured(sharp)["width"], measured(sharp)["height"]) == (300, 200)
    assert measured(blurred)["sharpness"] < measured(sharp)["sharpness"] / 20
    twice = sharp.resize((600, 400), Image.Resampling.NEAREST)
    small = sharp.resize((MEASURED_SIDE, round(200 * MEASURED_SIDE / 300)), Image.Resampling.BOX)
    assert measured(twice)["sharpness"] == pytest.approx(measured(small)["sharpness"], rel=0.2)


@pytest.mark.parametrize("size", [(1, 1), (2, 500), (4000, 1)])
def test_odd_shapes_have_measures(size: tuple[int, int]) -> None:
    found = measured(Image.new("RGB", size, (9, 9, 9)))
    assert (found["width"], found["height"]) == size
    assert all(np.isfinite(found[name]) for name in MEASURES.names or ())
    assert (found["contrast"], found["entropy"], found["sharpness"], found["color"]) == (0, 0, 0, 0)
