"""Train with and without `graph.class_dependent_noise`, on digits and small CIFAR images with class-dependent
noise.

python benchmarks/mistakes.py digits                     bundled data, about eight minutes on one core
python benchmarks/mistakes.py cifar --data-root DATA     only CIFAR's training images, half an hour
"""

import argparse
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from common import data_root, save
from graphclean.bench.datasets import load_split
from graphclean.bench.noise import asymmetric, symmetric
from graphclean.cleaning.inputs import encode_classes
from graphclean.config import Config, apply_settings, load_preset
from graphclean.data.digits import KNOWN, noisy_digits
from graphclean.data.resize import to_array
from graphclean.methods import build_method
from graphclean.metrics import auroc, score_cleaning
from graphclean.training.fit import fit

Array = np.ndarray
SEEDS = range(5)
TAKEN_FOR = {7: 1, 3: 8, 5: 6, 4: 9, 9: 4}
"""Asymmetric noise on ten digits; as in CIFAR-10's mapping, five classes keep their labels."""
TAKEN_FOR_OF_EIGHT = {7: 1, 3: 5, 5: 3, 4: 6, 2: 7}
"""Asymmetric noise if 8s and 9s are OOD."""
SMALL_CIFAR = (
    "training.strong_augmentation=off",
    "method.ood_gate_start=1",
    "training.epochs=15",
    "graph.eta=0.7",
)
"""Changes to `small-images` that make a run take minutes."""
TRAINED_ON, SCORED_ON, SIDE = 10_000, 4_000, 16


@dataclass(frozen=True)
class Case:
    """Images with noisy labels; truth is −1 for OOD. The first `n` are for training, the rest for scoring."""

    name: str
    seed: int
    images: Array
    labels: Array
    truth: Array
    n: int
    config: Config


def digit_cases() -> Iterator[Case]:
    """Digits with 40 % asymmetric noise, without and with OOD, and with the demo's noise."""
    for name, n_classes, taken_for in (
        ("asym", 10, TAKEN_FOR),
        ("asym, OOD", KNOWN, TAKEN_FOR_OF_EIGHT),
        ("sym, OOD", KNOWN, None),
    ):
        for seed in SEEDS:
            data = noisy_digits(seed=seed)
            known = data.truth < n_classes
            labels = data.labels
            if taken_for is not None:
                rng = np.random.default_rng(seed)
                labels = data.truth.copy()
                chosen = rng.choice(np.flatnonzero(known), round(0.4 * known.sum()), replace=False)
                labels[chosen] = [taken_for.get(digit, digit) for digit in labels[chosen]]
                labels[~known] = rng.integers(0, n_classes, (~known).sum())
            truth = np.where(known, data.truth, -1)
            order = np.random.default_rng(1000 + seed).permutation(len(truth))
            config = apply_settings(load_preset("demo"), [f"training.seed={seed}"])
            yield Case(name, seed, data.images[order], labels[order], truth[order], 1200, config)


def cifar_cases(root: Path | None) -> Iterator[Case]:
    """CIFAR training images at 16 px: weak features, with which classes look alike."""
    found = load_split("cifar10", "train", root)
    drawn = np.random.default_rng(0).permutation(len(found.labels))[: TRAINED_ON + SCORED_ON]
    truth = np.asarray(found.labels)[drawn]
    images = np.stack([to_array(Image.fromarray(found.images[i].transpose(1, 2, 0)), SIDE) for i in drawn])
    for name, seeds in (("asym", range(2, 5)), ("clean", range(2, 4)), ("sym", range(2, 3))):
        for seed in seeds:
            rng = np.random.default_rng(seed)
            labels = truth
            if name == "asym":
                labels = asymmetric(truth, 0.4, rng)
            elif name == "sym":
                labels = symmetric(truth, 0.5, 10, rng)
            config = apply_settings(load_preset("small-images"), [*SMALL_CIFAR, f"training.seed={seed}"])
            yield Case(name, seed, images, labels, truth, TRAINED_ON, config)


def run(case: Case, class_dependent_noise: bool) -> dict[str, Any]:
    """Train, and score the final labels and selection and the held-out images."""
    config = apply_settings(
        case.config, [f"graph.class_dependent_noise={str(class_dependent_noise).lower()}"]
    )
    labels, truth = case.labels[: case.n], case.truth[: case.n]
    result = fit(case.images[: case.n], encode_classes(labels, case.n), config, build_method(config))
    cleaned = result.trained.selection
    scores = score_cleaning(cleaned.labels.numpy(), cleaned.selected.numpy(), truth)
    new, held_out = result.predict(case.images[case.n :]), case.truth[case.n :]
    known = held_out >= 0
    return {
        "case": case.name,
        "seed": case.seed,
        "class_dependent_noise": class_dependent_noise,
        "given_right": float((labels == truth)[truth >= 0].mean()),
        "cleaning": asdict(scores),
        "accuracy": float((new.classes == held_out)[known].mean()),
        "auroc": None if known.all() else auroc(new.ood_score, ~known),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("on", choices=("digits", "cifar"))
    parser.add_argument("--data-root")
    args = parser.parse_args()
    torch.set_num_threads(1)
    runs = []
    for case in digit_cases() if args.on == "digits" else cifar_cases(data_root(args.data_root)):
        for class_dependent_noise in (False, True):
            runs.append(run(case, class_dependent_noise))
            print(runs[-1], flush=True)
    print(save(f"mistakes-{args.on}", {"runs": runs}))


if __name__ == "__main__":
    main()
