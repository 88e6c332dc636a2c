"""Run folders made by hand, with names and labels that no one should trust."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image

from graphclean._files import write_json, write_lines
from graphclean.runs.folder import write_config, write_env
from graphclean.runs.projection import gather_points, write_points

SCRIPT = "<script>window.stolen=1</script>"
IMAGE = "\"'><img src=x onerror=window.stolen=2>"
CLASSES = ["cat", SCRIPT, IMAGE, "\u202egod"]
NAMES = ["=cmd()", "a,b", "x</script><script>window.stolen=3</script>", "--><!--", "\u2028line", "{{7*7}}"]


def make_run(run: Path, n: int = 60, *, photos: Path | None = None, classes: list[str] = CLASSES) -> Path:
    """A run of `clean` over n samples of known verdicts, with a map, and with photos if given a folder."""
    run.mkdir(parents=True)
    rng = np.random.default_rng(0)
    table = make_verdicts(n, classes)
    source: dict[str, Any] = {"data": "nowhere.npz", "labels": None, "kind": "features"}
    if photos is not None:
        source = {"data": str(photos), "labels": None, "kind": "photos", "embedder": "efficientnet-lite0"}
        save_photos(photos, table["id"].tolist())
    write_config(run, "clean", source, {"cleaning": {"certainty": 0.6}})
    write_env(run, "0")
    table.to_parquet(run / "verdicts.parquet", index=False)
    counts = table["verdict"].value_counts()
    write_json(
        run / "summary.json",
        {
            "samples": n,
            "classes": classes,
            "verdicts": {name: int(count) for name, count in counts.items()},
            "k": 10,
            "k_tried": {"10": -1.0, "20": -1.1},
            "noise_rate": 0.25,
            "ood_rate": 0.2,
            "expected_right": {"keep": 0.97, "relabel": 0.9, "ood": 0.8},
            "selected": int(table["selected"].sum()),
            "detector": {
                "name": "learned from OOD samples",
                "threshold": 0.5,
                "rejected_known": 0.05,
                "rejected_ood": 0.8,
                "ood_share": 0.2,
                "calibrated_on": n,
                "how": "auto",
                "promised": 0.05,
            },
            "warnings": [f"a note on {SCRIPT}"],
        },
    )
    mapped = torch.as_tensor(rng.normal(size=(min(n, 60), 8)))
    write_points(gather_points(mapped, torch.as_tensor(table["ood_score"].to_numpy(copy=True))), run)
    curve = [
        {"epoch": e, "warmup": e < 3, "losses": {"ce": 1 / e}, "selected": n // 2, "samples": n}
        for e in range(1, 6)
    ]
    write_lines(run / "metrics.jsonl", [{**line, "seconds": 1.0, "estimated_noise": 0.3} for line in curve])
    return run


def take_scores(run: Path) -> Path:
    """The same run, had its features told nothing: all is uncertain, and has no scores."""
    table = pd.read_parquet(run / "verdicts.parquet")
    table = table.assign(
        verdict="uncertain", confidence=np.nan, label_quality=np.nan, ood_score=np.nan, selected=False
    )
    table.to_parquet(run / "verdicts.parquet", index=False)
    return run


def make_verdicts(n: int, classes: list[str]) -> pd.DataFrame:
    """Half keep, a quarter relabel, a fifth ood, the rest uncertain; neighbors are the five rows after."""
    share = np.arange(n) / n
    verdict = np.select([share < 0.5, share < 0.75, share < 0.95], ["keep", "relabel", "ood"], "uncertain")
    k = len(classes)
    given = np.arange(n) % k
    proposed = np.where(verdict == "relabel", (given + 1) % k, given)
    ids = [f"p{row:05d}.png" for row in range(n)]
    for row, name in enumerate(NAMES):
        ids[(row * 7 + n // 2) % n] = f"{name.replace('/', '∕')}.png"
    return pd.DataFrame(
        {
            "id": ids,
            "given_label": [classes[code] for code in given],
            "proposed_label": [classes[code] for code in proposed],
            "verdict": verdict,
            "confidence": np.where(verdict == "uncertain", 0.4, 0.8) + share / 10,
            "label_quality": np.where(verdict == "keep", 0.9, 0.1) + share / 100,
            "ood_score": np.where(verdict == "ood", 0.9, 0.1) + share / 100,
            "selected": verdict == "keep",
            "neighbors": [[ids[(row + step) % n] for step in range(1, 6)] for row in range(n)],
        }
    )


def save_photos(folder: Path, names: list[str]) -> None:
    """One small picture for each name, each of its own color."""
    folder.mkdir(parents=True)
    for number, name in enumerate(names):
        Image.new("RGB", (48, 40), (number * 4 % 256, 90, 160)).save(folder / name)
