"""The style of all figures: a color-blind-safe palette, sizes for papers, reproducible files.

matplotlib is imported only when something is drawn.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._files import replaced
from ..data.verdict import Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN, PAGE = 3.4, 7.0
"""Widths in inches of a paper's column and page."""
DPI = 200
TITLE_DENSITY = 18
"""Characters of a title per inch."""

# Okabe and Ito's palette, distinguishable with any common color blindness.
BLUE, VERMILION, GREEN = "#0072B2", "#D55E00", "#009E73"
ORANGE, PURPLE, BLACK = "#E69F00", "#CC79A7", "#000000"
SKY, YELLOW, BROWN, GRAY = "#56B4E9", "#F0E442", "#8C6D31", "#4D4D4D"

LOOK: Any = {  # only newer versions of matplotlib type the keys individually
    "font.family": "DejaVu Sans",
    "font.size": 7.0,
    "axes.titlesize": 7.0,
    "axes.labelsize": 7.0,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.linewidth": 0.4,
    "grid.color": "#DDDDDD",
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "legend.fontsize": 6.5,
    "legend.frameon": False,
    "savefig.dpi": DPI,
    "svg.hashsalt": "graphclean",
}


@dataclass(frozen=True)
class Style:
    """Color, line style and marker of a series, each distinctive by itself, so that gray prints work."""

    color: str
    line: str
    marker: str


STYLES = (
    Style(BLUE, "-", "o"),
    Style(VERMILION, "--", "s"),
    Style(GREEN, "-.", "^"),
    Style(PURPLE, ":", "D"),
)
"""Styles of series without a fixed meaning, in order."""
KIND_STYLES = {
    "clean": Style(BLUE, "-", "o"),
    "wrong": Style(ORANGE, "--", "x"),
    "ood": Style(VERMILION, "-.", "^"),
}
"""Samples with a right label, with a wrong one, and OOD samples."""
VERDICT_STYLES = {
    Verdict.KEEP: KIND_STYLES["clean"],
    Verdict.RELABEL: KIND_STYLES["wrong"],
    Verdict.OOD: KIND_STYLES["ood"],
    Verdict.UNCERTAIN: Style(PURPLE, ":", "D"),
    Verdict.UNLABELED: Style(GREEN, "-", "s"),
    Verdict.UNREADABLE: Style(GRAY, "-", "+"),
}
"""Verdicts have the style of the samples they find."""
CLASSES = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BROWN, BLACK)
"""Colors of classes in order; with more classes, the marker changes in every cycle."""
ON_DARK = {BLUE: SKY, SKY: YELLOW, BLACK: "#FFFFFF", GRAY: "#D0D0D0"}
"""Replacements of colors that are hard to see on a dark background."""
KIND_NAMES = {"clean": "right label", "wrong": "wrong label", "ood": "OOD"}


@contextmanager
def look() -> Iterator[None]:
    """Draw and save with these settings, whatever the user's own are."""
    import matplotlib

    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(LOOK)
        yield


def new_figure(panels: int, *, width: float, height: float, title: str) -> tuple[Figure, list[Axes]]:
    """A figure with panels side by side under one title, which is wrapped if too long."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    fitting = "\n".join(textwrap.fill(line, int(TITLE_DENSITY * width)) for line in title.splitlines())
    figure.suptitle(fitting, fontsize=7.0, color="#444444")
    return figure, [figure.add_subplot(1, panels, i + 1) for i in range(panels)]


def draw_series(
    axes: Axes,
    x: Sequence[float],
    y: Sequence[float],
    style: Style,
    label: str,
    band: tuple[Sequence[float], Sequence[float]] | None = None,
) -> None:
    """A line with sparse markers, and a band if given."""
    every = max(1, len(x) // 8)
    axes.plot(
        x, y, color=style.color, linestyle=style.line, marker=style.marker, markevery=every, label=label
    )
    if band is not None:
        axes.fill_between(x, *band, color=style.color, alpha=0.2, linewidth=0)


def legend_above(axes: Axes, columns: int = 2) -> None:
    """The legend above the panel, where it covers nothing."""
    axes.legend(
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=columns,
        handlelength=2.5,
        columnspacing=1.0,
        borderaxespad=0.2,
    )


METADATA: dict[str, dict[str, Any]] = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}
"""Metadata to omit for reproducible files, by format."""


def save_figure(figure: Figure, stem: Path, kinds: Sequence[str] = ("svg", "png")) -> list[Path]:
    """Save as SVG and PNG, reproducible to the byte."""
    paths = []
    for kind in kinds:
        content = io.BytesIO()
        figure.savefig(content, format=kind, metadata=METADATA[kind])
        path = stem.with_name(f"{stem.name}.{kind}")
        with replaced(path) as draft:
            draft.write_bytes(content.getvalue())
        paths.append(path)
    return paths
