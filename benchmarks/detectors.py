"""Rejection of new inputs: of the known classes, and of classes that were absent in training or present as
OOD.

python benchmarks/detectors.py --data-root DATA     a quarter of an hour, most of it for features
python benchmarks/detectors.py --data-root DATA --photos    only the photos, whose truth is then read
"""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

from audit import _embed, embed_photos, noisy
from common import RESULTS, THREADS, feature_options, load, parse_feature_options, save
from graphclean.bench.machine import machine
from graphclean.cleaning import CleaningResult, infer_verdicts
from graphclean.cleaning.inputs import encode_labels
from graphclean.config import CleaningSettings, load_preset
from graphclean.methods import build_method
from graphclean.ood.model import Model
from graphclean.training.fit import finish, prepare

Array = np.ndarray
WAYS = {"clean": CleaningSettings(), "train": CleaningSettings(classifier="knn+class-means")}
"""`train` on features uses the same detector, fitted to its own posterior."""
NOISE = {"no noise": 0.0, "30 % wrong": 0.3}
OOD_RATE = 0.2
TRAINED_ON = 0.6
"""Fraction of the known samples used for training."""
DIGITS = ([8, 9], [1, 4], [0, 3])
CIFAR = ([2, 7, 9], [0, 3, 8], [1, 4, 5])
"""Unknown classes of each split; those of TinyImageNet are random."""
UNKNOWN_OBJECTS = 3
"""Number of unknown classes out of the ten classes of photos."""
SPLITS = 3
TRUSTED = 200
"""Number of good samples that calibrate a network's threshold."""
NETWORKS = "digits as images, no OOD in training"

MADE_BY = " && ".join(
    f"python benchmarks/detectors.py --data-root DATA{only}" for only in ("", " --photos", " --networks")
)
"""The commands of the whole record."""


class Split(NamedTuple):
    """Training features with labels, and new features of known and of unknown classes."""

    group: str
    name: str
    features: Array
    labels: Array
    good: Array
    unknown: Array


def embed_classes(path: Path, column: str, classes: int, each: int, cache: Path) -> tuple[Array, Array]:
    """Features and classes of a random sample of images and classes."""
    if cache.exists():
        found = np.load(cache)
        return found["features"], found["classes"]
    rng = np.random.default_rng(7)
    table = pq.read_table(path)
    labels = np.array(table["label"].to_pylist())
    chosen = rng.permutation(np.unique(labels))[:classes]
    rows = np.concatenate([rng.permutation(np.flatnonzero(labels == name))[:each] for name in chosen])
    features = _embed([table[column][int(row)].as_py()["bytes"] for row in rows])
    np.savez(cache, features=features, classes=labels[rows])
    return features, labels[rows]


def tiny_unknown(classes: Array) -> list[Array]:
    """The unknown classes of each split: all but 16."""
    names = np.unique(classes)
    return [np.roll(names, -12 * seed)[16:] for seed in range(SPLITS)]


def split(
    group: str, name: str, z: Array, classes: Array, unknown: Any, seed: int, noise: float, ood: float
) -> Split:
    """Split known samples for training and evaluation; with OOD, some of unknown classes are added to the
    former.
    """
    rng = np.random.default_rng(seed)
    is_unknown = np.isin(classes, unknown)
    _, truth = np.unique(np.where(is_unknown, -1, classes), return_inverse=True)
    truth = truth - 1
    known, other = (rng.permutation(np.flatnonzero(mask)) for mask in (~is_unknown, is_unknown))
    count = round(TRAINED_ON * len(known))
    among = round(ood * count)
    rows = np.concatenate([known[:count], other[:among]])
    labels = noisy(np.where(is_unknown, -1, truth)[rows], "sym", noise, seed, truth.max() + 1)
    return Split(group, name, z[rows], labels, z[known[count:]], z[other[among:]])


def feature_sets(root: Path, cache: Path) -> dict[str, tuple[Array, Array, Any]]:
    """Features, classes, and the unknown classes of each split, by set."""
    pixels, digits = load_digits(return_X_y=True)
    cifar = embed_classes(
        root / "cifar10/train-00000-of-00002.parquet", "img", 10, 400, cache / "cifar-classes.npz"
    )
    tiny = embed_classes(
        root / "tinyimagenet32/pool-00000-of-00001.parquet", "image", 36, 120, cache / "tiny-classes.npz"
    )
    return {
        "digits": (pixels.astype(np.float32), digits, DIGITS),
        "CIFAR-10": (*cifar, CIFAR),
        "TinyImageNet": (*tiny, tiny_unknown(tiny[1])),
    }


def splits(root: Path, cache: Path) -> Iterator[Split]:
    """All splits except those of the photos."""
    for group, (z, classes, unknown) in feature_sets(root, cache).items():
        for ood in (0.0, OOD_RATE):
            for noise, rate in NOISE.items():
                for seed in range(SPLITS):
                    held = "OOD in training" if ood else "no OOD in training"
                    yield Split(*split(f"{group}, {held}", noise, z, classes, unknown[seed], seed, rate, ood))


def photo_splits(photos: dict[str, Array]) -> Iterator[Split]:
    """Splits of the photos: with OOD, as shipped and with similar noise; without OOD; with unknown classes;
    cleaned.
    """
    test, test_truth = photos["test"], photos["test_truth"]
    good, unknown = test[test_truth >= 0], test[test_truth < 0]
    for seed in range(5):
        labels = noisy(photos["truth"], "sym", 0.3, seed) if seed else photos["given"]
        name = f"seed {seed}" if seed else "as shipped"
        yield Split("photos, OOD in training", name, photos["train"], labels, good, unknown)
    known = np.flatnonzero(photos["truth"] >= 0)
    for noise, rate in NOISE.items():
        for seed in range(SPLITS):
            order = np.random.default_rng(seed).permutation(known)
            rows, held = order[:800], order[800:]
            labels = noisy(photos["truth"][rows], "sym", rate, seed)
            more = np.concatenate([good, photos["train"][held]])
            yield Split("photos, no OOD in training", noise, photos["train"][rows], labels, more, unknown)
    classes, objects, rest = np.unique(photos["truth"][known]), photos["train"][known], photos["truth"][known]
    for noise, rate in NOISE.items():
        for seed in range(SPLITS):
            unseen = np.random.default_rng(seed).permutation(classes)[:UNKNOWN_OBJECTS]
            group = "photos, three classes of objects unknown, no OOD in training"
            part = split(group, noise, objects, rest, unseen, seed, rate, 0.0)
            also = test[(test_truth >= 0) & ~np.isin(test_truth, unseen)]
            yield part._replace(good=np.concatenate([part.good, also]))
    verdicts = infer_verdicts(photos["train"], photos["given"]).verdicts
    kept = verdicts.verdict.isin(["keep", "relabel", "uncertain"]).to_numpy()
    labels = np.where(verdicts.verdict == "uncertain", verdicts.given_label, verdicts.proposed_label)
    cleaned = photos["train"][kept], labels[kept].astype(np.int64)
    yield Split("photos, cleaned by `clean` and `apply`", "as shipped", *cleaned, good, unknown)


def score(part: Split) -> dict[str, Any]:
    """Score both settings on one split."""
    found: dict[str, Any] = {"group": part.group, "name": part.name, "trained_on": len(part.labels)}
    for way, settings in WAYS.items():
        cleaning = infer_verdicts(part.features, encode_labels(part.labels), settings=settings)
        found[way] = score_detector(cleaning, part)
    return found


def score_networks() -> Iterator[dict[str, Any]]:
    """Score a small network on digits without OOD in training, with and without trusted samples."""
    pixels, digits = load_digits(return_X_y=True)
    images = np.rint(pixels * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
    config = load_preset("demo")
    for seed, unknown in enumerate(DIGITS):
        part = split("digits", "30 % wrong", images, digits, unknown, seed, NOISE["30 % wrong"], 0.0)
        trusted, good = part.good[:TRUSTED], part.good[TRUSTED:]
        labels = encode_labels(part.labels)
        prepared = prepare(part.features, labels, config, build_method(config))
        trained = prepared.trainer.train()
        found: dict[str, Any] = {"group": NETWORKS, "name": part.name, "trained_on": len(part.labels)}
        for way, some in (("preset demo", None), ("preset demo, --validation", trusted)):
            model = finish(prepared, trained, good=some).model
            found[way] = score_model(model, good, part.unknown) | describe_threshold(model)
        yield found


def score_detector(cleaning: CleaningResult, part: Split) -> dict[str, Any]:
    """Scores of the detector and its estimates at the threshold it found."""
    assert cleaning.predictor is not None
    assert cleaning.detection is not None
    scores = score_model(cleaning.predictor, part.good, part.unknown)
    return scores | describe_threshold(cleaning.predictor) | {"detector": cleaning.detection.detector.name}


def describe_threshold(model: Model) -> dict[str, Any]:
    """The detector's own estimates."""
    return {"promised": model.found.promised, "expected_unknown_rejected": model.found.rejected_ood}


def score_model(model: Model, good: Array, unknown: Array) -> dict[str, Any]:
    """Scores against the truth."""
    known, other = (model.score(inputs) for inputs in (good, unknown))
    is_unknown = np.arange(len(good) + len(unknown)) >= len(good)
    return {
        "auroc": float(roc_auc_score(is_unknown, np.append(known.ood_score, other.ood_score))),
        "good_rejected": float(known.rejected.mean()),
        "unknown_rejected": float(other.rejected.mean()),
        "unknown_rejected_at_5": float((other.ood_score > np.quantile(known.ood_score, 0.95)).mean()),
        "good": len(good),
        "unknown": len(unknown),
    }


def main() -> None:
    parser = feature_options(__doc__, THREADS)
    parser.add_argument("--photos", action="store_true", help="score the photos only, and note it")
    parser.add_argument("--networks", action="store_true", help="a network only")
    args, root = parse_feature_options(parser)
    warnings.filterwarnings("ignore", category=FutureWarning)
    before = load("detectors") or {}
    earlier = before.get("splits", [])
    if args.photos:
        made = map(score, photo_splits(embed_photos(root, args.cache / "photos.npz")))
    else:
        made = score_networks() if args.networks else map(score, splits(root, args.cache))
    rows = []
    for row in made:
        rows.append(row)
        print(row, flush=True)
    groups = {row["group"] for row in rows}
    rest = [row for row in earlier if row["group"] not in groups]
    scorings = before.get("photo_scorings", [])
    if args.photos:
        scorings = [*scorings, {"machine": machine()}]
    found = {"command": MADE_BY, "splits": [*rest, *rows], "photo_scorings": scorings}
    print(save("detectors", found, RESULTS))


if __name__ == "__main__":
    main()
