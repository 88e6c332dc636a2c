"""The gain of `clean` from choosing scaling and class means by likelihood, and its cost.

python benchmarks/choices.py --data-root DATA     four minutes, and as long again for features
"""

import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score
from sklearn.neighbors import KNeighborsClassifier

from audit import embed_cifar
from audit_sets import Draw, flip
from common import RESULTS, feature_options, parse_feature_options, save
from detectors import embed_classes
from graphclean import NoisyGraphClassifier
from graphclean.cleaning import infer_verdicts
from graphclean.config import CleaningSettings

WAYS = {"neighbors alone": CleaningSettings(classifier="knn"), "chosen": CleaningSettings()}
REPEATS = 3
SEEDS = range(3)
HELD_OUT = 3
"""One in this many digits is held out."""
NEIGHBORS = (5, 10, 20)


def draws(root: Path, cache: Path) -> list[Draw]:
    """CIFAR-10 without OOD and 36 classes of TinyImageNet as pretrained features; digits as pixels."""
    cifar = embed_cifar(root, cache / "cifar.npz")
    known = cifar["truth"] >= 0
    z, names = embed_classes(
        root / "tinyimagenet32/pool-00000-of-00001.parquet", "image", 36, 120, cache / "tiny-classes.npz"
    )
    sets = {
        "CIFAR-10": (cifar["features"][known], cifar["truth"][known]),
        "TinyImageNet, 36 classes": (z, np.unique(names, return_inverse=True)[1]),
        "digits": load_digits(return_X_y=True),
    }
    return [Draw(name, "30 %", z, flip(truth, 0.3, 0), truth) for name, (z, truth) in sets.items()]


def compare(draw: Draw) -> dict[str, Any]:
    """Average precision of wrong labels and CPU seconds for both settings, run alternately."""
    found: dict[str, Any] = {"set": draw.group, "samples": len(draw.labels)}
    spent: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(REPEATS):
        for way, settings in WAYS.items():
            start = time.process_time()
            cleaning = infer_verdicts(draw.features, draw.labels, settings=settings)
            spent[way].append(time.process_time() - start)
            quality = cleaning.verdicts.label_quality
            found[way] = {
                "ranking": float(average_precision_score(draw.labels != draw.truth, 1 - quality)),
                "class_means": cleaning.class_means is not None,
            }
    for way, seconds in spent.items():
        found[way]["cpu_seconds"] = median(seconds)
    return found


def classify_digits() -> list[dict[str, Any]]:
    """Accuracy on new digits of the estimator and of k-NN, trained on pixels with 30 % of the labels
    resampled.
    """
    pixels, truth = load_digits(return_X_y=True)
    rows = []
    for seed in SEEDS:
        held = np.random.default_rng(seed).permutation(len(truth)) % HELD_OUT == 0
        labels = flip(truth[~held], 0.3, seed)
        train, new = pixels[~held], pixels[held]
        ours = NoisyGraphClassifier(random_state=seed).fit(train, labels)
        peers = {k: KNeighborsClassifier(k).fit(train, labels) for k in NEIGHBORS}
        rows.append(
            {
                "seed": seed,
                "graphclean": float(ours.score(new, truth[held])),
                **{f"k-NN, k = {k}": float(peer.score(new, truth[held])) for k, peer in peers.items()},
            }
        )
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    args, root = parse_feature_options(feature_options(__doc__, threads=1))
    digits = classify_digits()
    rows = []
    for draw in draws(root, args.cache):
        rows.append(compare(draw))
        print(rows[-1], flush=True)
    print(save("choices", {"class_means": rows, "digits": digits}, RESULTS))


if __name__ == "__main__":
    main()
