"""Heads trained on the photos' features beside `clean` on the same features, over five noise draws.

python benchmarks/heads.py --data-root DATA
"""

from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from audit import Array, Draw, embed_photos, photo_draws, read_options, timed
from common import save
from graphclean.audit import audit_embeddings
from graphclean.audit.inputs import encode_labels
from graphclean.config import load_preset
from graphclean.evaluate import score_verdicts
from graphclean.training import fit

DRAWS = 5


def score_new(table: pd.DataFrame, truth: Array) -> dict[str, float]:
    """Predictions for new photos against their truth, −1 for OOD."""
    known, rejected = truth >= 0, (table.verdict == "ood").to_numpy()
    return {
        "accuracy": float((table.predicted_label.to_numpy() == truth)[known].mean()),
        "auroc": float(roc_auc_score(~known, table.ood_score)),
        "known_rejected": float(rejected[known].mean()),
        "ood_rejected": float(rejected[~known].mean()),
    }


def score(draw: Draw, new: Array, new_truth: Array) -> dict[str, dict[str, float]]:
    """Both ways on one draw."""
    audit, clean_seconds = timed(lambda: audit_embeddings(draw.features, draw.labels))
    result, train_seconds = timed(
        lambda: fit(draw.features, encode_labels(draw.labels), load_preset("embeddings"))
    )
    ways = {
        "clean": (audit.verdicts, audit.predictor.predict(new), clean_seconds),
        "train": (result.audit.verdicts, result.model.predict(new), train_seconds),
    }
    return {
        who: {
            **score_new(predictions, new_truth),
            **asdict(score_verdicts(verdicts, draw.truth, draw.truth < 0)),
            "seconds": seconds,
        }
        for who, (verdicts, predictions, seconds) in ways.items()
    }


def spread(values: list[float]) -> dict[str, float]:
    """Mean, deviation over the draws, and median."""
    return {
        "mean": float(np.mean(values)),
        "sd": float(np.std(values, ddof=1)),
        "median": float(np.median(values)),
    }


def main() -> None:
    root, cache = read_options(__doc__)
    photos = embed_photos(root, cache / "photos.npz")
    rows: list[dict[str, Any]] = []
    for draw in photo_draws(photos, DRAWS):
        rows.append({"draw": draw.name, **score(draw, photos["test"], photos["test_truth"])})
        print(rows[-1], flush=True)
    names = list(rows[0]["clean"])
    summary = {
        who: {name: spread([row[who][name] for row in rows]) for name in names} for who in ("clean", "train")
    }
    gain = {name: spread([row["train"][name] - row["clean"][name] for row in rows]) for name in names}
    print(
        pd.DataFrame({who: {name: value["mean"] for name, value in summary[who].items()} for who in summary})
    )
    print(save("heads", {"summary": summary, "gain": gain, "draws": rows}))


if __name__ == "__main__":
    main()
