"""Compare the time per training epoch of two versions of graphclean, run alternately on one machine.

    python benchmarks/compare.py OLD NEW --old-set learn.epochs=8 --new-set training.epochs=8

OLD and NEW are folders with the sources of one version each, such as `git archive REVISION | tar x -C FOLDER`
makes. Both train on the same synthetic images through their command line, so modules may have moved; a
renamed setting is passed to each version by its own name. The first epoch and the warm-up are excluded;
medians over the remaining epochs are insensitive to compilation for new shapes.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from common import RESULTS, save

PIXELS, CLASSES = 32, 10


def make_images(path: Path, samples: int) -> None:
    """Noisy images of one color pattern per class, which a network learns immediately: all samples get
    selected.
    """
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, samples)
    patterns = rng.integers(0, 256, (CLASSES, PIXELS, PIXELS, 3), dtype=np.uint8)
    images = rng.integers(0, 256, (samples, PIXELS, PIXELS, 3), dtype=np.uint8) // 2
    images += patterns[labels] // 2
    np.savez(path, images=images, labels=labels)


def train(tree: Path, images: Path, out: Path, words: list[str]) -> dict[str, Any]:
    """Median seconds per epoch after warm-up: in total, and of the cleaning step."""
    command = [sys.executable, "-m", "graphclean", "train", str(images), "--out", str(out), "--quiet", *words]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(tree / "src")})
    epochs = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    counted = [epoch for epoch in epochs[1:] if not epoch["warmup"]]
    if len(counted) < 2:
        sys.exit(f"{len(counted)} epochs after the first one and the warm-up: too few to compare")
    medians = {
        name: statistics.median(epoch[name] for epoch in counted) for name in ("seconds", "clean_seconds")
    }
    return {**medians, "selected": counted[-1]["selected"], "epochs": [epoch["seconds"] for epoch in epochs]}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--old-set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--new-set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--preset", default="cifar10-lond-fast")
    parser.add_argument("--samples", type=int, default=70_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--names", nargs=2, default=("old", "new"), help="revisions, for the record")
    parser.add_argument("--out", type=Path, default=RESULTS)
    asked = parser.parse_args()
    trees = {asked.names[0]: (asked.old, asked.old_set), asked.names[1]: (asked.new, asked.new_set)}
    rounds: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        images = Path(folder) / "images.npz"
        make_images(images, asked.samples)
        for number in range(asked.rounds):
            found = {}
            for name, (tree, settings) in trees.items():
                words = ["--preset", asked.preset, *(word for item in settings for word in ("--set", item))]
                found[name] = train(tree, images, Path(folder) / f"{number}-{name}", words)
                print(number, name, found[name], flush=True)
            rounds.append(found)
    old, new = trees
    ratios = [found[new]["seconds"] / found[old]["seconds"] for found in rounds]
    print(f"{new} / {old}: {statistics.median(ratios):.3f} of {[round(ratio, 3) for ratio in ratios]}")
    about = {"samples": asked.samples, "preset": asked.preset, "settings": [asked.old_set, asked.new_set]}
    print(save("compare", {**about, "rounds": rounds, "ratio": statistics.median(ratios)}, asked.out))


if __name__ == "__main__":
    main()
