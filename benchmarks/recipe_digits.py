"""Ablate the parts of one recipe for every kind of noise on the digits: gain and cost of each by itself.

python benchmarks/recipe_digits.py OUT.jsonl [--arms NAME…] [--seeds 5 6 7]     ten seconds a run on one core

OUT has one line per run; runs that it already contains are skipped.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from graphclean.bench.noise import instance_dependent, pair, symmetric
from graphclean.cleaning.inputs import encode_classes
from graphclean.config import apply_settings, load_preset
from graphclean.data.digits import KNOWN, noisy_digits
from graphclean.methods import build_method
from graphclean.metrics import auroc, score_cleaning
from graphclean.training.fit import fit

TRAINED_ON = 1200
TAKEN_FOR = {7: 1, 3: 8, 5: 6, 4: 9, 9: 4}
TAKEN_FOR_OF_EIGHT = {7: 1, 3: 5, 5: 3, 4: 6, 2: 7}
"""As in CIFAR-10's mapping, five classes keep their labels."""
NOISES = ("sym20", "sym50", "sym80", "sym90", "asym40", "pair45", "instance40")
AUTO, BALANCED, POSITIVES = "graph.accept=auto", "method.balance_cap=4", "method.lambda_consistency=1"
ARMS: dict[str, list[str]] = {
    "uniform": [],
    "argmax": ["graph.accept=argmax"],
    "auto": [AUTO],
    "class-dependent": ["graph.class_dependent_noise=true"],
    "given": ["graph.start=given"],
    "balanced": [BALANCED],
    "positives": [POSITIVES, "method.lambda_inst=0"],
    "positives-too": [POSITIVES],
    "auto-balanced": [AUTO, BALANCED],
    "k": ["graph.k=auto"],
    "k-warmup": ["graph.k=auto", "method.warmup_epochs=auto"],
    "eta": ["graph.eta=auto"],
    "recipe": [AUTO, BALANCED, "graph.eta=auto"],
}
"""Changes to the preset `demo`."""


@dataclass(frozen=True)
class Case:
    """Digits with noisy labels; truth is −1 for OOD. The first `TRAINED_ON` are for training."""

    name: str
    seed: int
    images: np.ndarray
    labels: np.ndarray
    truth: np.ndarray


def cases(seed: int) -> Iterator[Case]:
    """Every kind of noise, on ten digits without OOD and with 8s and 9s as OOD."""
    for ood in (False, True):
        n_classes = KNOWN if ood else 10
        for noise in NOISES:
            kind, rate = noise.rstrip("0123456789"), int(noise[-2:]) / 100
            data = noisy_digits(seed=seed)
            rng = np.random.default_rng(seed)
            known = data.truth < n_classes
            labels = rng.integers(0, n_classes, len(data.truth))
            true = data.truth[known]
            if kind == "sym":
                labels[known] = symmetric(true, rate, n_classes, rng)
            elif kind == "pair":
                labels[known] = pair(true, rate, n_classes, rng)
            elif kind == "instance":
                labels[known] = instance_dependent(true, rate, n_classes, data.images[known], rng)
            else:
                taken = TAKEN_FOR_OF_EIGHT if ood else TAKEN_FOR
                chosen = rng.choice(np.flatnonzero(known), round(rate * known.sum()), replace=False)
                labels[known] = true
                labels[chosen] = [taken.get(digit, digit) for digit in labels[chosen]]
            truth = np.where(known, data.truth, -1)
            order = np.random.default_rng(1000 + seed).permutation(len(truth))
            name = f"{noise}+ood" if ood else noise
            yield Case(name, seed, data.images[order], labels[order], truth[order])


def run(case: Case, changes: list[str]) -> dict[str, float | None]:
    """Train, and score the held-out images and the final selection."""
    config = apply_settings(load_preset("demo"), [*changes, f"training.seed={case.seed}"])
    labels, truth = case.labels[:TRAINED_ON], case.truth[:TRAINED_ON]
    result = fit(case.images[:TRAINED_ON], encode_classes(labels, TRAINED_ON), config, build_method(config))
    chosen = result.trained.selection
    found = score_cleaning(chosen.labels.numpy(), chosen.selected.numpy(), truth)
    new, held_out = result.predict(case.images[TRAINED_ON:]), case.truth[TRAINED_ON:]
    known = held_out >= 0
    sizes = np.bincount(chosen.labels[chosen.selected].numpy(), minlength=len(result.model.classes))
    return {
        "accuracy": float((new.classes == held_out)[known].mean()),
        "auroc": None if known.all() else auroc(new.ood_score, ~known),
        "selected": found.selected,
        "wrong": found.wrong_known,
        "ood": found.ood,
        "label_accuracy": found.label_accuracy,
        "smallest_class": int(sizes.min()),
        "seconds": result.seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--arms", nargs="+", default=list(ARMS))
    parser.add_argument("--cases", nargs="+")
    parser.add_argument("--seeds", type=int, nargs="+", default=[5, 6, 7])
    asked = parser.parse_args()
    torch.set_num_threads(1)
    lines = asked.out.read_text().splitlines() if asked.out.exists() else []
    done = {(line["case"], line["seed"], line["arm"]) for line in map(json.loads, lines)}
    for seed in asked.seeds:
        for case in cases(seed):
            for arm in asked.arms:
                if (case.name, seed, arm) in done or (asked.cases and case.name not in asked.cases):
                    continue
                scores = run(case, ARMS[arm])
                line = {"case": case.name, "seed": seed, "arm": arm, **scores}
                with asked.out.open("a") as file:
                    file.write(json.dumps(line) + "\n")
                print(line, flush=True)


if __name__ == "__main__":
    main()
