"""Draw the figures of the docs: python docs/figures.py (about half a minute).

Those of "How it works" come from a run of the demo, where the truth is only used for colors and counts, never
by the method; those of the paper from recorded runs. `benchmarks/charts.py` draws the recorded benchmarks,
and `docs/photos.py` eight pictures with their verdicts.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.manifold import TSNE

from graphclean.bench.figures import draw_figure
from graphclean.cleaning.inputs import encode_labels
from graphclean.config import apply_settings, load_preset
from graphclean.data.digits import KNOWN, NoisyDigits, noisy_digits
from graphclean.methods import build_method
from graphclean.report import theme as plotting
from graphclean.runs.demo import DEMO_TRAINING
from graphclean.training.fit import TrainingResult, fit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

IMAGES = Path(__file__).parent / "images"
RESULTS = Path(__file__).parents[1] / "results"
LONG, SHORT = "cifar10-lond", "cifar10-lond--graph.leave_one_out-true--training.epochs-60"
RECORDED = {
    "cifar10-convergence": ("convergence", LONG),
    "cifar10-strategies": ("strategies", LONG),
    "cifar10-degrees": ("degrees", LONG),
    "cifar10-gate": ("convergence", "cifar10-lond-plus"),
    "cifar10-zeta": ("zeta", SHORT),
}
"""File name -> a figure of the paper, and the run on the main cell that it shows."""
SHOWN = ("keep", "relabel", "ood")
"""Verdicts with an example shown next to its neighbors."""


@dataclass(frozen=True)
class Epoch:
    """The selected set of an epoch, counted against the truth."""

    number: int
    warmup: bool
    counts: dict[str, int]
    label_accuracy: float


@dataclass(frozen=True)
class Story:
    """A run on digits with everything that the figures show."""

    digits: NoisyDigits
    train: npt.NDArray[np.int64]
    test: npt.NDArray[np.int64]
    result: TrainingResult
    epochs: list[Epoch]

    @property
    def kinds(self) -> npt.NDArray[np.str_]:
        """The kinds of the training digits under their given labels."""
        return self.kinds_under(self.digits.labels[self.train])

    def kinds_under(self, labels: npt.NDArray[np.int64]) -> npt.NDArray[np.str_]:
        """The kinds of the training digits under other labels."""
        return _kinds(self.digits.truth[self.train], labels)


def run_demo(settings: Sequence[str] = (), training: int = DEMO_TRAINING) -> Story:
    """Run NGC as in the demo, with counts for every epoch."""
    torch.set_num_threads(1)
    digits = noisy_digits()
    order = np.random.default_rng(0).permutation(len(digits.labels))
    train, test = order[:training], order[training:]
    truth, epochs = digits.truth[train], []

    def watch(report: Any, cleaned: Any) -> None:
        chosen, kinds = cleaned.selected.numpy(), _kinds(truth, cleaned.labels.numpy())
        counts = {kind: int((chosen & (kinds == kind)).sum()) for kind in plotting.KIND_STYLES}
        right = float((kinds[kinds != "ood"] == "clean").mean())
        epochs.append(Epoch(report.epoch, report.own["warmup"], counts, right))

    config = apply_settings(load_preset("demo"), settings)
    labels = encode_labels(digits.labels[train])
    result = fit(digits.images[train], labels, config, build_method(config), on_epoch=watch)
    return Story(digits, train, test, result, epochs)


def draw_all(story: Story, out: Path) -> list[Path]:
    """Draw every figure to a file."""
    drawings = {
        "digits-map": (draw_map, "png"),  # smaller than SVG for 2,400 points
        "digits-epochs": (draw_epochs, "svg"),
        "digits-border": (draw_border, "svg"),
        "digits-neighbors": (draw_neighbors, "svg"),
    }
    with plotting.look():
        return [
            path
            for name, (draw, kind) in drawings.items()
            for path in plotting.save_figure(draw(story), out / name, kinds=(kind,))
        ]


def draw_recorded(out: Path) -> list[Path]:
    """The paper's figures for recorded runs on the test split."""
    paths = []
    with tempfile.TemporaryDirectory() as folder:
        for name, (figure, method) in RECORDED.items():
            stem = f"{figure}--cifar10--tinyimagenet--20k--{method}"
            drawn = {path.name: path for path in draw_figure(figure, RESULTS, Path(folder), method)}
            paths.append(Path(shutil.copy(drawn[f"{stem}.svg"], out / f"{name}.svg")))
    return paths


def draw_map(story: Story) -> Figure:
    """Pixels colored by given labels, and z after training by proposed labels, in two dimensions."""
    figure, panels = plotting.new_figure(
        2,
        width=plotting.PAGE,
        height=3.6,
        title=f"{len(story.train):,} noisy digits, two dimensions by t-SNE",
    )
    proposed = story.result.cleaning.verdicts["proposed_label"].to_numpy(dtype=np.int64)
    for axes, points, kinds, name in (
        (panels[0], story.digits.pixels[story.train], story.kinds, "before: pixels, labels as given"),
        (
            panels[1],
            story.result.trained.z.numpy(),
            story.kinds_under(proposed),
            "after: z, labels as proposed",
        ),
    ):
        places = TSNE(init="pca", random_state=0).fit_transform(points)
        for kind, style in plotting.KIND_STYLES.items():
            at = places[kinds == kind]
            line = {"linewidths": 0.8} if style.marker == "x" else {"edgecolors": "none"}
            axes.scatter(*at.T, s=8, color=style.color, marker=style.marker, alpha=0.75, **line)
        axes.set_xlabel(name)
        _bare(axes)
    handles = [
        panels[0].scatter(
            [], [], color=style.color, marker=style.marker, s=14, label=plotting.KIND_NAMES[kind]
        )
        for kind, style in plotting.KIND_STYLES.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure


def draw_epochs(story: Story) -> Figure:
    """The composition of the selected set and the label accuracy by epoch."""
    figure, (selected, right) = plotting.new_figure(
        2, width=plotting.PAGE, height=2.5, title="The demo's digits, epoch by epoch"
    )
    numbers = [epoch.number for epoch in story.epochs]
    warmup = sum(epoch.warmup for epoch in story.epochs)
    for axes in (selected, right):
        axes.axvspan(0.5, warmup + 0.5, color="#EEEEEE", linewidth=0, zorder=0)
        axes.set_xlabel("epoch (warm-up in gray)")
    for kind, style in plotting.KIND_STYLES.items():
        counts = [epoch.counts[kind] for epoch in story.epochs]
        plotting.draw_series(selected, numbers, counts, style, plotting.KIND_NAMES[kind])
    selected.set_ylabel("digits selected")
    plotting.legend_above(selected, columns=3)
    before = 100 * float((story.kinds[story.kinds != "ood"] == "clean").mean())
    after = [100 * epoch.label_accuracy for epoch in story.epochs]
    plotting.draw_series(right, numbers, after, plotting.STYLES[0], "corrected")
    plotting.draw_series(right, numbers, [before] * len(numbers), plotting.STYLES[1], "as given")
    right.set_ylabel("labels of 0 to 7 right, %")
    plotting.legend_above(right)
    return figure


def draw_border(story: Story) -> Figure:
    """The distribution of s(x) for new digits, and ζ."""
    figure, (axes,) = plotting.new_figure(
        1, width=plotting.PAGE, height=2.4, title="New digits, none of which was trained on"
    )
    similarity = 1 - story.result.predict(story.digits.images[story.test]).ood_score
    strange = story.digits.is_ood[story.test]
    bins = np.linspace(min(0.0, float(similarity.min())), 1, 61)
    for rows, kind, name in ((~strange, "clean", "0 to 7"), (strange, "ood", "8 and 9, OOD")):
        color = plotting.KIND_STYLES[kind].color
        axes.hist(similarity[rows], bins, color=color, alpha=0.65, label=name)
    zeta = 1 - story.result.model.threshold
    axes.axvline(zeta, color=plotting.BLACK, linewidth=1)
    axes.annotate(f"ζ = {zeta:.2f}: rejected to the left", (zeta, 0.9), xycoords=("data", "axes fraction"),
                  ha="right", xytext=(-5, 0), textcoords="offset points", fontsize=6.5)  # fmt: skip
    axes.set_xlabel("s(x), likeness to the nearest prototype")
    axes.set_ylabel("digits")
    plotting.legend_above(axes)
    return figure


def draw_neighbors(story: Story) -> Figure:
    """An example of each verdict with its five nearest neighbors."""
    from matplotlib.figure import Figure

    table = story.result.cleaning.verdicts
    rows = [_example(story, verdict) for verdict in SHOWN if (table["verdict"] == verdict).any()]
    figure = Figure(figsize=(plotting.PAGE, 1.15 * len(rows)), layout="constrained")
    for line, row in enumerate(rows):
        sample = table.iloc[row]
        near = [int(name) for name in sample["neighbors"]]
        verdict = sample["verdict"]
        proposal = f"→ {sample['proposed_label']}" if verdict == "relabel" else ""
        for column, (at, title) in enumerate(
            [(row, f"{verdict}\ngiven {sample['given_label']} {proposal}")]
            + [(at, f"given {table.iloc[at]['given_label']}") for at in near]
        ):
            axes = figure.add_subplot(len(rows), 6, 6 * line + column + 1)
            axes.imshow(story.digits.images[story.train[at], 0], cmap="gray_r", interpolation="nearest")
            axes.set_title(title, fontsize=6.5, fontweight="bold" if column == 0 else "normal")
            _bare(axes)
            if column == 0:
                for spine in axes.spines.values():
                    spine.set(visible=True, linewidth=1.5, color=plotting.BLUE)
    return figure


def _kinds(truth: npt.NDArray[np.int64], labels: npt.NDArray[np.int64]) -> npt.NDArray[np.str_]:
    return np.where(truth >= KNOWN, "ood", np.where(labels == truth, "clean", "wrong"))


def _example(story: Story, verdict: str) -> int:
    """The sample of a verdict with the median score: neither the best case nor the worst."""
    table = story.result.cleaning.verdicts
    by = "ood_score" if verdict == "ood" else "label_quality"
    ordered = table[table["verdict"] == verdict].sort_values(by)
    return int(ordered.index[len(ordered) // 2])


def _bare(axes: Axes) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(False)


def charts() -> ModuleType:
    """Import benchmarks/charts.py, which imports its neighbors by name."""
    sys.path.insert(0, str(IMAGES.parents[1] / "benchmarks"))
    try:
        return import_module("charts")
    finally:
        sys.path.pop(0)


if __name__ == "__main__":
    from photos import save_verdicts

    drawn = [*draw_all(run_demo(), IMAGES), *draw_recorded(IMAGES), *charts().draw_charts(IMAGES)]
    for path in [*drawn, save_verdicts(IMAGES)]:
        print(path)
