"""What is wrong with photos, against what CleanVision 0.3.7 says of the same pictures."""

import numpy as np
import pandas as pd
import pytest

from graphclean.data.measures import Measures, as_measures, measure_photo
from graphclean.embed.quality import ISSUES, find_issues, is_blank, quality_columns, quality_scores

from .pictures import PICTURES

CLEANVISION_SCORES = {
    "scene": (0.898663, 0.829591, 0.294497, 0.841478),
    "dark": (0.224684, 0.957602, 0.295251, 0.707039),
    "bright": (0.996494, 0.033398, 0.944518, 0.483498),
    "blurred": (0.715999, 0.659567, 0.283837, 0.859467),
    "two tones": (1.000000, 1.000000, 0.635958, 0.258081),
    "large": (0.899357, 0.830356, 0.293642, 0.881948),
    "long": (0.890866, 0.544588, 0.464938, 0.892335),
    "gray": (0.896353, 0.839216, 0.295195, 0.910496),
    "blank": (0.344641, 0.655359, 1.000000, 0.158496),
    "black": (0.000000, 1.000000, 0.813013, 0.158496),
}
"""Its scores of dark, light, blurry and low information, of the pictures as PNG files."""
CLEANVISION_ISSUES = {
    "dark": {"dark", "black"},
    "bright": {"bright"},
    "blurred": {"blurred"},
    "low information": {"two tones", "blank", "black"},
    "odd size": {"blurred", "large"},
    "odd aspect": {"long"},
}
SCORES = ("dark_score", "bright_score", "blur_score", "information_score")


@pytest.fixture(scope="module")
def measures() -> Measures:
    return as_measures([measure_photo(make()) for make in PICTURES.values()])


def sized(*sizes: tuple[int, int]) -> Measures:
    """Photos of which nothing but the size is odd."""
    record = measure_photo(PICTURES["scene"]())
    return as_measures([(*size, *record[2:]) for size in sizes])


def test_scores_are_those_of_cleanvision(measures: Measures) -> None:
    """To its last digit where all pixels are measured; a part of them has a few values less."""
    found = pd.DataFrame(quality_scores(measures), index=list(PICTURES))[list(SCORES)]
    expected = pd.DataFrame(CLEANVISION_SCORES, index=SCORES).T
    whole = expected.index.difference(["large", "long", "blurred"])
    np.testing.assert_allclose(found.loc[whole], expected.loc[whole], atol=2e-6)
    np.testing.assert_allclose(found, expected, atol=0.03)
    np.testing.assert_allclose(found["blur_score"], expected["blur_score"], atol=2e-6)


def test_issues_are_those_of_cleanvision(measures: Measures) -> None:
    found = find_issues(measures)
    assert set(found) == set(ISSUES)
    for issue, names in CLEANVISION_ISSUES.items():
        assert set(np.array(list(PICTURES))[found[issue]]) == names, issue


def test_blank_and_gray_photos(measures: Measures) -> None:
    """CleanVision calls gray what is stored so; here it is by the pixels, and only where most have color."""
    names, found = np.array(list(PICTURES)), find_issues(measures)
    assert set(names[found["blank"]]) == {"blank", "black"}
    assert set(names[found["grayscale"]]) == {"gray", "two tones"}
    gray = as_measures([measure_photo(PICTURES[name]()) for name in ("gray", "two tones", "scene")])
    assert not find_issues(gray)["grayscale"].any()


def test_noise_of_a_compressed_blank_photo_is_no_picture() -> None:
    rng = np.random.default_rng(0)

    def speckled(deviation: float) -> Measures:
        from PIL import Image

        pixels = np.rint(120 + deviation * rng.normal(size=(64, 64, 3))).astype(np.uint8)
        return as_measures([measure_photo(Image.fromarray(pixels))])

    assert is_blank(speckled(1.5)).all()
    assert not is_blank(speckled(4)).any()


def test_sizes_are_odd_by_quartiles_and_by_ratio() -> None:
    """Quartiles 100 and 120: the fences are 40 and 180, but twice the median is 220, so 190 is none yet."""
    sizes = [100, 100, 110, 120, 120]
    odd = find_issues(sized(*[(side, side) for side in (*sizes, *sizes, 39, 50, 190, 230)]))["odd size"]
    assert odd.tolist() == [False] * 10 + [True, False, False, True]
    alike = find_issues(sized(*[(100, 100)] * 9, (100, 140), (300, 300)))["odd size"]
    assert alike.tolist() == [False] * 10 + [True]


@pytest.mark.parametrize(("size", "odd"), [((350, 1000), False), ((349, 1000), True), ((1000, 349), True)])
def test_long_photos(size: tuple[int, int], odd: bool) -> None:
    assert find_issues(sized(size))["odd aspect"].tolist() == [odd]


def test_columns_say_it_photo_by_photo(measures: Measures) -> None:
    table = quality_columns(measures).set_axis(list(PICTURES))
    assert table.loc["black", "photo_issues"] == ["blank", "dark", "low information"]
    assert table.loc["scene", "photo_issues"] == []
    assert (table.loc["long", "width"], table.loc["long", "height"]) == (200, 40)
    assert quality_columns(measures[:0]).empty


def test_of_no_photos_nothing_is_wrong() -> None:
    assert all(flags.shape == (0,) for flags in find_issues(as_measures([])).values())
