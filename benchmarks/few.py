"""The presets for small images on few images, as users often have: a part of a cell's development split.

python benchmarks/few.py --data-root DATA     minutes on a GPU; every run is saved when it ends
"""

import argparse
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from common import data_root, save
from graphclean.bench.cells import get_cell
from graphclean.bench.epoch_log import describe_scores
from graphclean.bench.inputs import Material, load_sources
from graphclean.bench.noise import make_draw
from graphclean.cleaning.inputs import encode_classes
from graphclean.config import apply_settings, load_preset
from graphclean.methods import build_method
from graphclean.metrics import score_cleaning
from graphclean.training.fit import fit

CELL, COUNT = "cifar10/tinyimagenet/20k", 5_000
TRIED: list[tuple[str, list[str]]] = [
    ("cifar10-lond-plus", []),
    ("cifar10-lond", []),
    ("cifar10-lond-plus", ["training.epochs=300"]),
    ("cifar10-lond-fast", []),
]
"""Presets, and changes to them."""


def run(material: Material, preset: str, changes: list[str], seed: int) -> dict[str, Any]:
    """Train on some of the material, and score the held-out images."""
    draw = material.draw
    chosen = np.random.default_rng(seed).permutation(len(draw.labels))[:COUNT]
    images = material.train_images().numpy()[chosen]
    config = apply_settings(load_preset(preset), [*changes, f"training.seed={seed}"])
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.compiler.reset()
    labels = encode_classes(draw.labels[chosen], COUNT)
    result = fit(images, labels, config, build_method(config), device=device)
    new = result.predict(material.scored_images().numpy())
    cleaned, threshold = result.trained.selection, result.model.threshold
    found = score_cleaning(cleaned.labels.cpu().numpy(), cleaned.selected.cpu().numpy(), draw.truth[chosen])
    classes = np.asarray(new.classes).astype(np.int64)
    return {
        "preset": preset,
        "changes": changes,
        "seed": seed,
        "seconds": result.seconds,
        "scores": describe_scores(classes, new.ood_score, draw.eval_truth, threshold),
        "cleaning": asdict(found),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-root")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    args = parser.parse_args()
    cell = get_cell(CELL)
    sources = load_sources(cell, "dev", data_root(args.data_root))
    assert sources.pool is not None
    runs: list[dict[str, Any]] = []
    for seed in args.seeds:
        draw = make_draw(cell.protocol(seed, "dev"), sources.train.labels, len(sources.pool.images))
        material = Material(sources, draw)
        for preset, changes in TRIED:
            runs.append(run(material, preset, changes, seed))
            print(runs[-1], flush=True)
            save("few", {"cell": CELL, "count": COUNT, "runs": runs})


if __name__ == "__main__":
    main()
