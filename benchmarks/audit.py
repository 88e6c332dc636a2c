"""Compare `clean`, the classification heads of `train`, and cleanlab on the same features and label noise.

python benchmarks/audit.py --data-root DATA              half an hour; the same command continues
python benchmarks/audit.py --data-root DATA --further     further sets and peers, a few minutes

Times are CPU seconds of the process on one thread, so that other work on the machine does not change them.
"""

import argparse
import csv
import json
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, log_loss, roc_auc_score
from sklearn.model_selection import cross_val_predict
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from audit_sets import Draw, choose_pairs
from common import cpu_timed, data_root, note_scorings, save
from further import score_further
from graphclean.bench.machine import machine
from graphclean.bench.noise import ASYM, CIFAR10_CLASSES
from graphclean.cleaning import infer_verdicts
from graphclean.cleaning.inputs import encode_labels
from graphclean.config import load_preset
from graphclean.data.images import UnreadableImage, open_image
from graphclean.embed import embed_batches, load_embedder
from graphclean.methods import build_method
from graphclean.metrics import score_new, score_verdicts
from graphclean.training.fit import fit

Array = np.ndarray
COLUMNS = ("mislabel_f1", "issue_f1", "label_accuracy", "ood_auroc", "three_way_f1")
C_VALUES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 1e-1)
FILTERS = ("default", "predicted_neq_given")
OF_NEW = ("accuracy", "auroc", "known_rejected", "ood_rejected")
RECIPE = "the preset `embeddings` as it is at this commit"
"""How `train` was set up, for the list of scorings."""
TAKEN_FOR = np.array([CIFAR10_CLASSES.index(ASYM.get(name, name)) for name in CIFAR10_CLASSES])
"""Class -> label under asymmetric noise, by class number: the paper's mapping for CIFAR-10."""
COMPARED = 5
"""The number of first photo draws on which `train` is compared with `clean` on new photos."""


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
    """Features of 2,400 CIFAR-10 images and 600 of TinyImageNet, sampled with one seed."""
    if cache.exists():
        return dict(np.load(cache))
    rng = np.random.default_rng(seed)
    known = pq.read_table(root / "cifar10/train-00000-of-00002.parquet")
    other = pq.read_table(root / "tinyimagenet32/pool-00000-of-00001.parquet")
    chosen, unknown = (
        rng.choice(len(known), 2400, replace=False),
        rng.choice(len(other), 600, replace=False),
    )
    content = [known["img"][int(i)].as_py()["bytes"] for i in chosen]
    content += [other["image"][int(i)].as_py()["bytes"] for i in unknown]
    truth = np.array([known["label"][int(i)].as_py() for i in chosen] + [-1] * 600)
    arrays = {"features": _embed(content), "truth": truth}
    np.savez(cache, **arrays)
    return arrays


def embed_pairs(root: Path, cache: Path) -> dict[str, Array] | None:
    """Features of look-alike classes of CIFAR-100; None if the data is missing."""
    if cache.exists():
        return dict(np.load(cache))
    chosen = choose_pairs(root)
    if chosen is None:
        return None
    arrays = {**chosen, "features": _embed(chosen.pop("images"))}
    arrays.pop("images", None)
    np.savez(cache, **arrays)
    return arrays


def _embed(sources: list[Any]) -> Array:
    """Features of image files or encoded images."""
    embedder = load_embedder("efficientnet-lite0")
    done = list(embed_batches(enumerate(sources), open_image, embedder, refusal=UnreadableImage))
    assert not any(batch.problems for batch in done)
    return np.concatenate([batch.inputs for batch in done])


def noisy(truth: Array, kind: str, rate: float, seed: int, n_classes: int = 10) -> Array:
    """Corrupt a fraction `rate` of the known labels: resample, move to the next class, or as in TAKEN_FOR."""
    rng = np.random.default_rng(seed)
    labels = truth.copy()
    known = np.flatnonzero(truth >= 0)
    chosen = rng.choice(known, round(rate * len(known)), replace=False)
    if kind == "sym":
        labels[chosen] = rng.integers(0, n_classes, len(chosen))
    else:
        labels[chosen] = TAKEN_FOR[truth[chosen]] if kind == "asym" else (truth[chosen] + 1) % n_classes
    unknown = truth < 0
    labels[unknown] = rng.integers(0, n_classes, int(unknown.sum()))
    return labels


def photo_draws(photos: dict[str, Array], count: int) -> Iterator[Draw]:
    """The labels as shipped, and others with 30 % resampled uniformly."""
    z, truth = photos["train"], photos["truth"]
    yield Draw("photos", "as shipped", z, photos["given"], truth)
    for seed in range(1, count):
        yield Draw("photos", f"sym 30 %, seed {seed}", z, noisy(truth, "sym", 0.3, seed), truth)


def draws(photos: dict[str, Array], cifar: dict[str, Array]) -> Iterator[Draw]:
    """All noisy labelings that are scored."""
    yield from photo_draws(photos, 10)
    z, truth = photos["train"], photos["truth"]
    for kind, rate in (("sym", 0.1), ("sym", 0.6), ("pair", 0.3), ("asym", 0.4)):
        group = f"{kind} {100 * rate:.0f} %"
        for seed in range(4):
            yield Draw(group, f"{group}, seed {seed}", z, noisy(truth, kind, rate, seed), truth)
    z, truth = cifar["features"], cifar["truth"]
    for group, kind in (("cifar", "sym"), ("cifar asym", "asym")):
        for seed in range(3):
            yield Draw(group, f"{kind} 40 %, seed {seed}", z, noisy(truth, kind, 0.4, seed), truth)


def score_ours(draw: Draw, new: tuple[Array, Array] | None) -> dict[str, dict[str, Any]]:
    """Score `clean` with its whole search and `train` with its preset: verdicts, and new samples if given."""
    cleaning, clean_seconds = cpu_timed(lambda: infer_verdicts(draw.features, draw.labels))
    config = load_preset("embeddings")
    trained, train_seconds = cpu_timed(
        lambda: fit(draw.features, encode_labels(draw.labels), config, build_method(config))
    )
    found = {}
    for who, judged, seconds in (
        ("ours", cleaning, clean_seconds),
        ("train", trained.cleaning, train_seconds),
    ):
        scores = asdict(score_verdicts(judged.verdicts, draw.truth, draw.truth < 0))
        facts = {"seconds": seconds, "k": judged.summary.k, "verdicts": judged.summary.verdicts}
        found[who] = {**scores, **facts}
    if new is not None:
        features, truth = new
        found["graph"] = score_predictions(cleaning.predictor.predict(features), truth)
        found["heads"] = score_predictions(trained.model.predict(features), truth)
    return found


def score_predictions(table: pd.DataFrame, truth: Array) -> dict[str, float]:
    """Score predictions for new samples against their truth (−1 for OOD)."""
    right, rejected = table.predicted_label.to_numpy() == truth, (table.verdict == "ood").to_numpy()
    scores = score_new(right, rejected, table.ood_score.to_numpy(), truth < 0)
    return {name: getattr(scores, name) for name in OF_NEW}


def flag_by_cleanlab(draw: Draw, C: float) -> tuple[Array, dict[str, Array]]:
    """Out-of-sample probabilities, and the labels that each filter flags."""
    from cleanlab.filter import find_label_issues

    z = StandardScaler().fit_transform(draw.features)
    model = LogisticRegression(C=C, max_iter=2000)
    probabilities = cross_val_predict(model, z, draw.labels, cv=5, method="predict_proba")
    return probabilities, {
        "default": find_label_issues(draw.labels, probabilities, n_jobs=1),
        "predicted_neq_given": find_label_issues(
            draw.labels, probabilities, filter_by="predicted_neq_given", n_jobs=1
        ),
    }


def score_cleanlab(draw: Draw) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Score cleanlab at every C, with both filters, all OOD scores and the log-loss; and its Datalab."""
    from cleanlab.outlier import OutOfDistribution

    y, truth, known = draw.labels, draw.truth, draw.truth >= 0
    standard = StandardScaler().fit_transform(draw.features)
    by_features, features_seconds = cpu_timed(
        lambda: OutOfDistribution().fit_score(features=standard, verbose=False)
    )
    by_raw_features = OutOfDistribution().fit_score(features=draw.features, verbose=False)
    rows = []
    for C in C_VALUES:
        (probabilities, flags), seconds = cpu_timed(lambda C=C: flag_by_cleanlab(draw, C))
        by_classes = OutOfDistribution().fit_score(pred_probs=probabilities, labels=y, verbose=False)
        guess = probabilities.argmax(1)
        row: dict[str, Any] = {"C": C, "log_loss": float(log_loss(y, probabilities)), "seconds": seconds}
        for name, flag in flags.items():
            proposed = np.where(flag, guess, y)
            row[name] = {
                "mislabel_f1": float(f1_score((truth != y)[known], flag[known])),
                "issue_f1": float(f1_score(truth != y, flag)),
                "label_accuracy": float((proposed == truth)[known].mean()),
            }
        row["ood_auroc"] = {
            "features": float(roc_auc_score(~known, -by_features)),
            "raw features": float(roc_auc_score(~known, -by_raw_features)),
            "pred_probs": float(roc_auc_score(~known, -by_classes)),
        }
        row["seconds_with_ood"] = seconds + features_seconds
        rows.append(row)
        if row is own_choice(rows):
            chosen = probabilities
    datalab, seconds = cpu_timed(lambda: score_datalab(draw, standard, chosen))
    return rows, {**datalab, "seconds": own_choice(rows)["seconds"] + seconds}


def score_datalab(draw: Draw, features: Array, probabilities: Array) -> dict[str, float]:
    """Score cleanlab's Datalab with default settings: label issues and outliers."""
    from cleanlab import Datalab

    lab = Datalab(data={"label": draw.labels}, label_name="label", verbosity=0)
    lab.find_issues(features=features, pred_probs=probabilities, issue_types={"label": {}, "outlier": {}})
    found, labels, truth = lab.get_issues(), lab.get_issues("label"), draw.truth
    mislabeled, outlier = found.is_label_issue.to_numpy(), found.is_outlier_issue.to_numpy()
    proposed = np.where(mislabeled, labels.predicted_label.to_numpy(), draw.labels)
    wrong, known = truth != draw.labels, truth >= 0
    kinds, told = (
        np.where(ood, 2, np.where(bad, 1, 0)) for ood, bad in ((~known, wrong), (outlier, mislabeled))
    )
    return {
        "mislabel_f1": float(f1_score(wrong[known], mislabeled[known])),
        "issue_f1": float(f1_score(wrong, mislabeled | outlier)),
        "label_accuracy": float((proposed == truth)[known].mean()),
        "ood_auroc": float(roc_auc_score(~known, -found.outlier_score)),
        "three_way_f1": float(f1_score(kinds, told, average="macro")),
    }


def cleanlab_column(row: dict[str, Any], column: str) -> dict[str, float]:
    """All values that cleanlab has for one of our columns at one C, by filter or score."""
    if column == "ood_auroc":
        return dict(row["ood_auroc"])
    if column == "three_way_f1":
        return {}
    return {name: row[name][column] for name in FILTERS}


def summarize(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Means by group: ours, Datalab at the C with the lowest log-loss, and the best of cleanlab."""
    table: dict[str, Any] = {}
    for group in dict.fromkeys(result["group"] for result in results):
        members = [result for result in results if result["group"] == group]
        best = {c: [best_of(member["cleanlab"], c) for member in members] for c in COLUMNS[:-1]}
        fits = [[row["seconds"] for row in member["cleanlab"]] for member in members]
        entry: dict[str, Any] = {"draws": len(members), "behind_on_draws": {}}
        for who in ("ours", "train", "datalab"):
            rows = [member[who] for member in members]
            entry[who] = {c: float(np.mean([row[c] for row in rows])) for c in COLUMNS}
            entry[who]["seconds"] = float(np.median([row["seconds"] for row in rows]))
            if who != "datalab":
                entry["behind_on_draws"][who] = {
                    c: sum(row[c] < peer for row, peer in zip(rows, best[c], strict=True)) for c in best
                }
        entry["cleanlab_best"] = {c: float(np.mean(values)) for c, values in best.items()}
        entry["cleanlab_best"]["seconds"] = float(np.median(fits, axis=0).min())
        table[group] = entry
    return table


def own_choice(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The C that a user of cleanlab would choose, the one with the lowest log-loss."""
    return min(rows, key=lambda row: float(row["log_loss"]))


def best_of(rows: list[dict[str, Any]], column: str) -> float:
    """The best value of cleanlab in a column over all values of C and all filters and scores."""
    return max(value for row in rows for value in cleanlab_column(row, column).values())


def spread(values: list[float]) -> dict[str, float]:
    """Mean and standard deviation over the draws."""
    return {"mean": float(np.mean(values)), "sd": float(np.std(values, ddof=1))}


def summarize_new(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Scores on new photos by group, and the gain of the heads over `clean`, paired by draw."""
    table: dict[str, Any] = {}
    for group in dict.fromkeys(result["group"] for result in results if "heads" in result):
        members = [result for result in results if result["group"] == group]
        ways = ("graph", "heads")
        entry = {way: {c: spread([m[way][c] for m in members]) for c in OF_NEW} for way in ways}
        entry["gain"] = {c: spread([m["heads"][c] - m["graph"][c] for m in members]) for c in OF_NEW}
        table[group] = {"draws": len(members), **entry}
    return table


def note_scoring(results: list[dict[str, Any]]) -> Path:
    """Append this scoring of the heads on the photos to the earlier ones."""
    first = [result for result in results if result["group"] == "photos"][:COMPARED]
    return note_scorings([{"recipe": RECIPE, "machine": machine(), **summarize_new(first)["photos"]}])


def score_clean(photos: dict[str, Array]) -> dict[str, Any]:
    """The number of flagged labels without noise and OOD, and under 30 % noise without OOD."""
    known = photos["truth"] >= 0
    z, truth = photos["train"][known], photos["truth"][known]
    found = {}
    for name, labels in (("clean", truth), ("sym 30 %, no OOD", noisy(truth, "sym", 0.3, 0))):
        for who, preset in (("clean", None), ("train", load_preset("embeddings"))):
            verdicts = infer_verdicts(
                z, labels, settings=preset.cleaning if preset else None
            ).verdicts.verdict
            flagged = verdicts.isin(["relabel", "ood"]).to_numpy()
            found[f"{name}: `{who}`"] = {
                "samples": len(z),
                "wrong": int((labels != truth).sum()),
                "flagged": int(flagged.sum()),
                "flagged_wrong": int((flagged & (labels != truth)).sum()),
                "ood_verdicts": int((verdicts == "ood").sum()),
            }
    return found


def show(summary: dict[str, Any]) -> None:
    """Print the summary as a table."""
    rows = []
    for group, entry in summary.items():
        for name in ("ours", "train", "datalab", "cleanlab_best"):
            rows.append({"set": f"{group} ({entry['draws']})", "": name, **entry[name]})
    print(pd.DataFrame(rows).to_string(index=False, float_format=lambda v: f"{v:.4f}", na_rep="–"))


def read_options(what: str | None) -> tuple[Path, argparse.Namespace]:
    """The data root and the options; also sets the number of threads."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--data-root", help="folder with photos/, cifar10/ and tinyimagenet32/")
    parser.add_argument(
        "--cache", type=Path, default=Path("runs/benchmark-features"), help="where features are kept"
    )
    parser.add_argument("--further", action="store_true", help="further sets and peers")
    options = parser.parse_args()
    root = data_root(options.data_root)
    if root is None or not (root / "photos").is_dir():
        parser.error("name a data root that holds photos/ with --data-root or GRAPHCLEAN_DATA")
    torch.set_num_threads(1)
    options.cache.mkdir(parents=True, exist_ok=True)
    return root, options


def main() -> None:
    root, options = read_options(__doc__)
    cache = options.cache
    warnings.filterwarnings("ignore", category=FutureWarning)
    if options.further:
        sets = embed_cifar(root, cache / "cifar.npz"), embed_pairs(root, cache / "pairs.npz")
        with threadpool_limits(1):
            print(save("audit-further", score_further(*sets)))
        return
    photos = embed_photos(root, cache / "photos.npz")
    cifar = embed_cifar(root, cache / "cifar.npz")
    done_path = cache / f"audit-{machine()['commit']}.json"
    results = json.loads(done_path.read_text()) if done_path.exists() else []
    everything = list(draws(photos, cifar))
    with threadpool_limits(1):
        score_ours(everything[0], None)  # warm-up
        for draw in everything[len(results) :]:
            new = (photos["test"], photos["test_truth"]) if "cifar" not in draw.group else None
            ours = score_ours(draw, new)
            cleanlab, datalab = score_cleanlab(draw)
            results.append(
                {"group": draw.group, "draw": draw.name, **ours, "datalab": datalab, "cleanlab": cleanlab}
            )
            done_path.write_text(json.dumps(results))
            print(draw.group, draw.name, f"{ours['train']['seconds']:.1f} s", flush=True)
        clean = score_clean(photos)
    summary, new_photos = summarize(results), summarize_new(results)
    show(summary)
    print("new photos:", new_photos)
    print("without OOD:", clean)
    print(
        save("audit", {"summary": summary, "new_photos": new_photos, "without_ood": clean, "draws": results})
    )
    print(note_scoring(results))


if __name__ == "__main__":
    main()
