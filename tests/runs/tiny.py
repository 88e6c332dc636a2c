"""A few digits and few epochs, for tests of training through the command line."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from graphclean.data.digits import noisy_digits

N = 160
SETTINGS = [
    "training.epochs=3",
    "method.warmup_epochs=1",
    "training.batch_size=64",
    "graph.k=8",
    "cleaning.k=10,20",
]
TINY = ["--preset", "demo", *(word for setting in SETTINGS for word in ("--set", setting))]
TIMES = ("seconds", "clean_seconds")


def save_digits(folder: Path) -> Path:
    """`digits.npz` with noisy labels, and `new.npz` with the truth of others."""
    digits = noisy_digits(noise=0.3)
    np.savez(folder / "digits.npz", images=digits.images[:N], labels=digits.labels[:N])
    np.savez(folder / "new.npz", images=digits.images[N : 2 * N], labels=digits.truth[N : 2 * N])
    return folder / "digits.npz"


def metrics(run: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl without what differs from run to run."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in row.items() if key not in TIMES} for row in rows]


def results(run: Path) -> dict[str, Any]:
    """All that two equal runs must agree on to the bit."""
    names = (
        *("model.safetensors", "prototypes.safetensors", "points.safetensors"),
        *("verdicts.parquet", "verdicts.csv"),
    )
    summary = json.loads((run / "summary.json").read_text())
    del summary["training"]["seconds"]
    return {name: (run / name).read_bytes() for name in names} | {
        "metrics": metrics(run),
        "summary": summary,
    }
