"""A small run over a few photos, for tests of what is done with verdicts."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from graphclean._files import write_json
from graphclean.runs.folder import write_config, write_env, write_table

# id, given, proposed, verdict, confidence, OOD score, selected
ROWS: list[tuple[Any, ...]] = [
    ("cat/1.png", "cat", "cat", "keep", 0.981, 0.01, True),
    ("cat/2.png", "cat", "dog", "relabel", 0.92, 0.05, True),
    ("cat/deep/1.png", "cat", "cat", "keep", 0.9, 0.02, True),
    ("cat/bad.png", "cat", None, "unreadable", np.nan, np.nan, False),
    ("dog/1.png", "dog", "cat", "ood", 0.93, 0.93, False),
    ("dog/2.png", "dog", "dog", "uncertain", 0.45, 0.2, False),
    ("dog/3.png", "dog", "dog", "keep", 0.99, 0.01, True),
    ("loose.png", None, "dog", "unlabeled", 0.88, 0.1, True),
    ("vague.png", None, "cat", "unlabeled", 0.35, 0.4, False),
]


def make_verdicts(rows: list[tuple[Any, ...]]) -> pd.DataFrame:
    names = ["id", "given_label", "proposed_label", "verdict", "confidence", "ood_score", "selected"]
    table = pd.DataFrame(rows, columns=names)
    return table.assign(label_quality=table["confidence"], neighbors=[[] for _ in rows])


def make_run(run: Path, rows: list[tuple[Any, ...]] = ROWS, **source: Any) -> Path:
    """A run folder of photos in `photos`, as `clean` writes it, without the embedding."""
    run.mkdir(exist_ok=True)
    described = {"data": "photos", "labels": None, "kind": "photos", "embedder": "efficientnet-lite0"}
    write_config(run, "clean", {**described, **source}, {})
    write_env(run, "0")
    write_json(run / "summary.json", {})
    write_table(make_verdicts(rows), run / "verdicts")
    return run


def lay_photos(folder: Path) -> Path:
    """The photos of ROWS, each of its own color, and a run over them."""
    for number, row in enumerate(ROWS):
        path = folder / "photos" / row[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4), (10 * number, 0, 0)).save(path)
    make_run(folder / "run")
    return folder / "photos"
