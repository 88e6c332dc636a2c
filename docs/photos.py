"""Eight pictures with their verdicts, for "How verdicts are made"; the pictures are also drawn here.

`clean_embeddings` judges 200 drawn pictures of fruit by their colors, with a quarter of the labels resampled.
They include umbrellas, which belong to no class.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from graphclean import clean_embeddings
from graphclean.cleaning.evidence import Standardizer
from graphclean.data.verdict import Verdict
from graphclean.errors import DataWarning
from graphclean.graph import nearest_neighbors
from graphclean.report import theme

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLASSES = ("apple", "banana", "pear")
COUNT, OOD_COUNT, NOISE, SIDE = 60, 20, 0.25, 96
SHOWN = {Verdict.KEEP: 3, Verdict.RELABEL: 3, Verdict.OOD: 2}
"""Maximum number of pictures shown per verdict."""


@dataclass(frozen=True)
class Pictures:
    """Drawn pictures with their given labels and true kinds, and the verdicts on them."""

    images: npt.NDArray[np.uint8]
    given: npt.NDArray[np.str_]
    truth: npt.NDArray[np.str_]
    verdicts: pd.DataFrame

    @property
    def neighbors(self) -> npt.NDArray[np.int64]:
        """The nearest neighbors of each picture, as many as the verdicts use."""
        z = features(self.images)
        return nearest_neighbors(Standardizer.fit(z)(z), self.verdicts.attrs["summary"]["k"]).indices.numpy()


def make_pictures(seed: int = 0) -> Pictures:
    """Draw pictures, add label noise, and judge them."""
    rng = np.random.default_rng(seed)
    truth = np.repeat([*CLASSES, "umbrella"], [COUNT] * len(CLASSES) + [OOD_COUNT])
    rng.shuffle(truth)
    images = np.stack([draw_picture(kind, rng) for kind in truth])
    random = rng.choice(CLASSES, len(truth))
    resampled = (rng.random(len(truth)) < NOISE) | (truth == "umbrella")
    given = np.where(resampled, random, truth)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)  # about having only three classes
        verdicts = clean_embeddings(features(images), given)
    return Pictures(images, given, truth, verdicts)


def features(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Mean colors of an 8 × 8 grid of tiles."""
    tiles = images.reshape(len(images), 8, SIDE // 8, 8, SIDE // 8, 3)
    return (tiles.mean((2, 4)) / 255).reshape(len(images), -1).astype(np.float32)


def draw_picture(kind: str, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Draw one picture: an object of random size, place and color on a light background."""
    big = 4 * SIDE
    ground = tuple(int(value) for value in rng.integers(222, 250, 3))
    picture = Image.new("RGB", (big, big), ground)
    pen = ImageDraw.Draw(picture)
    x, y = (big * (0.5 + rng.uniform(-0.05, 0.05)) for _ in range(2))
    size = big * rng.uniform(0.27, 0.34)

    def color(red: int, green: int, blue: int) -> tuple[int, ...]:
        return tuple(int(np.clip(value + rng.normal(0, 12), 0, 255)) for value in (red, green, blue))

    if kind == "apple":
        pen.ellipse((x - size, y - 0.9 * size, x + size, y + size), fill=color(200, 45, 45))
        pen.line((x, y - 0.8 * size, x + 0.15 * size, y - 1.3 * size), fill=(96, 64, 32), width=12)
        pen.ellipse((x + 0.1 * size, y - 1.3 * size, x + 0.7 * size, y - 1.0 * size), fill=color(70, 140, 60))
    elif kind == "banana":
        pen.ellipse((x - 1.2 * size, y - size, x + 1.2 * size, y + size), fill=color(235, 200, 60))
        pen.ellipse((x - 1.1 * size, y - 1.5 * size, x + 1.3 * size, y + 0.35 * size), fill=ground)
        pen.ellipse((x - 1.25 * size, y - 0.1 * size, x - 1.05 * size, y + 0.15 * size), fill=(96, 64, 32))
    elif kind == "pear":
        green = color(150, 185, 70)
        pen.ellipse((x - 0.85 * size, y - 0.3 * size, x + 0.85 * size, y + 1.15 * size), fill=green)
        pen.ellipse((x - 0.5 * size, y - 1.1 * size, x + 0.5 * size, y + 0.4 * size), fill=green)
        pen.line((x, y - size, x + 0.1 * size, y - 1.4 * size), fill=(96, 64, 32), width=12)
    else:  # an umbrella, each in its own color
        own = color(*(int(value) for value in rng.integers(30, 220, 3)))
        pen.pieslice((x - 1.2 * size, y - 1.1 * size, x + 1.2 * size, y + 1.1 * size), 180, 360, fill=own)
        pen.line((x, y, x, y + 1.1 * size), fill=(60, 60, 60), width=16)
    return np.asarray(picture.resize((SIDE, SIDE), Image.Resampling.LANCZOS))


def choose(found: Pictures) -> list[int]:
    """Rows of each verdict, evenly spaced from most to least confident: no best cases."""
    rows: list[int] = []
    for verdict, count in SHOWN.items():
        of_it = found.verdicts[found.verdicts["verdict"] == verdict]
        ordered = of_it.sort_values("confidence", ascending=False, kind="stable").index.to_numpy()
        at = np.linspace(0, len(ordered) - 1, count + 2).round().astype(int)[1:-1]
        rows += [int(row) for row in ordered[np.unique(at)]]
    return rows


def draw_verdicts(found: Pictures) -> Figure:
    """A card for each chosen picture: its label, the labels of its nearest neighbors, and the verdict."""
    from matplotlib.figure import Figure

    rows, neighbors = choose(found), found.neighbors
    figure = Figure(figsize=(theme.PAGE, 2.6), layout="constrained")
    grid = figure.add_gridspec(2, 8, width_ratios=[1, 0.85] * 4)
    for number, row in enumerate(rows):
        line, column = divmod(number, 4)
        sample = found.verdicts.iloc[row]
        picture = figure.add_subplot(grid[line, 2 * column])
        picture.imshow(found.images[row])
        picture.set_axis_off()
        picture.set_title(f"labeled\n{sample['given_label']}", fontsize=7)
        votes = figure.add_subplot(grid[line, 2 * column + 1])
        draw_votes(votes, found.given[neighbors[row]])
        verdict = str(sample["verdict"])
        proposed = f"→ {sample['proposed_label']}, " if verdict == Verdict.RELABEL else ""
        votes.set_title(
            f"{verdict}\n{proposed}{100 * sample['confidence']:.0f} %",
            fontsize=6.3,
            fontweight="bold",
            color=theme.VERDICT_STYLES[Verdict(verdict)].color,
        )
    return figure


def draw_votes(axes: Axes, labels: npt.NDArray[np.str_]) -> None:
    """The number of neighbors with each label."""
    counts = [int((labels == name).sum()) for name in CLASSES]
    axes.barh(range(len(CLASSES)), counts, color="#888888", height=0.6)
    axes.set_yticks(range(len(CLASSES)), CLASSES, fontsize=6)
    axes.set_xlim(0, len(labels))
    axes.set_xticks([0, len(labels)])
    axes.tick_params(labelsize=6, length=0)
    axes.invert_yaxis()
    axes.set_box_aspect(1)


def facts(found: Pictures) -> str:
    """The facts shown in the figure, as recorded in its file."""
    rows = choose(found)
    table = found.verdicts.iloc[rows][["given_label", "proposed_label", "verdict", "confidence"]]
    votes = np.sort(found.given[found.neighbors[rows]], axis=1).tolist()
    return json.dumps([table.round(2).astype(str).to_numpy().tolist(), votes])


def save_verdicts(out: Path) -> Path:
    """Save the figure to a file."""
    found, path = make_pictures(), out / "verdicts.png"
    with theme.look():
        about = {**theme.METADATA["png"], "Description": facts(found)}
        draw_verdicts(found).savefig(path, metadata=about)
    return path
