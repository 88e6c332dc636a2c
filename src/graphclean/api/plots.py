"""Plots of a run, for notebooks."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..data.verdict import Verdict
from ..errors import InputError
from ..report.map import draw_map, read_points
from ..report.samples import Samples, count_pairs, read_samples
from ..report.theme import VERDICT_STYLES
from ..runs.folder import read_summary, read_verdicts

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_NAMED = 30
"""Maximum number of classes whose names are shown; more would overlap."""


def plot_map(run: Path, axes: "Axes | None" = None) -> "Axes":
    """Draw the map of the report, with the samples that need a look on top."""
    _, rows, z = read_points(run)
    samples = _read(run)
    plan = draw_map(rows, z, samples)
    if plan is None:
        raise InputError(f"{run}: too few samples for a map, or the run keeps none")
    axes = axes if axes is not None else _new_axes()
    shown, x, y = (np.array(plan[name]) for name in ("row", "x", "y"))
    for verdict, style in VERDICT_STYLES.items():
        here = samples.where(verdict)[shown]
        if here.any():
            label = f"{verdict} ({int(here.sum()):,})"
            axes.scatter(x[here], y[here], s=12, c=style.color, marker=style.marker, label=label, alpha=0.7)
    axes.set(xticks=[], yticks=[], aspect="equal", title=f"{plan['how']} of {len(shown):,} samples")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return axes


def plot_confusion(run: Path, axes: "Axes | None" = None) -> "Axes":
    """Plot given labels (rows) against proposed labels (columns) of the samples kept or relabeled."""
    samples = _read(run)
    counts = np.zeros((len(samples.classes), len(samples.classes)), dtype=np.int64)
    for given, proposed, count in count_pairs(samples):
        counts[given, proposed] = count
    axes = axes if axes is not None else _new_axes()
    # Normalized by row, so that a large class does not make the others pale.
    image = axes.imshow(counts / np.maximum(counts.sum(1, keepdims=True), 1), cmap="Blues", vmin=0, vmax=1)
    if len(counts) <= MOST_NAMED:
        places = range(len(counts))
        axes.set_xticks(places, samples.classes, rotation=90)
        axes.set_yticks(places, samples.classes)
        for given, proposed in np.argwhere(counts):
            color = "white" if given == proposed else "black"
            axes.text(proposed, given, f"{counts[given, proposed]}", ha="center", va="center", color=color)
    axes.set(xlabel="proposed label", ylabel="given label", title=f"{Verdict.KEEP} and {Verdict.RELABEL}")
    axes.figure.colorbar(image, ax=axes, label="fraction of the given label")
    return axes


def _read(run: Path) -> Samples:
    return read_samples(read_verdicts(run), read_summary(run).get("classes", []), None)


def _new_axes() -> "Axes":
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise InputError("plots need matplotlib: pip install matplotlib") from error
    return pyplot.subplots(layout="constrained")[1]
