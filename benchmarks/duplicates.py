"""Near-duplicate groups with one wrong label, compared with single samples, for `clean` and cleanlab's
Datalab.

python benchmarks/duplicates.py --data-root DATA
"""

import argparse
import csv
import json
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from PIL import Image, ImageEnhance
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from sklearn.preprocessing import StandardScaler

from audit import Array, noisy
from common import RESULTS, data_root, load, save
from graphclean.cleaning import infer_verdicts
from graphclean.cleaning.inputs import encode_labels
from graphclean.config import CleaningSettings
from graphclean.data.images import UnreadableImage, open_image
from graphclean.embed import embed_batches, load_embedder
from graphclean.metrics import score_verdicts

SIZES = (1, 2, 3, 5, 8)
GROUPS = 40
"""Groups of each size with a wrong label, and as many with the right one."""
SEEDS = 2
CHANGED = 240
"""Number of photos with near-duplicates."""
NOISE = {"clean": 0.0, "25 % wrong": 0.25}
C = 1e-3
"""Inverse regularization strength of cleanlab's logistic regression, chosen by its log-loss on the photos in
`audit.py`.
"""
REPEATS = 3
CIFAR_IMAGES = 5000


def change(image: Image.Image, how: int) -> bytes:
    """One of seven ways to make a near-duplicate: recompress, rescale, crop, change the brightness, or
    combinations.
    """
    width, height = image.size
    wide, high = round(0.95 * width), round(0.95 * height)
    small = image.resize((max(round(0.6 * width), 1), max(round(0.6 * height), 1)), Image.Resampling.BICUBIC)
    corner = image.crop((0, 0, wide, high))
    brighter = ImageEnhance.Brightness(image).enhance(1.25)
    ways = [
        (image, 50),
        (small, 85),
        (image.crop((width - wide, height - high, width, height)), 90),
        (brighter, 90),
        (small, 50),
        (corner, 70),
        (ImageEnhance.Brightness(corner).enhance(0.85), 80),
    ]
    saved = BytesIO()
    changed, quality = ways[how]
    changed.save(saved, "JPEG", quality=quality)
    return saved.getvalue()


@dataclass(frozen=True)
class Pool:
    """Images of known classes, and near-duplicates of some of them."""

    features: Array
    hashes: Array
    truth: Array
    source: Array
    """The index of the original image; originals come first and refer to themselves."""

    @property
    def images(self) -> int:
        """The number of originals."""
        return len(np.unique(self.source))

    def take(self, rows: Array) -> "Pool":
        """A subset."""
        return Pool(*(part[rows] for part in vars(self).values()))


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """The result of `work`, and its CPU seconds."""
    start = time.process_time()
    result = work()
    return result, time.process_time() - start


def embed(sources: list[Any], truth: Array, changed: Array, cache: Path) -> Pool:
    """Features and hashes of `sources`, and of the `changed` ones in all seven ways."""
    if cache.exists():
        return Pool(**np.load(cache))
    again = [change(open_image(sources[row]), how) for row in changed for how in range(7)]
    embedder = load_embedder("efficientnet-lite0")
    done = list(embed_batches(enumerate(sources + again), open_image, embedder, refusal=UnreadableImage))
    assert not any(batch.problems for batch in done)
    source = np.concatenate([np.arange(len(sources)), np.repeat(changed, 7)])
    pool = Pool(
        np.concatenate([batch.inputs for batch in done]),
        np.concatenate([batch.measures["hash"] for batch in done]),
        truth[source],
        source,
    )
    np.savez(cache, **vars(pool))
    return pool


def embed_photos(root: Path, cache: Path) -> Pool:
    """The photos of known classes, with near-duplicates of 240 of them."""
    rows = [
        row for row in csv.DictReader((root / "photos/train_truth.csv").open()) if row["true_label"] != "OOD"
    ]
    classes = sorted({row["true_label"] for row in rows})
    truth = np.array([classes.index(row["true_label"]) for row in rows])
    changed = np.random.default_rng(0).choice(len(rows), CHANGED, replace=False)
    return embed([root / "photos" / row["path"] for row in rows], truth, changed, cache / "duplicates.npz")


def embed_cifar(root: Path, cache: Path) -> Pool:
    """CIFAR-10 training images, with near-duplicates of 100 of them."""
    table = pq.read_table(root / "cifar10/train-00001-of-00002.parquet")
    chosen = np.random.default_rng(0).choice(len(table), CIFAR_IMAGES, replace=False)
    content = [table["img"][int(row)].as_py()["bytes"] for row in chosen]
    truth = np.array([table["label"][int(row)].as_py() for row in chosen])
    return embed(content, truth, np.arange(100), cache / "duplicates-cifar.npz")


@dataclass(frozen=True)
class Draw:
    """Photos with groups of one size, their labels, and which groups have a wrong label."""

    pool: Pool
    labels: Array
    wrong: Array
    right: Array
    """Whether each sample is in a group with the right label; `wrong` likewise for a wrong one."""

    @property
    def others(self) -> Array:
        """Photos in no group."""
        return ~self.wrong & ~self.right


def draw(pool: Pool, size: int, noise: float, seed: int) -> Draw:
    """GROUPS groups with a wrong and as many with the right label, of other photos for each seed; all other
    labels have noise of the rate `noise`.
    """
    rng = np.random.default_rng(seed)
    changed = np.unique(pool.source[pool.images :])
    own = rng.permutation(np.random.default_rng(0).permutation(changed)[2 * GROUPS * seed :][: 2 * GROUPS])
    wrong, right = own[:GROUPS], own[GROUPS : 2 * GROUPS]
    rows = [np.arange(pool.images)]
    for source in own:
        again = np.flatnonzero(pool.source == source)[1:]
        rows.append(rng.choice(again, size - 1, replace=False))
    some = pool.take(np.concatenate(rows))
    shown = noisy(pool.truth[: pool.images], "sym", noise, seed)
    shown[right] = pool.truth[right]
    shown[wrong] = (pool.truth[wrong] + rng.integers(1, 10, GROUPS)) % 10
    return Draw(some, shown[some.source], np.isin(some.source, wrong), np.isin(some.source, right))


def by_graphclean(case: Draw, *, hashed: bool, joined: bool = True) -> tuple[Array, Array]:
    """What `clean` flags, and the groups it finds (0: none)."""
    labels = encode_labels(case.labels)
    if hashed:
        labels = replace(labels, hashes=case.pool.hashes)
    settings = CleaningSettings(near_duplicates=joined)
    table = infer_verdicts(case.pool.features, labels, settings=settings).verdicts
    flagged = table["verdict"].isin(["relabel", "ood"]).to_numpy()
    return flagged, table["duplicate_group"].fillna(0).to_numpy(dtype=np.int64)


def by_cleanlab(case: Draw) -> dict[str, tuple[Array, Array]]:
    """What cleanlab's filters flag, and Datalab's near-duplicate groups."""
    from cleanlab import Datalab
    from cleanlab.filter import find_label_issues

    z = StandardScaler().fit_transform(case.pool.features)
    model = LogisticRegression(C=C, max_iter=2000)
    probabilities = cross_val_predict(model, z, case.labels, cv=5, method="predict_proba")
    lab = Datalab(data={"label": case.labels}, label_name="label", verbosity=0)
    lab.find_issues(features=z, pred_probs=probabilities, issue_types={"label": {}, "near_duplicate": {}})
    found = lab.get_issues("near_duplicate")
    group = np.zeros(len(z), dtype=np.int64)
    for row, near in enumerate(found["near_duplicate_sets"]):
        if found["is_near_duplicate_issue"].iloc[row] and not group[row]:
            group[[row, *near]] = row + 1
    other = find_label_issues(case.labels, probabilities, filter_by="predicted_neq_given", n_jobs=1)
    return {
        "Datalab": (lab.get_issues("label")["is_label_issue"].to_numpy(), group),
        "cleanlab, predicted ≠ given": (other, group),
    }


def share(found: Array) -> float:
    """The fraction of true values; 0 if empty."""
    return float(found.mean()) if len(found) else 0.0


def judge(case: Draw, flagged: Array, group: Array) -> dict[str, float]:
    """Rates over samples; the fraction of groups found whole, and the number of groups that mix classes or
    photos.
    """
    found = [np.flatnonzero(group == name) for name in np.unique(group[group > 0])]
    sizes = np.bincount(case.pool.source)
    grouped = np.flatnonzero(sizes > 1)
    whole = [len(set(group[case.pool.source == row])) == 1 and group[row] > 0 for row in grouped]
    right = case.others & (case.labels == case.pool.truth)
    return {
        "wrong_flagged": share(flagged[case.wrong]),
        "right_flagged": share(flagged[case.right]),
        "others_flagged": share(flagged[right]),
        "groups": len(found),
        "groups_of_two_classes": sum(len(np.unique(case.pool.truth[rows])) > 1 for rows in found),
        "groups_of_two_photos": sum(len(np.unique(case.pool.source[rows])) > 1 for rows in found),
        "whole": share(np.array(whole)),
    }


def ways(case: Draw, *, peers: bool) -> Iterator[tuple[str, tuple[Array, Array]]]:
    """The methods compared, with the flags and groups of each."""
    yield "clean", by_graphclean(case, hashed=True)
    yield "features alone", by_graphclean(case, hashed=False)
    yield "not joined", by_graphclean(case, hashed=True, joined=False)
    if peers:
        yield from by_cleanlab(case).items()


def run_photos(pool: Pool, *, peers: bool) -> list[dict[str, Any]]:
    """Score every noise rate, group size and seed."""
    results = []
    for name, noise in NOISE.items():
        for size in SIZES:
            for seed in range(SEEDS):
                case = draw(pool, size, noise, seed)
                scores = {who: judge(case, *said) for who, said in ways(case, peers=peers)}
                results.append({"noise": name, "size": size, "seed": seed, "scores": scores})
                print(
                    name,
                    size,
                    seed,
                    {who: round(s["wrong_flagged"], 2) for who, s in scores.items()},
                    flush=True,
                )
    return results


def take_peers(results: list[dict[str, Any]], recorded: list[dict[str, Any]]) -> None:
    """Add recorded scores of peers on the same draws, which do not depend on our code."""
    known = {tuple(row[key] for key in ("noise", "size", "seed")): row["scores"] for row in recorded}
    for row in results:
        row["scores"] = known[row["noise"], row["size"], row["seed"]] | row["scores"]


def summarize(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over the seeds, by noise, method and size."""
    summary: dict[str, Any] = {}
    for name in NOISE:
        for who in results[0]["scores"]:
            for size in SIZES:
                some = [r["scores"][who] for r in results if (r["noise"], r["size"]) == (name, size)]
                mean = {key: float(np.mean([one[key] for one in some])) for key in some[0]}
                summary.setdefault(name, {}).setdefault(who, {})[str(size)] = mean
    return summary


def without_duplicates(photos: Pool, cifar: Pool) -> dict[str, dict[str, float]]:
    """Mislabel F1 and seconds with and without joining near-duplicates, on sets without intentional ones."""
    found = {}
    for name, pool in (("photos", photos), ("cifar", cifar)):
        plain = pool.take(np.arange(pool.images))
        labels = replace(encode_labels(noisy(plain.truth, "sym", 0.3, 0)), hashes=plain.hashes)
        row: dict[str, float] = {"samples": pool.images}
        seconds: dict[str, list[float]] = {"joined": [], "not_joined": []}
        for _ in range(REPEATS):
            for key, joined in (("joined", True), ("not_joined", False)):
                judged, took = timed(_cleaning(plain, labels, joined))
                seconds[key].append(took)
                row[f"f1_{key}"] = score_verdicts(judged.verdicts, plain.truth, plain.truth < 0).mislabel_f1
                row[f"groups_{key}"] = judged.verdicts["duplicate_group"].nunique()
        found[name] = row | {f"seconds_{key}": float(np.median(took)) for key, took in seconds.items()}
    return found


def _cleaning(pool: Pool, labels: Any, joined: bool) -> Callable[[], Any]:
    settings = CleaningSettings(near_duplicates=joined)
    return lambda: infer_verdicts(pool.features, labels, settings=settings)


def join_cifar(cifar: Pool) -> dict[str, dict[str, float]]:
    """The groups found among CIFAR-10 images, without and with near-duplicates of 100 of them."""
    found = {}
    for name, rows in (
        ("as it is", np.arange(cifar.images)),
        ("with changed ones", np.arange(len(cifar.source))),
    ):
        pool = cifar.take(rows)
        nobody = np.zeros(len(rows), dtype=bool)
        case = Draw(pool, pool.truth, nobody, nobody)
        for who, hashed in (("clean", True), ("features alone", False)):
            _, group = by_graphclean(case, hashed=hashed)
            rates = judge(replace(case, wrong=nobody | True), nobody, group)
            found[f"{name}, {who}"] = {k: rates[k] for k in ("groups", "groups_of_two_classes", "whole")}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-root", help="folder with photos/ and cifar10/")
    parser.add_argument(
        "--cache", type=Path, default=Path("runs/benchmark-features"), help="where features are kept"
    )
    parser.add_argument("--without-peers", action="store_true", help="take cleanlab's results as recorded")
    parser.add_argument("--threads", type=int, default=1, help="cores to use, alike for all")
    parser.add_argument("--embed-only", action="store_true", help="make the features, and end")
    options = parser.parse_args()
    root = data_root(options.data_root)
    if root is None or not (root / "photos").is_dir():
        parser.error("name a data root that holds photos/ with --data-root or GRAPHCLEAN_DATA")
    torch.set_num_threads(options.threads)
    options.cache.mkdir(parents=True, exist_ok=True)
    photos, cifar = embed_photos(root, options.cache), embed_cifar(root, options.cache)
    if options.embed_only:
        return
    warnings.filterwarnings("ignore", category=FutureWarning)
    results = run_photos(photos, peers=not options.without_peers)
    found: dict[str, Any] = {}
    before = load("duplicates")
    if options.without_peers and before is not None:
        take_peers(results, before["draws"])
        found["peers_machine"] = before.get("peers_machine", before["machine"])
    joined = join_cifar(cifar)
    print(json.dumps(joined, indent=1))
    quiet = without_duplicates(photos, cifar)
    print(json.dumps(quiet, indent=1))
    found |= {"summary": summarize(results), "without_duplicates": quiet, "cifar": joined, "draws": results}
    print(save("duplicates", found, RESULTS))


if __name__ == "__main__":
    main()
