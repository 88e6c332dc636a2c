"""Small SVG charts of the recorded results, one for each section of the docs; docs/figures.py draws them.

A chart consists of its values and a function that draws them. The file contains a digest of the values, so a
test can tell whether it is up to date under any version of matplotlib.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from common import load
from graphclean.bench.results import read_records
from graphclean.methods import OWN_METHODS, load_method
from graphclean.report import theme
from methods import NOISES, ONE_VIEW
from paper_runs import CELL, RUNS, of_paper
from sections.audit import SETS
from sections.further import FURTHER_SETS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLORS = (theme.BLUE, theme.VERMILION, theme.ORANGE, theme.GRAY, theme.PURPLE)
MARKERS = ("o", "s", "D", "^", "v")
Rows = dict[str, dict[str, float]]
"""Values by row and series."""


@dataclass(frozen=True)
class Chart:
    """The values of a chart (None if nothing was recorded) and the function that draws them."""

    values: Callable[[], Any]
    draw: Callable[[Any], Figure]


def digest(values: Any) -> str:
    """The digest of a chart's values, as stored in its file."""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def recorded_digest(path: Path) -> str | None:
    """The digest of the values that a file was drawn from."""
    found = re.search(r"values ([0-9a-f]{16})", path.read_text()) if path.exists() else None
    return found[1] if found else None


def draw_charts(out: Path) -> list[Path]:
    """Draw every chart with recorded results."""
    paths = []
    with theme.look():
        import matplotlib

        matplotlib.rcParams["svg.fonttype"] = "none"  # keep text as text: a tenth of the size
        for name, chart in CHARTS.items():
            values = chart.values()
            if values:
                path = out / f"{name}.svg"
                about = {**theme.METADATA["svg"], "Description": f"values {digest(values)}"}
                chart.draw(values).savefig(path, metadata=about)
                paths.append(path)
    return paths


def figure_with(panels: int, height: float) -> tuple[Figure, list[Any]]:
    """An empty figure of the page's width, with panels."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(theme.PAGE, height), layout="constrained")
    return figure, [figure.add_subplot(1, panels, number + 1) for number in range(panels)]


def draw_dots(axes: Any, rows: Rows, label: str, legend: Any = None) -> None:
    """Plot one line per row, with a marker for each series."""
    names, series = list(rows), list(dict.fromkeys(key for row in rows.values() for key in row))
    for key, color, marker in zip(series, COLORS, MARKERS, strict=False):
        at = [(row[key], -i) for i, row in enumerate(rows.values()) if key in row]
        axes.plot(*zip(*at, strict=True), marker, color=color, label=key, markersize=4.5)
    axes.set_yticks([-i for i in range(len(names))], names)
    axes.set_ylim(0.6 - len(names), 0.4)
    axes.set_xlabel(label)
    if legend is not None:
        legend.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=len(series))


def dots(label: str) -> Callable[[Rows], Figure]:
    """A chart with a single panel of rows."""

    def draw(rows: Rows) -> Figure:
        figure, (axes,) = figure_with(1, 0.6 + 0.24 * len(rows))
        draw_dots(axes, rows, label, figure)
        return figure

    return draw


def scores_of(name: str, who: dict[str, str], sets: dict[str, str]) -> Callable[[], Rows | None]:
    """The mislabel F1 of several cleaners on the sets of a benchmark."""

    def values() -> Rows | None:
        result = load(name)
        if result is None:
            return None
        found = {
            sets[group]: {
                shown: round(entry[key]["mislabel_f1"], 4)
                for key, shown in who.items()
                if entry.get(key, {}).get("mislabel_f1") is not None
            }
            for group, entry in result["summary"].items()
        }
        return {group: row for group, row in found.items() if row}

    return values


def embedder_values() -> Rows | None:
    result = load("embedders")
    return result and {
        entry["embedder"]: {
            "seconds": entry["cpu_seconds_per_1000"],
            "label accuracy": entry["verdicts"]["label_accuracy"]["mean"],
            "accuracy on new photos": entry["new"]["accuracy"]["mean"],
        }
        for entry in result["embedders"]
        if "not_run" not in entry
    }


def draw_embedders(rows: Rows) -> Figure:
    figure, panels = figure_with(2, 2.1)
    for axes, key in zip(panels, ("label accuracy", "accuracy on new photos"), strict=True):
        for (name, row), color, marker in zip(rows.items(), COLORS, MARKERS, strict=False):
            axes.plot(row["seconds"], row[key], marker, color=color, label=name, markersize=5)
        axes.set(xlabel="CPU seconds for 1,000 photos", ylabel=key, ylim=(0, 1.02), xlim=(0, None))
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(rows))
    return figure


def detector_values() -> dict[str, Rows] | None:
    result = load("detectors")
    if result is None:
        return None
    groups: dict[str, list[dict[str, float]]] = {}
    for split in result["splits"]:
        if "clean" in split:
            groups.setdefault(split["group"].replace("`", ""), []).append(split["clean"])
    return {
        label: {
            group: {"clean": round(100 * float(np.mean([row[key] for row in found])), 2)}
            for group, found in groups.items()
        }
        for label, key in (
            ("unknown inputs rejected, %", "unknown_rejected"),
            ("good inputs rejected, %", "good_rejected"),
        )
    }


def draw_detectors(values: dict[str, Rows]) -> Figure:
    figure, panels = figure_with(2, 0.6 + 0.22 * len(next(iter(values.values()))))
    for axes, (label, rows) in zip(panels, values.items(), strict=True):
        draw_dots(axes, rows, label)
        axes.set_xlim(0, 100 if "unknown" in label else 10)
    panels[1].axvline(5, color=theme.GRAY, linestyle="--", linewidth=0.8)
    panels[1].set_yticklabels([])
    return figure


def duplicate_values() -> Rows | None:
    result = load("duplicates")
    who = {
        "clean": "clean",
        "not joined": "clean, near-duplicates not joined",
        "Datalab": "cleanlab's Datalab",
        "cleanlab, predicted ≠ given": "cleanlab, predicted_neq_given",
    }
    return result and {
        shown: {size: 100 * found["wrong_flagged"] for size, found in result["summary"]["clean"][key].items()}
        for key, shown in who.items()
    }


def draw_duplicates(rows: Rows) -> Figure:
    figure, (axes,) = figure_with(1, 2.2)
    for (name, row), style in zip(rows.items(), theme.STYLES, strict=True):
        theme.draw_series(axes, [int(size) for size in row], list(row.values()), style, name)
    axes.set(xlabel="copies of one wrongly labeled photo", ylabel="flagged, %", ylim=(-3, 103))
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def demo_values() -> dict[str, Rows] | None:
    result = load("demo")
    return result and {
        name: {
            f"seed {run['seed']}": {"cross-entropy": run["ce"][key], "NGC": run["ngc"][key]}
            for run in result["runs"]
        }
        for name, key in (("test accuracy", "accuracy"), ("AUROC of OOD digits", "auroc"))
    }


def draw_demo(values: dict[str, Rows]) -> Figure:
    figure, panels = figure_with(2, 1.7)
    for number, (axes, (label, rows)) in enumerate(zip(panels, values.items(), strict=True)):
        draw_dots(axes, rows, label, None if number else figure)
    return figure


def method_values() -> Rows | None:
    """Mean accuracy of each method on the digits, by noise."""
    result = load("methods")
    if result is None:
        return None
    found: dict[str, dict[str, list[float]]] = {}
    for run in result["runs"]:
        noise = {"sym40": "symmetric noise", "asym40": "asymmetric noise"}[run["noise"]]
        found.setdefault(run["method"], {}).setdefault(noise, []).append(100 * run["accuracy"])
    return {name: {noise: float(np.mean(all_)) for noise, all_ in row.items()} for name, row in found.items()}


def cost_values() -> dict[str, Rows] | None:
    """Mean accuracy and CPU seconds of each method on the digits, by noise, with the kind of method."""
    result = load("methods")
    if result is None:
        return None
    found: dict[str, dict[str, list[tuple[float, float]]]] = {name: {} for name in NOISES}
    for run in result["runs"]:
        at = (run["cpu_seconds"], 100 * run["accuracy"])
        found[run["noise"]].setdefault(run["method"], []).append(at)
    return {
        noise: {
            name: dict(zip(("seconds", "accuracy"), np.mean(points, axis=0).round(3).tolist(), strict=True))
            for name, points in rows.items()
        }
        for noise, rows in found.items()
    }


def best_by_cost(rows: Rows) -> list[str]:
    """The methods that are more accurate than every cheaper one, the cheapest first."""
    best: list[str] = []
    for name, row in sorted(rows.items(), key=lambda item: item[1]["seconds"]):
        if not best or row["accuracy"] > rows[best[-1]]["accuracy"]:
            best.append(name)
    return best


def draw_cost(values: dict[str, Rows]) -> Figure:
    figure, panels = figure_with(2, 3.1)
    kinds = {name: load_method(name).info.kind for name in OWN_METHODS} | {ONE_VIEW: "baseline"}
    styles = dict(zip(dict.fromkeys(kinds.values()), KIND_MARKERS, strict=False))
    for axes, (noise, rows) in zip(panels, values.items(), strict=True):
        for kind, (color, marker) in styles.items():
            at = [(row["seconds"], row["accuracy"]) for name, row in rows.items() if kinds[name] == kind]
            if at:
                axes.plot(*zip(*at, strict=True), marker, color=color, label=kind, markersize=4.5)
        front = best_by_cost(rows)
        axes.plot([rows[name]["seconds"] for name in front], [rows[name]["accuracy"] for name in front],
                  color=theme.GRAY, linewidth=0.6, linestyle=":", zorder=0)  # fmt: skip
        for name in dict.fromkeys([*front, *(name for name in NAMED if name in rows)]):
            text = name.replace("cross-entropy, one view", "cross-entropy,\none view")
            axes.annotate(text, (rows[name]["seconds"], rows[name]["accuracy"]), xytext=(4, -2),
                          textcoords="offset points", fontsize=5.5, va="top")  # fmt: skip
        axes.set(xscale="log", xlabel="CPU seconds of training, one core", title=NOISES[noise])
        axes.set_xticks([2, 5, 10, 20], ["2", "5", "10", "20"])
        axes.minorticks_off()
    panels[0].set_ylabel("accuracy on new digits, %")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=len(styles))
    return figure


def class_dependent_values() -> Rows | None:
    digits, cifar = load("mistakes-digits"), load("mistakes-cifar")
    if digits is None:
        return None
    recorded = {"digits": digits["runs"], "CIFAR-10": cifar["runs"] if cifar is not None else []}
    runs = [(images, run) for images, found in recorded.items() for run in found]
    found: dict[str, dict[str, list[float]]] = {}
    names = {"asym": "flipped", "sym": "symmetric noise", "clean": "all right", "OOD": "with OOD"}
    for images, run in runs:
        row = f"{images}, {', '.join(names[part] for part in run['case'].split(', '))}"
        series = "on" if run["class_dependent_noise"] else "off"
        found.setdefault(row, {}).setdefault(series, []).append(100 * run["cleaning"]["label_accuracy"])
    return {row: {key: float(np.mean(found[row][key])) for key in ("off", "on")} for row in found}


def epoch_values() -> dict[str, float] | None:
    result = load("engine-cuda")
    parts = ("embedding", "graph", "augmentation", "network")
    return result and {**{part: result[part] for part in parts}, "epoch": result["epoch"]}


def draw_epoch(values: dict[str, float]) -> Figure:
    figure, (axes,) = figure_with(1, 0.95)
    left = 0.0
    rest = {"other": max(0.0, values["epoch"] - sum(v for part, v in values.items() if part != "epoch"))}
    parts = {part: value for part, value in values.items() if part != "epoch"} | rest
    for (part, value), color in zip(parts.items(), COLORS, strict=True):
        axes.barh(0, value, left=left, color=color, label=part)
        left += value
    axes.set(xlabel="seconds of an epoch of 70,000 samples", yticks=[])
    axes.grid(False)
    figure.legend(loc="outside upper center", ncols=len(parts))
    return figure


def graph_growth_values() -> Rows | None:
    """Seconds of the whole graph step by number of samples."""
    found: Rows = {}
    for name, title in (("graph-cpu", "two CPU cores, exact"), ("graph-cuda", "NVIDIA H200, exact")):
        result = load(name)
        if result is None:
            continue
        stages = result["growth"]["seconds"].values()
        found[title] = {
            str(size): round(sum(stage[i] for stage in stages), 6)
            for i, size in enumerate(result["growth"]["sizes"])
        }
        for point in result["points"]:
            if point["n"] == 1_000_000:
                found[title]["1000000"] = point["whole"]["seconds"]
        if "million" in result:
            stages = result["million"]["stages"].values()
            found["two CPU cores, approximate neighbors"] = {
                str(result["million"]["n"]): sum(stage["seconds"] for stage in stages)
            }
    return found or None


def training_growth_values() -> Rows | None:
    result = load("engine-growth-cuda")
    return result and {
        name: {str(row["samples"]): row[key] for row in result["growth"]}
        for name, key in (("epoch", "epoch"), ("of it cleaning", "cleaning"))
    }


def draw_growth(rows: Rows) -> Figure:
    figure, (axes,) = figure_with(1, 2.3)
    for (name, row), style in zip(rows.items(), theme.STYLES, strict=False):
        axes.plot([int(n) for n in row], list(row.values()), color=style.color, linestyle=style.line,
                  marker=style.marker, label=name)  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="samples", ylabel="seconds")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def minutes_values() -> Rows | None:
    """Mean accuracy and minutes of every method on the paper's main cell, and the paper's accuracy."""
    found: dict[str, list[tuple[float, float]]] = {}
    for record in read_records(RUNS):
        if (record.cell, record.split) == (CELL, "test") and record.data.get("sharing", 1) == 1:
            at = (record.data["seconds"] / 60, 100 * (record.data["scores"]["accuracy"] or 0))
            found.setdefault(record.method, []).append(at)
    rows = {
        method: dict(zip(("minutes", "accuracy"), np.mean(points, axis=0).round(4).tolist(), strict=True))
        for method, points in found.items()
    }
    paper = float(of_paper(CELL)[0].split(" ± ")[0])
    return rows and {**rows, "the paper": {"accuracy": paper}}


def draw_minutes(rows: Rows) -> Figure:
    figure, (axes,) = figure_with(1, 2.6)
    names = {"cifar10-lond--graph.leave_one_out-true--training.epochs-60": "cifar10-lond-fast"}
    rows = dict(rows)
    line = rows.pop("the paper")
    axes.axhline(line["accuracy"], color=theme.BLACK, linewidth=0.8, linestyle=":", label="the paper")
    shown = iter(zip(COLORS, MARKERS, strict=True))
    for method, row in sorted(rows.items(), key=lambda entry: -entry[1]["accuracy"]):
        name = names.get(method, method)
        at = (row["minutes"], row["accuracy"])
        if "--" in name and name.startswith("cifar10-"):  # NGC with a changed setting
            axes.plot(*at, "o", color="#BBBBBB", markersize=4, zorder=1)
        else:
            color, marker = next(shown, (theme.BLACK, "o"))
            axes.plot(*at, marker, color=color, markersize=6, label=name)
    axes.plot([], [], "o", color="#BBBBBB", markersize=4, label="variants of these")
    axes.set(xlabel="minutes on one NVIDIA H200", ylabel="test accuracy, %", xlim=(0, None))
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


KIND_MARKERS = [*zip(COLORS, MARKERS, strict=True), (theme.GREEN, "P")]
NAMED = ("cross-entropy", "cross-entropy, one view", "ngc")
"""Methods that are always named in the chart of costs."""


CLEANERS = {
    "ours": "graphclean clean",
    "cleanlab_best": "cleanlab, best options",
    "datalab": "cleanlab's Datalab",
    "train": "graphclean train",
    "dataeval": "dataeval",
}


def estimate_values() -> Rows | None:
    """The mean error of the estimates that `clean` reports, in points, by set."""
    result = load("estimates")
    if result is None:
        return None
    errors: dict[str, dict[str, list[float]]] = {}
    for draw in result["draws"]:
        found = {f"fraction of right {kind}": entry for kind, entry in draw["verdicts"].items()}
        for name, entry in {**found, "OOD rate": draw["ood_rate"]}.items():
            truth = entry["true" if name == "OOD rate" else "right"]
            if entry["estimated"] is not None and name.rpartition(" ")[2] in ("keep", "relabel", "rate"):
                row = errors.setdefault(draw["group"], {})
                row.setdefault(name, []).append(100 * abs(entry["estimated"] - truth))
    return {
        group: {name: round(float(np.mean(found)), 2) for name, found in sorted(row.items())}
        for group, row in errors.items()
    }


def choice_values() -> Rows | None:
    """The ranking of wrong labels by neighbors alone, and with class means if they are chosen."""
    result = load("choices")
    if result is None:
        return None
    return {
        entry["set"]: {way: round(entry[way]["ranking"], 4) for way in ("neighbors alone", "chosen")}
        for entry in result["class_means"]
    }


CHARTS = {
    "bench-features": Chart(scores_of("audit", CLEANERS, SETS), dots("mislabel F1")),
    "bench-further": Chart(scores_of("audit-further", CLEANERS, FURTHER_SETS), dots("mislabel F1")),
    "bench-estimates": Chart(estimate_values, dots("mean error of the reported estimates, points")),
    "bench-choices": Chart(choice_values, dots("average precision of label scores for wrong labels")),
    "bench-embedders": Chart(embedder_values, draw_embedders),
    "bench-detectors": Chart(detector_values, draw_detectors),
    "bench-duplicates": Chart(duplicate_values, draw_duplicates),
    "bench-demo": Chart(demo_values, draw_demo),
    "bench-methods": Chart(method_values, dots("accuracy, %")),
    "accuracy-cost": Chart(cost_values, draw_cost),
    "bench-class-dependent": Chart(class_dependent_values, dots("label accuracy, %")),
    "bench-epoch": Chart(epoch_values, draw_epoch),
    "growth-graph": Chart(graph_growth_values, draw_growth),
    "growth-training": Chart(training_growth_values, draw_growth),
    "accuracy-minutes": Chart(minutes_values, draw_minutes),
}
