"""Compare embedders: `clean` on the photos with each available one, and the cost of each.

python benchmarks/embedders.py --data-root DATA     a few minutes; adds to results/scorings.json
"""

import csv
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from audit import COMPARED, OF_NEW, photo_draws, read_options, score_predictions, spread
from common import note_scorings, save
from graphclean.bench.machine import machine
from graphclean.cleaning import infer_verdicts
from graphclean.data.images import UnreadableImage, open_image
from graphclean.embed import Embedder, FunctionEmbedder, embed_batches, load_embedder
from graphclean.embed.functions import FUNCTION_PREFIX
from graphclean.errors import InputError
from graphclean.metrics import score_verdicts

Array = np.ndarray
OF_VERDICTS = ("mislabel_f1", "issue_f1", "label_accuracy", "ood_auroc")
BLOCK = 150
"""Photos per timing block: embedders alternate between blocks, so that other load on the machine affects all
alike.
"""
LEVELS = 8


def raw_pixels(pictures: Array) -> Array:
    """Raw pixel values, a baseline that every embedder should reach."""
    return pictures.reshape(len(pictures), -1)


def color_histogram(pictures: Array) -> Array:
    """Histograms of red, green and blue in each quadrant."""
    half = pictures.shape[1] // 2
    quarters = (pictures // (256 // LEVELS)).reshape(-1, 2, half, 2, half, 3)
    return np.stack([(quarters == level).mean((2, 4)) for level in range(LEVELS)], -1).reshape(
        len(pictures), -1
    )


OFFERED: tuple[str | Embedder, ...] = (
    FunctionEmbedder(raw_pixels, size=32),
    FunctionEmbedder(color_histogram, size=64),
    "efficientnet-lite0",
    "efficientnet-lite2",
    "timm:convnext_tiny.fb_in22k",
    "timm:vit_small_patch14_dinov2.lvd142m",
)
"""Baselines, our own embedders, and popular networks of timm, which need their weights."""


def find_embedders() -> Iterator[tuple[str, Embedder | str]]:
    """Every embedder by name; instead of an unavailable one, the reason."""
    for spec in OFFERED:
        name = spec if isinstance(spec, str) else spec.name.removeprefix(FUNCTION_PREFIX).replace("_", " ")
        try:
            yield name, load_embedder(spec)
        except InputError as error:
            yield name, str(error)


def embed_in_turns(paths: list[Path], embedders: dict[str, Embedder]) -> dict[str, dict[str, Any]]:
    """The features of all photos, and the median CPU and wall-clock time per 1,000 photos."""
    parts: dict[str, list[Array]] = {name: [] for name in embedders}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in embedders}
    for embedder in embedders.values():  # warm-up
        list(embed_batches(enumerate(paths[:32]), open_image, embedder, refusal=UnreadableImage))
    for first in range(0, len(paths), BLOCK):
        block = paths[first : first + BLOCK]
        for name, embedder in embedders.items():
            busy, clock = time.process_time(), time.perf_counter()
            done = list(embed_batches(enumerate(block), open_image, embedder, refusal=UnreadableImage))
            spent = time.process_time() - busy, time.perf_counter() - clock
            assert not any(batch.problems for batch in done)
            parts[name] += [batch.inputs for batch in done]
            if len(block) == BLOCK:
                times[name].append(spent)
        print(f"{first + len(block):,} of {len(paths):,} photos", flush=True)
    found = {}
    for name, rows in times.items():
        busy, clock = 1000 / BLOCK * np.median(rows, axis=0)
        facts = {"blocks": len(rows), "cpu_seconds_per_1000": float(busy), "seconds_per_1000": float(clock)}
        found[name] = {"features": np.concatenate(parts[name]), **facts}
    return found


def read_truth(root: Path) -> tuple[list[Path], list[Path], dict[str, Array]]:
    """Paths of training and test photos, and their given and true labels as class numbers (−1 for OOD)."""
    rows, new = (
        list(csv.DictReader((root / "photos" / f"{part}_truth.csv").open())) for part in ("train", "test")
    )
    code = {name: number for number, name in enumerate(sorted({row["given_label"] for row in rows}))}
    code["OOD"] = -1
    labels = {
        "given": np.array([code[row["given_label"]] for row in rows]),
        "truth": np.array([code[row["true_label"]] for row in rows]),
        "test_truth": np.array([code[row["true_label"]] for row in new]),
    }
    train, test = ([root / "photos" / row["path"] for row in part] for part in (rows, new))
    return train, test, labels


def score(photos: dict[str, Array]) -> dict[str, Any]:
    """Scores of `clean` on the labels as shipped and on similar draws: its verdicts, and new photos."""
    verdicts, new = [], []
    for draw in photo_draws(photos, COMPARED):
        cleaning = infer_verdicts(draw.features, draw.labels)
        verdicts.append(asdict(score_verdicts(cleaning.verdicts, draw.truth, draw.truth < 0)))
        if cleaning.predictor is not None:  # there is a class signal
            table = cleaning.predictor.predict(photos["test"])
            new.append(score_predictions(table, photos["test_truth"]))
    return {
        "verdicts": {c: _spread([row[c] for row in verdicts]) for c in OF_VERDICTS},
        "new": {c: _spread([row[c] for row in new]) for c in OF_NEW},
    }


def _spread(values: list[float]) -> dict[str, float | None]:
    """Mean and standard deviation; None if a draw has no such score, as there is no model without a class
    signal.
    """
    whole = len(values) == COMPARED and np.isfinite(values).all()
    return {**spread(values)} if whole else {"mean": None, "sd": None}


def main() -> None:
    root, _ = read_options(__doc__)
    train, test, labels = read_truth(root)
    offered = dict(find_embedders())
    embedded = embed_in_turns(
        train + test, {name: found for name, found in offered.items() if isinstance(found, Embedder)}
    )
    results: list[dict[str, Any]] = []
    scorings: list[dict[str, Any]] = []
    for name, found in offered.items():
        if isinstance(found, str):
            results.append({"embedder": name, "not_run": found})
            continue
        measured = embedded[name]
        z = measured.pop("features")
        scores = score({"train": z[: len(train)], "test": z[len(train) :], **labels})
        facts = {"pixels": found.size, "features": z.shape[1], **measured}
        results.append({"embedder": name, **facts, **scores})
        print(results[-1], flush=True)
        recipe = f"`clean` alone, photos embedded by {name}"
        scorings.append({"recipe": recipe, "machine": machine(), "draws": COMPARED, "graph": scores["new"]})
    print(save("embedders", {"photos": len(train), "draws": COMPARED, "embedders": results}))
    print(note_scorings(scorings))


if __name__ == "__main__":
    main()
