"""Every method on the digits under symmetric and asymmetric noise, with as many epochs as plain
cross-entropy.

python benchmarks/methods.py [--methods NAME…] [--seeds 0 1 2 3 4] [--seconds 3600]     seconds a run

Recorded runs are skipped; each run is saved when it ends. Nothing is tuned here: network, learning rate and
epochs are those of the preset `demo`; a method's settings are its defaults, or its paper's for the kind of
noise.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from common import load, save
from graphclean.bench.machine import machine
from graphclean.bench.noise import symmetric
from graphclean.cleaning.inputs import encode_classes
from graphclean.config import apply_settings, load_preset
from graphclean.config.settings import PLAIN
from graphclean.data.digits import noisy_digits
from graphclean.methods import OWN_METHODS, build_method, load_method
from graphclean.metrics import score_cleaning
from graphclean.training.fit import finish, prepare
from recipe_digits import TAKEN_FOR, TRAINED_ON

SEEDS = range(5)
RATE = 0.4
NOISES = {
    "sym40": "symmetric noise (40 %)",
    "asym40": "asymmetric noise (40 % of five digits flipped to another)",
}
BASELINE, ONE_VIEW = "cross-entropy", "cross-entropy, one view"
"""Cross-entropy with two weak views of every sample, and with one; the latter memorizes less, and all methods
are compared with it.
"""
CHANGES: dict[str, list[str]] = {
    BASELINE: list(PLAIN),
    ONE_VIEW: ["method.name=mixup", "method.mixup_alpha=0"],
    "c2d": ["method.name=c2d", "training.self_supervised_crop=1"],  # as the setting's docs say for digits
}
"""Settings of the methods that need more than their name."""
FOR_NOISE: dict[tuple[str, str], list[str]] = {
    ("elr", "asym40"): ["method.beta=0.9", "method.lambda_elr=1"],
    ("incv", "asym40"): ["method.noise=asymmetric"],
    ("elr-plus", "asym40"): ["method.beta=0.9", "method.lambda_elr=1"],
    ("sop-plus", "asym40"): ["method.lr_v=100"],
    ("dividemix", "asym40"): ["method.lambda_u=0", "method.confidence_penalty=true"],
    ("dividemix-1", "asym40"): ["method.lambda_u=0", "method.confidence_penalty=true"],
    ("unicon", "asym40"): ["method.confidence_penalty=true"],
    ("c2d", "asym40"): ["method.lambda_u=0", "method.confidence_penalty=true"],
}
"""Settings from a method's paper for the kind of noise, if they differ from the defaults."""
NOT_RUN = {"verdicts": "takes embeddings", "trusted samples": "takes samples with trusted labels"}


def runnable() -> dict[str, str]:
    """Every method by name, with the reason if it can't be compared here, otherwise ''."""
    found = dict.fromkeys((BASELINE, ONE_VIEW), "")
    for name in OWN_METHODS:
        info = load_method(name).info
        why = [NOT_RUN[need] for need in info.needs if need in NOT_RUN]
        found[name] = why[0] if why else "classifies nothing" if info.kind == "ood" else ""
    return found


def make_labels(truth: np.ndarray, noise: str, seed: int) -> np.ndarray:
    """Noisy labels for the ten digits."""
    rng = np.random.default_rng(seed)
    if noise == "sym40":
        return symmetric(truth, RATE, 10, rng)
    labels = truth.copy()
    chosen = rng.choice(len(truth), round(RATE * len(truth)), replace=False)
    labels[chosen] = [TAKEN_FOR.get(digit, digit) for digit in labels[chosen]]
    return labels


def run(name: str, noise: str, seed: int) -> dict[str, Any]:
    """Train, and score the held-out images and the final selection."""
    data = noisy_digits(seed=seed)
    order = np.random.default_rng(1000 + seed).permutation(len(data.truth))
    images, truth = data.images[order], data.truth[order]
    labels = make_labels(truth, noise, seed)[:TRAINED_ON]
    changes = CHANGES.get(name, [f"method.name={name}"] if name != "ngc" else [])
    changes = [*changes, *FOR_NOISE.get((name, noise), []), f"training.seed={seed}"]
    config = apply_settings(load_preset("demo"), changes)
    method = build_method(config)
    prepared = prepare(images[:TRAINED_ON], encode_classes(labels, TRAINED_ON), config, method)
    started = time.process_time()
    trained = prepared.trainer.train()
    seconds = time.process_time() - started
    predicted = finish(prepared, trained).model.score(images[TRAINED_ON:])
    chosen = trained.selection
    known = truth[:TRAINED_ON]
    cleaning = score_cleaning(chosen.labels.numpy(), chosen.selected.numpy(), known)
    return {
        "method": name,
        "noise": noise,
        "seed": seed,
        "title": method.info.title,
        "cost": method.info.cost,
        "changes": changes,
        "given_right": float((labels == known).mean()),
        "accuracy": float((predicted.classes == truth[TRAINED_ON:]).mean()),
        "selected": cleaning.selected,
        "wrong": cleaning.wrong_known,
        "label_accuracy": cleaning.label_accuracy,
        "notes": trained.notes,
        "cpu_seconds": seconds,
        "commit": machine()["commit"],
    }


def left(
    runs: list[dict[str, Any]], names: Sequence[str], seeds: Sequence[int]
) -> Iterator[tuple[str, str, int]]:
    """The unrecorded runs, completing each seed before the next."""
    done = {(each["method"], each["noise"], each["seed"]) for each in runs}
    for seed in seeds:
        for noise in NOISES:
            yield from ((name, noise, seed) for name in names if (name, noise, seed) not in done)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    known = runnable()
    parser.add_argument("--methods", nargs="+", choices=known, metavar="NAME", default=list(known))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start nothing after so many")
    parser.add_argument("--out", default="methods", help="name of the result (default: %(default)s)")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    end = time.monotonic() + asked.seconds
    result = load(asked.out)
    runs: list[dict[str, Any]] = result["runs"] if result is not None else []
    not_run = {name: why for name, why in known.items() if why}
    for name, noise, seed in left(runs, [name for name in asked.methods if name not in not_run], asked.seeds):
        if time.monotonic() >= end:
            print("the time is over; the same command continues")
            break
        runs.append(run(name, noise, seed))
        print(
            {key: runs[-1][key] for key in ("method", "noise", "seed", "accuracy", "cpu_seconds")}, flush=True
        )
        save(asked.out, {"command": "python benchmarks/methods.py", "runs": runs, "not_run": not_run})


if __name__ == "__main__":
    main()
