from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from PIL import Image

from graphclean.errors import InputError
from graphclean.report import theme as plotting

# Viénot, Brettel and Mollon (1999): what linear RGB becomes for who lacks the red or the green cones.
BLINDNESS = {
    "none": np.eye(3),
    "protan": np.array([[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]]),
    "deutan": np.array([[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]]),
}


def lab(linear: np.ndarray) -> np.ndarray:
    """CIE L*a*b* of linear sRGB."""
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    xyz = to_xyz @ linear.clip(0, 1) / np.array([0.9505, 1, 1.089])
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def seen(color: str, blindness: str) -> np.ndarray:
    srgb = np.array(matplotlib.colors.to_rgb(color))
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    return lab(BLINDNESS[blindness] @ linear)


COLORS = {
    "styles": [style.color for style in plotting.STYLES],
    "kinds": [style.color for style in plotting.KIND_STYLES.values()],
    "verdicts": [style.color for style in plotting.VERDICT_STYLES.values()],
    "classes": plotting.CLASSES,
}
for name in ("verdicts", "classes"):
    COLORS[f"{name}, dark"] = [plotting.ON_DARK.get(color, color) for color in COLORS[name]]


@pytest.mark.parametrize("blindness", BLINDNESS)
@pytest.mark.parametrize("colors", COLORS.values(), ids=COLORS)
def test_colors_are_told_apart(colors: Sequence[str], blindness: str) -> None:
    for one, other in combinations(colors, 2):
        assert np.linalg.norm(seen(one, blindness) - seen(other, blindness)) > 15
    assert np.linalg.norm(seen("#00A000", "deutan") - seen("#C06000", "deutan")) < 15, (
        "the measure sees nothing"
    )


def test_lines_and_markers_differ_too() -> None:
    for styles in (plotting.STYLES, tuple(plotting.KIND_STYLES.values())):
        assert len({style.line for style in styles}) == len(styles)
        assert len({style.marker for style in styles}) == len(styles)
    assert len({style.marker for style in plotting.VERDICT_STYLES.values()}) == len(plotting.VERDICT_STYLES)


def draw() -> "matplotlib.figure.Figure":
    figure, (axes,) = plotting.new_figure(1, width=plotting.COLUMN, height=2.0, title="title")
    plotting.draw_series(axes, [1, 2, 3], [3, 1, 2], plotting.STYLES[0], "one", ([2, 0, 1], [4, 2, 3]))
    plotting.legend_above(axes)
    return figure


def test_a_long_title_stays_on_the_figure() -> None:
    method = "cifar10-lond-fast--method.ood_gate_start-0.67--training.running_stats-views--gate-every-epoch"
    with plotting.look():
        figure, _ = plotting.new_figure(1, width=plotting.COLUMN, height=2.5, title=f"cell\n{method}, 1 seed")
        figure.draw_without_rendering()
    (title,) = figure.texts
    box = title.get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.width
    lines = title.get_text().splitlines()
    assert lines[0] == "cell"
    assert "".join(lines[1:]) == f"{method}, 1 seed"


def test_files_are_valid_and_repeat_to_the_byte(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        with plotting.look():
            paths = plotting.save_figure(draw(), tmp_path / folder / "x--graph.eta-0.7")
        assert [path.name for path in paths] == ["x--graph.eta-0.7.svg", "x--graph.eta-0.7.png"]
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == sorted(path.name for path in paths)
    for name in ("x--graph.eta-0.7.svg", "x--graph.eta-0.7.png"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    svg, png = paths
    root = ElementTree.parse(svg).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert float(root.attrib["width"].removesuffix("pt")) == pytest.approx(72 * plotting.COLUMN)
    with Image.open(png) as image:
        assert image.format == "PNG"
        assert image.size == (round(plotting.DPI * plotting.COLUMN), 2 * plotting.DPI)


def test_the_users_own_settings_neither_change_a_figure_nor_are_changed(tmp_path: Path) -> None:
    with plotting.look():
        plain = plotting.save_figure(draw(), tmp_path / "plain")
    with matplotlib.rc_context({"lines.linewidth": 9.0, "axes.facecolor": "red", "font.size": 20}):
        with plotting.look():
            other = plotting.save_figure(draw(), tmp_path / "other")
        assert matplotlib.rcParams["lines.linewidth"] == 9.0
        assert matplotlib.rcParams["font.size"] == 20
    assert [path.read_bytes() for path in plain] == [path.read_bytes() for path in other]


def test_a_target_that_cant_be_written_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with plotting.look(), pytest.raises(InputError, match="can't be written"):
        plotting.save_figure(draw(), tmp_path / "file" / "x")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_legend_hides_no_data() -> None:
    with plotting.look():
        figure = draw()
        figure.draw_without_rendering()
    (axes,) = figure.axes
    legend = axes.get_legend()
    assert legend is not None
    assert legend.get_window_extent().y0 >= axes.get_window_extent().y1 - 1
