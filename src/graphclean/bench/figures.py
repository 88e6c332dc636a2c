"""The paper's figures from recorded runs, one per cell, split and method; seeds as mean and range."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from ..errors import InputError, suggest
from ..metrics import open_set_f
from ..report import theme as plotting
from .epoch_log import SAMPLE_KINDS
from .results import Arrays, Record, number, read_records, slug
from .tables import paper

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Drawing: TypeAlias = "Callable[[list[Record]], Figure | None]"

CELL = "cifar10/tinyimagenet/20k"
"""The cell that messages suggest to run."""
STRATEGIES = ("confidence", "geometry", "both")
LOSSES = {"ce": "CE", "inst": "instance", "subgraph": "subgraph"}
EPOCH = "epoch (warm-up in gray)"
ZETAS = 401


@dataclass(frozen=True)
class FigurePlan:
    """How a figure is drawn from the runs it compares, and what to run if nothing is recorded."""

    draw: Drawing
    command: str = f"graphclean bench run {CELL}"
    setting: str | None = None
    """The setting whose values are compared; None if the runs differ only in their seeds."""
    needs: str = ""
    """Data that a run must have recorded beyond its result."""


def figure_names() -> list[str]:
    """The names of all figures."""
    return list(FIGURES)


def draw_figure(
    name: str, results: Path, out: Path, method: str | None = None, cell: str | None = None
) -> list[Path]:
    """Draw a figure for everything recorded, or for one method or cell; SVG and PNG files in `out`."""
    if name not in FIGURES:
        raise InputError(f"no figure is called {name}; {suggest(name, FIGURES)}")
    plan, records = FIGURES[name], read_records(results)
    if method is not None and records:
        methods = dict.fromkeys(record.method for record in records)
        if method not in methods:
            raise InputError(f"{results}: no run of a method called {method}; {suggest(method, methods)}")
        shown = _without(method, plan.setting)
        records = [record for record in records if _without(record.method, plan.setting) == shown]
    if cell is not None and records:
        cells = dict.fromkeys(record.cell for record in records)
        if cell not in cells:
            of = f" of {method}" if method is not None else ""
            raise InputError(f"{results}: no run{of} on a cell called {cell}; {suggest(cell, cells)}")
        records = [record for record in records if record.cell == cell]
    with plotting.look():
        paths: list[Path] = []
        for group, runs in _groups(records, plan.setting).items():
            figure = plan.draw(runs)
            if figure is not None:
                paths += plotting.save_figure(figure, out / f"{name}--{group}")
    if not paths:
        raise InputError(
            f"{results}: no recorded run{plan.needs} to draw {name} from; first run `{plan.command}`"
        )
    return paths


def _groups(records: list[Record], setting: str | None) -> dict[str, list[Record]]:
    """Runs that belong in one figure, by the suffix of its file name."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        stem = f"{slug(record.cell, record.split)}--{_without(record.method, setting)}"
        groups.setdefault(stem, []).append(record)
    return groups


def _without(method: str, setting: str | None) -> str:
    """The name of a method without the value of a setting."""
    parts = method.split("--")
    return "--".join(part for part in parts if setting is None or not part.startswith(f"{setting}-"))


def _title(records: list[Record], setting: str | None = None) -> str:
    first, seeds = records[0], sorted(Counter(record.method for record in records).values())
    split = ", development split" if first.split == "dev" else ""
    fewest = f"{seeds[0]} to " if seeds[0] < seeds[-1] else ""
    counted = f"{fewest}{seeds[-1]}\N{NO-BREAK SPACE}seed{'' if seeds[-1] == 1 else 's'}"
    return f"{first.cell}{split}\n{_without(first.method, setting)}, {counted}"


@dataclass(frozen=True)
class _Series:
    """Mean and range over seeds."""

    x: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]

    @classmethod
    def of(cls, points: dict[float, list[float]], factor: float = 1) -> _Series:
        x = sorted(points)
        values = [factor * np.asarray(points[at]) for at in x]
        return cls(x, *([float(f(v)) for v in values] for f in (np.mean, np.min, np.max)))

    def draw(self, axes: Axes, style: plotting.Style, label: str) -> None:
        band = (self.low, self.high) if self.low != self.high else None
        plotting.draw_series(axes, self.x, self.mean, style, label, band)


def _by_epoch(
    records: list[Record], *keys: str, factor: float = 1, skip_warmup: bool = False
) -> _Series | None:
    """A metric of every epoch over the seeds; None if never recorded."""
    points: dict[float, list[float]] = {}
    for record in records:
        for i, entry in enumerate(record.epochs, 1):
            value = number(entry, keys, record.path)
            if value is not None and not (skip_warmup and entry.get("warmup")):
                points.setdefault(i, []).append(value)
    return _Series.of(points, factor) if points else None


def _mark_warmup(axes: Axes, records: list[Record]) -> None:
    """Gray background for the warm-up epochs."""
    last = sum(bool(entry.get("warmup")) for entry in records[0].epochs)
    if 0 < last < len(records[0].epochs):  # cross-entropy has nothing but warm-up
        axes.axvspan(0.5, last + 0.5, color="#EEEEEE", linewidth=0, zorder=0)


def _finish(axes: Axes, x: str, y: str, columns: int = 2) -> None:
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    plotting.legend_above(axes, columns)


def _convergence(records: list[Record]) -> Figure | None:
    right = _by_epoch(records, "cleaning", "label_accuracy", factor=100)
    noise = _by_epoch(records, "cleaning", "noise_rate", factor=100)
    if right is None or noise is None:
        return None
    figure, (labels, selected, losses) = plotting.new_figure(
        3, width=plotting.PAGE, height=2.5, title=_title(records)
    )
    for axes in (labels, selected, losses):
        _mark_warmup(axes, records)
    right.draw(labels, plotting.STYLES[0], "pseudo-labels")
    accuracy = _by_epoch(records, "accuracy", factor=100)
    if accuracy is not None:
        accuracy.draw(labels, plotting.STYLES[1], "development set")
    _finish(labels, EPOCH, "right, %")
    noise.draw(selected, plotting.STYLES[0], "selected set")
    _finish(selected, EPOCH, "noise, %")
    for (key, name), style in zip(LOSSES.items(), plotting.STYLES, strict=False):
        # The contrastive terms are not part of the loss in warm-up, and are recorded as 0.
        loss = _by_epoch(records, "losses", key, skip_warmup=key != "ce")
        if loss is not None:
            loss.draw(losses, style, name)
    _finish(losses, EPOCH, "loss", columns=3)
    return figure


def _degrees(records: list[Record]) -> Figure | None:
    found = {kind: _by_epoch(records, "degrees", kind) for kind in plotting.KIND_STYLES}
    if all(series is None for series in found.values()):
        return None
    figure, (axes,) = plotting.new_figure(1, width=plotting.COLUMN, height=2.5, title=_title(records))
    _mark_warmup(axes, records)
    for kind, series in found.items():
        if series is not None:
            series.draw(axes, plotting.KIND_STYLES[kind], plotting.KIND_NAMES[kind])
    _finish(axes, EPOCH, "mean degree of confident nodes", columns=3)
    return figure


def _strategies(records: list[Record]) -> Figure | None:
    sizes, noises = (
        {name: _by_epoch(records, "strategies", name, key, factor=factor) for name in STRATEGIES}
        for key, factor in (("selected", 1e-3), ("noise_rate", 100))
    )
    if all(series is None for series in sizes.values()):
        return None
    figure, panels = plotting.new_figure(2, width=plotting.PAGE, height=2.5, title=_title(records))
    for axes, found, unit in zip(panels, (sizes, noises), ("selected, thousands", "noise, %"), strict=True):
        _mark_warmup(axes, records)
        for (name, series), style in zip(found.items(), plotting.STYLES, strict=False):
            if series is not None:
                series.draw(axes, style, name)
        _finish(axes, EPOCH, unit, columns=3)
    return figure


def _correction(records: list[Record]) -> Figure | None:
    before = _by_epoch(records, "cleaning", "given_right", factor=100)
    after = _by_epoch(records, "cleaning", "label_accuracy", factor=100)
    if before is None or after is None:
        return None
    figure, (axes,) = plotting.new_figure(1, width=plotting.COLUMN, height=2.5, title=_title(records))
    _mark_warmup(axes, records)
    before.draw(axes, plotting.STYLES[1], "as given")
    after.draw(axes, plotting.STYLES[0], "corrected")
    base, _, noise = records[0].cell.partition("/")
    reported = paper()["noise-correction"].get(base) if noise == "sym50" else None
    if reported is not None:
        axes.axhline(
            100 - float(reported), color=plotting.BLACK, linestyle=":", linewidth=1, label="paper, corrected"
        )
    _finish(axes, EPOCH, "label accuracy, %", columns=3)
    return figure


def _sensitivity(room: str, key: str, symbol: str, scale: str) -> Drawing:
    """Accuracy and AUROC as functions of a setting."""

    def draw(records: list[Record]) -> Figure | None:
        series = {}
        for score in ("accuracy", "auroc"):
            points: dict[float, list[float]] = {}
            for record in records:
                at, value = record.number("config", room, key), record.number("scores", score)
                if at is not None and value is not None:
                    points.setdefault(at, []).append(value)
            if len(points) > 1:
                series[score] = _Series.of(points, 100)
        if "accuracy" not in series:
            return None
        figure, panels = plotting.new_figure(
            len(series),
            width=plotting.PAGE if len(series) > 1 else plotting.COLUMN,
            height=2.3,
            title=_title(records, f"{room}.{key}"),
        )
        names = {"accuracy": "accuracy", "auroc": "AUROC"}
        for axes, (score, found), style in zip(panels, series.items(), plotting.STYLES, strict=False):
            found.draw(axes, style, names[score])
            axes.set_xscale(scale)
            axes.set_xticks(found.x, [f"{value:g}" for value in found.x])
            axes.set_xticks([], minor=True)
            _finish(axes, symbol, "%")
        return figure

    return draw


def _zeta(records: list[Record]) -> Figure | None:
    scored = []
    for record in records:
        arrays = record.arrays("predicted", "similarity", "truth")
        if arrays is not None and (arrays["truth"] < 0).any():
            scored.append((record, arrays))
    if not scored:
        return None
    ends = [float(end(arrays["similarity"])) for _, arrays in scored for end in (np.min, np.max)]
    grid = np.linspace(min(ends), max(ends), ZETAS)
    curves = np.array([_f_curve(arrays, grid) for _, arrays in scored])
    figure, (axes,) = plotting.new_figure(
        1, width=plotting.COLUMN, height=2.5, title=_title([record for record, _ in scored])
    )
    axes.plot(grid, curves.mean(0), color=plotting.BLACK, label="F")
    if len(curves) > 1:
        axes.fill_between(grid, curves.min(0), curves.max(0), color=plotting.BLACK, alpha=0.2, linewidth=0)
    marks = {"auto ζ": (("threshold", "zeta"), "f_auto"), "best ζ": (("scores", "zeta_best"), "f_best")}
    for (name, (at, f)), style in zip(marks.items(), plotting.STYLES, strict=False):
        points = [(record.number(*at), record.number("scores", f)) for record, _ in scored]
        both = [(x, y) for x, y in points if x is not None and y is not None]
        if both:
            axes.plot(
                [x for x, _ in both],
                [y for _, y in both],
                color=style.color,
                linestyle="none",
                marker=style.marker,
                markersize=5,
                label=name,
            )
    _finish(axes, "ζ", "open-set F", columns=3)
    return figure


def _f_curve(arrays: Arrays, grid: npt.NDArray[np.float64]) -> list[float]:
    """F at every ζ of the grid."""
    truth, similarity = arrays["truth"], arrays["similarity"].astype(np.float64)
    right = arrays["predicted"] == truth
    return [open_set_f(right, similarity >= zeta, truth < 0) for zeta in grid]


def _map(records: list[Record]) -> Figure | None:
    """t-SNE of the features of the first seed that has one."""
    for record in records:
        arrays = record.arrays("map", "kind")
        if arrays is not None:
            break
    else:
        return None
    figure, (axes,) = plotting.new_figure(1, width=plotting.COLUMN, height=3.4, title=_title([record]))
    for kind, style in plotting.KIND_STYLES.items():
        chosen = arrays["map"][arrays["kind"] == SAMPLE_KINDS.index(kind)]
        if len(chosen):
            axes.plot(
                *chosen.T,
                color=style.color,
                linestyle="none",
                marker=style.marker,
                markersize=1.5,
                markeredgewidth=0.4,
                alpha=0.6,
                rasterized=True,
                label=plotting.KIND_NAMES[kind],
            )
    axes.set(xticks=[], yticks=[], aspect="equal")
    axes.spines[:].set_visible(False)
    plotting.legend_above(axes, 3)
    for handle in axes.get_legend().legend_handles:  # type: ignore[union-attr]
        handle.set(markersize=4, alpha=1)  # type: ignore[union-attr]
    return figure


def _sweep(room: str, key: str, symbol: str, scale: str, example: str) -> FigurePlan:
    """The plan of a figure over the values of a setting."""
    setting = f"{room}.{key}"
    return FigurePlan(
        _sensitivity(room, key, symbol, scale),
        f"graphclean bench run {CELL} --set {setting}={example}",
        setting,
        f" at two values of {setting}",
    )


FIGURES = {
    "convergence": FigurePlan(_convergence),
    "degrees": FigurePlan(_degrees),
    "strategies": FigurePlan(_strategies),
    "correction": FigurePlan(_correction),
    "sensitivity-eta": _sweep("graph", "eta", "η", "linear", "0.7"),
    "sensitivity-k": _sweep("graph", "k", "k", "log", "10"),
    "zeta": FigurePlan(_zeta, needs=" with OOD, and predicted, similarity and truth in its .npz,"),
    "map": FigurePlan(_map, needs=" with map and kind in its .npz"),
}
