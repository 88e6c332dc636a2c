"""Verdicts without training, graphclean beside cleanlab, on the same features and the same noise draws.

python benchmarks/audit.py --data-root DATA
"""

import argparse
import csv
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import torch
from PIL import Image
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, log_loss, roc_auc_score
from sklearn.model_selection import cross_val_predict
from sklearn.preprocessing import StandardScaler

from common import THREADS, data_root, save
from graphclean.audit import audit_embeddings
from graphclean.data.images import UnreadableImage, open_image
from graphclean.embed import embed_images, load_embedder
from graphclean.evaluate import score_verdicts

Array = np.ndarray
COLUMNS = ("mislabel_f1", "issue_f1", "labels_right", "ood_auroc", "three_way_f1")
C_VALUES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 1e-1)
FILTERS = ("default", "predicted_neq_given")


@dataclass(frozen=True)
class Draw:
    """One noisy labelling; truth is −1 for OOD."""

    group: str
    name: str
    features: Array
    labels: Array
    truth: Array


def embed_photos(root: Path, cache: Path) -> dict[str, Array]:
    """Features of the photos, with given and true labels as class numbers."""
    if cache.exists():
        return dict(np.load(cache))
    rows = list(csv.DictReader((root / "photos/train_truth.csv").open()))
    test = list(csv.DictReader((root / "photos/test_truth.csv").open()))
    classes = sorted({row["given_label"] for row in rows})
    code = {name: number for number, name in enumerate(classes)} | {"OOD": -1}
    features = [_embed([root / "photos" / row["path"] for row in part]) for part in (rows, test)]
    arrays = {
        "train": features[0],
        "test": features[1],
        "given": np.array([code[row["given_label"]] for row in rows]),
        "truth": np.array([code[row["true_label"]] for row in rows]),
        "test_truth": np.array([code[row["true_label"]] for row in test]),
    }
    np.savez(cache, **arrays)
    return arrays


def embed_cifar(root: Path, cache: Path, seed: int = 0) -> dict[str, Array]:
    """Features of 2,400 CIFAR-10 images and 600 of TinyImageNet, drawn with one seed."""
    if cache.exists():
        return dict(np.load(cache))
    rng = np.random.default_rng(seed)
    known = pq.read_table(root / "cifar10/train-00000-of-00002.parquet")
    other = pq.read_table(root / "tinyimagenet32/pool-00000-of-00001.parquet")
    chosen, strangers = (
        rng.choice(len(known), 2400, replace=False),
        rng.choice(len(other), 600, replace=False),
    )
    content = [known["img"][int(i)].as_py()["bytes"] for i in chosen]
    content += [other["image"][int(i)].as_py()["bytes"] for i in strangers]
    truth = np.array([known["label"][int(i)].as_py() for i in chosen] + [-1] * 600)
    arrays = {"features": _embed(content), "truth": truth}
    np.savez(cache, **arrays)
    return arrays


def _embed(sources: list[Any]) -> Array:
    """Features of files, or of encoded images."""

    def load(source: Any) -> Image.Image:
        return Image.open(BytesIO(source)).convert("RGB") if isinstance(source, bytes) else open_image(source)

    done = embed_images(sources, load, load_embedder("efficientnet-lite0"), refusal=UnreadableImage)
    assert not done.problems
    return done.features


def noisy(truth: Array, kind: str, rate: float, seed: int, n_classes: int = 10) -> Array:
    """Labels with a share `rate` of the known ones drawn uniformly, or flipped to the next class."""
    rng = np.random.default_rng(seed)
    labels = truth.copy()
    known = np.flatnonzero(truth >= 0)
    chosen = rng.choice(known, round(rate * len(known)), replace=False)
    labels[chosen] = (
        rng.integers(0, n_classes, len(chosen)) if kind == "sym" else (truth[chosen] + 1) % n_classes
    )
    strangers = truth < 0
    labels[strangers] = rng.integers(0, n_classes, int(strangers.sum()))
    return labels


def photo_draws(photos: dict[str, Array], count: int) -> Iterator[Draw]:
    """The labels as shipped, and others like them: 30 % drawn uniformly."""
    z, truth = photos["train"], photos["truth"]
    yield Draw("photos", "as shipped", z, photos["given"], truth)
    for seed in range(1, count):
        yield Draw("photos", f"sym 30 %, seed {seed}", z, noisy(truth, "sym", 0.3, seed), truth)


def draws(photos: dict[str, Array], cifar: dict[str, Array]) -> Iterator[Draw]:
    """All labellings that are scored."""
    yield from photo_draws(photos, 10)
    z, truth = photos["train"], photos["truth"]
    for group, kind, rate in (("sym 10 %", "sym", 0.1), ("sym 60 %", "sym", 0.6), ("pair 30 %", "pair", 0.3)):
        for seed in range(4):
            yield Draw(group, f"{group}, seed {seed}", z, noisy(truth, kind, rate, seed), truth)
    z, truth = cifar["features"], cifar["truth"]
    for seed in range(3):
        yield Draw("cifar", f"sym 40 %, seed {seed}", z, noisy(truth, "sym", 0.4, seed), truth)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """The result of `work`, and its seconds."""
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def score_ours(draw: Draw) -> dict[str, Any]:
    """graphclean with its whole search, from features to table."""
    audit, seconds = timed(lambda: audit_embeddings(draw.features, draw.labels))
    scores = asdict(score_verdicts(audit.verdicts, draw.truth, draw.truth < 0))
    return {**scores, "seconds": seconds, "k": audit.summary.k, "verdicts": audit.summary.verdicts}


def score_cleanlab(draw: Draw) -> list[dict[str, Any]]:
    """cleanlab at every C: each row has both filters, both OOD scores, and its log-loss."""
    from cleanlab.filter import find_label_issues
    from cleanlab.outlier import OutOfDistribution

    y, truth, known = draw.labels, draw.truth, draw.truth >= 0
    standard = StandardScaler().fit_transform(draw.features)
    by_features, features_seconds = timed(
        lambda: OutOfDistribution().fit_score(features=standard, verbose=False)
    )
    by_raw_features = OutOfDistribution().fit_score(features=draw.features, verbose=False)
    rows = []
    for C in C_VALUES:
        start = time.perf_counter()
        z = StandardScaler().fit_transform(draw.features)
        model = LogisticRegression(C=C, max_iter=2000)
        probabilities = cross_val_predict(model, z, y, cv=5, method="predict_proba")
        flags = {
            "default": find_label_issues(y, probabilities, n_jobs=1),
            "predicted_neq_given": find_label_issues(
                y, probabilities, filter_by="predicted_neq_given", n_jobs=1
            ),
        }
        seconds = time.perf_counter() - start
        by_classes = OutOfDistribution().fit_score(pred_probs=probabilities, labels=y, verbose=False)
        guess = probabilities.argmax(1)
        row: dict[str, Any] = {"C": C, "log_loss": float(log_loss(y, probabilities)), "seconds": seconds}
        for name, flag in flags.items():
            proposed = np.where(flag, guess, y)
            row[name] = {
                "mislabel_f1": float(f1_score((truth != y)[known], flag[known])),
                "issue_f1": float(f1_score(truth != y, flag)),
                "labels_right": float((proposed == truth)[known].mean()),
            }
        row["ood_auroc"] = {
            "features": float(roc_auc_score(~known, -by_features)),
            "raw features": float(roc_auc_score(~known, -by_raw_features)),
            "pred_probs": float(roc_auc_score(~known, -by_classes)),
        }
        row["seconds_with_ood"] = seconds + features_seconds
        rows.append(row)
    return rows


def cleanlab_column(row: dict[str, Any], column: str) -> dict[str, float]:
    """All values that cleanlab offers for one of our columns at one C, by way."""
    if column == "ood_auroc":
        return dict(row["ood_auroc"])
    if column == "three_way_f1":
        return {}
    return {name: row[name][column] for name in FILTERS}


def summarise(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Means by group: ours; cleanlab at the C its log-loss picks with its defaults; and at its very best."""
    table: dict[str, Any] = {}
    for group in dict.fromkeys(result["group"] for result in results):
        members = [result for result in results if result["group"] == group]
        entry: dict[str, Any] = {"draws": len(members), "ours": {}, "cleanlab_own_C": {}, "cleanlab_best": {}}
        for column in COLUMNS:
            ours = [member["ours"][column] for member in members]
            entry["ours"][column] = float(np.mean(ours))
            own, best = [], []
            for member in members:
                picked = min(member["cleanlab"], key=lambda row: row["log_loss"])
                values = cleanlab_column(picked, column)
                if values:
                    own.append(next(iter(values.values())))
                    best.append(
                        max(v for row in member["cleanlab"] for v in cleanlab_column(row, column).values())
                    )
            if best:
                entry["cleanlab_own_C"][column] = float(np.mean(own))
                entry["cleanlab_best"][column] = float(np.mean(best))
                entry.setdefault("behind_on_draws", {})[column] = int(np.sum(np.array(ours) < np.array(best)))
        entry["ours"]["seconds"] = float(np.median([member["ours"]["seconds"] for member in members]))
        fits = [row["seconds"] for member in members for row in member["cleanlab"]]
        entry["cleanlab_own_C"]["seconds"] = float(np.median(fits))
        entry["cleanlab_best"]["seconds"] = float(np.min(fits))
        table[group] = entry
    return table


def score_new_photos(photos: dict[str, Array], results: list[Draw]) -> dict[str, Any]:
    """Accuracy and AUROC on the held-out photos, from each photo draw's audit."""
    truth = photos["test_truth"]
    known = truth >= 0
    rows = []
    for draw in results:
        predictor = audit_embeddings(draw.features, draw.labels).predictor
        assert predictor is not None
        row = {}
        for detector in ("graph", "prototypes"):
            table = predictor.predict(photos["test"], detector=detector)
            rejected = (table.verdict == "ood").to_numpy()
            row[detector] = {
                "accuracy": float((table.predicted_label.to_numpy() == truth)[known].mean()),
                "auroc": float(roc_auc_score(~known, table.ood_score)),
                "known_rejected": float(rejected[known].mean()),
                "ood_rejected": float(rejected[~known].mean()),
            }
        rows.append(row)
    return {
        detector: {key: float(np.mean([row[detector][key] for row in rows])) for key in rows[0][detector]}
        for detector in ("graph", "prototypes")
    }


def score_clean(photos: dict[str, Array]) -> dict[str, Any]:
    """True labels and no OOD: how much is flagged; and 30 % noise without OOD."""
    known = photos["truth"] >= 0
    z, truth = photos["train"][known], photos["truth"][known]
    found = {}
    for name, labels in (("clean", truth), ("sym 30 %, no OOD", noisy(truth, "sym", 0.3, 0))):
        audit = audit_embeddings(z, labels)
        flagged = audit.verdicts.verdict.isin(["relabel", "ood"]).to_numpy()
        found[name] = {
            "samples": len(z),
            "wrong": int((labels != truth).sum()),
            "flagged": int(flagged.sum()),
            "flagged_wrong": int((flagged & (labels != truth)).sum()),
            "ood_verdicts": int((audit.verdicts.verdict == "ood").sum()),
        }
    return found


def show(summary: dict[str, Any]) -> None:
    """The table on screen."""
    rows = []
    for group, entry in summary.items():
        for name in ("ours", "cleanlab_own_C", "cleanlab_best"):
            rows.append({"set": f"{group} ({entry['draws']})", "": name, **entry[name]})
    print(pd.DataFrame(rows).to_string(index=False, float_format=lambda v: f"{v:.4f}", na_rep="–"))


def read_options(what: str | None) -> tuple[Path, Path]:
    """The data root and the folder of features that the command line names; and the threads are set."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--data-root", help="folder with photos/, cifar10/ and tinyimagenet32/")
    parser.add_argument(
        "--cache", type=Path, default=Path("runs/benchmark-features"), help="where features are kept"
    )
    options = parser.parse_args()
    root = data_root(options.data_root)
    if root is None or not (root / "photos").is_dir():
        parser.error("name a data root that holds photos/ with --data-root or GRAPHCLEAN_DATA")
    torch.set_num_threads(THREADS)
    options.cache.mkdir(parents=True, exist_ok=True)
    return root, options.cache


def main() -> None:
    root, cache = read_options(__doc__)
    photos = embed_photos(root, cache / "photos.npz")
    cifar = embed_cifar(root, cache / "cifar.npz")
    warnings.filterwarnings("ignore", category=FutureWarning)
    everything = list(draws(photos, cifar))
    score_ours(everything[0])  # warm-up
    results = []
    for draw in everything:
        ours = score_ours(draw)
        results.append(
            {"group": draw.group, "draw": draw.name, "ours": ours, "cleanlab": score_cleanlab(draw)}
        )
        print(draw.group, draw.name, *(f"{column} {ours[column]:.4f}" for column in COLUMNS), flush=True)
    summary = summarise(results)
    new = score_new_photos(photos, [draw for draw in everything if draw.group == "photos"])
    clean = score_clean(photos)
    show(summary)
    print("new photos:", new)
    print("without OOD:", clean)
    print(save("audit", {"summary": summary, "new_photos": new, "without_ood": clean, "draws": results}))


if __name__ == "__main__":
    main()
