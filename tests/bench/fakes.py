"""A results tree as the runner writes it, with invented but lifelike numbers."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from graphclean.bench.cells import CELLS

LOND = "cifar10/tinyimagenet/20k"


def cleaning(selected: int, wrong: int, ood: int, label_accuracy: float) -> dict[str, Any]:
    return {
        "selected": selected,
        "wrong_known": wrong,
        "ood": ood,
        "noise_rate": (wrong + ood) / selected,
        "label_accuracy": label_accuracy,
        "given_right": 0.55,
    }


def epoch(i: int, total: int, *, dev: bool, ood: bool, rng: np.random.Generator) -> dict[str, Any]:
    """One epoch of a run that goes well."""
    warmup = i <= 5
    done = 1 - np.exp(-4 * i / total)
    jitter = rng.normal(0, 0.004)
    right = 0.55 + 0.38 * done + jitter
    sizes = {"confidence": 52_000, "geometry": 61_000, "both": int(25_000 + 23_000 * done)}
    noises = {
        "confidence": 0.4 - 0.2 * done,
        "geometry": 0.5 - 0.1 * done,
        "both": 0.43 - 0.3 * done + jitter,
    }
    told = i % 10 == 0 or i == total
    return {
        "epoch": i,
        "warmup": warmup,
        "losses": {"ce": 2.3 - 1.2 * done, "inst": 0.0, "subgraph": 0.0}
        if warmup
        else {"ce": 2.3 - 1.2 * done, "inst": 5.0 - 1.2 * done, "subgraph": 6.9 - 0.5 * done},
        "lr": 0.15,
        "selected": sizes["both"],
        "confident": 52_000,
        "relabeled": 0 if warmup else 16_000,
        "seconds": 4.4,
        "clean_seconds": 0.4,
        "cleaning": cleaning(sizes["both"], 1_400, int(noises["both"] * sizes["both"]), right),
        "degrees": {"clean": 20 + 8 * done, "wrong": 18 - 9 * done, "ood": 15 - 8 * done if ood else None},
        "strategies": {name: {"selected": sizes[name], "noise_rate": noises[name]} for name in sizes}
        if told
        else None,
        "accuracy": right - 0.02 if dev else None,
    }  # fmt: skip


def write_run(
    results: Path,
    cell: str = LOND,
    method: str | None = None,
    seed: int = 0,
    *,
    split: str = "test",
    epochs: int = 60,
    graph: dict[str, float] | None = None,
    scores: dict[str, float | None] | None = None,
    arrays: dict[str, Any] | None = None,
    **changes: Any,
) -> Path:
    """Write a result (and its arrays) where it belongs; `changes` replace what stands in it.

    Its method is the cell's own preset unless another is named.
    """
    preset = CELLS[cell].preset if cell in CELLS else "cifar10-lond"
    method = method if method is not None else preset
    rng = np.random.default_rng(seed)
    ood = cell.count("/") == 2
    made: dict[str, float | None] = dict.fromkeys(
        ("auroc", "fpr95", "f_auto", "f_best", "zeta_best", "f_0.5", "f_0.7", "control_auroc")
    )
    if ood:
        made = {"auroc": 0.96, "fpr95": 0.15, "f_auto": 0.851, "f_best": 0.8815, "zeta_best": 0.41,
                "f_0.5": 0.8632, "f_0.7": 0.6303, "control_auroc": 0.52}  # fmt: skip
    result = {
        "format": 1,
        "cell": cell,
        "split": split,
        "method": method,
        "seed": seed,
        "preset": preset,
        "changes": [],
        "config": {"graph": {"k": 30, "eta": 0.8} | (graph or {}), "training": {"epochs": epochs}},
        "draw": f"{seed}" * 64,
        "machine": {"time": f"2026-11-15T0{seed}:00:00Z", "commit": "0123456789abcdef", "gpu": None},
        "seconds": 272.7,
        "epoch_seconds": 4.4,
        "peak_gib": 4.5,
        "threshold": {"zeta": 0.54, "rejected_known": 0.004, "ood_share": 0.41} if ood else None,
        "scores": {"accuracy": 0.8918} | made | (scores or {}),
        "cleaning": cleaning(49_302, 1_367, 6_175, 0.92108),
        "epochs": [epoch(i, epochs, dev=split == "dev", ood=ood, rng=rng) for i in range(1, epochs + 1)],
    } | changes
    path = results / (cell.replace("/", "--") + ("--dev" if split == "dev" else "")) / method / f"{seed}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result))
    if arrays is not None:
        np.savez(path.with_suffix(".npz"), **arrays)
    return path


def scored_set(seed: int, n: int = 400, classes: int = 10) -> dict[str, Any]:
    """What is kept of a scored set, as many OOD as known; the truth is the same for every seed."""
    rng = np.random.default_rng(seed)
    truth = np.concatenate([np.arange(n) % classes, np.full(n, -1)])
    logits = rng.normal(0, 1, (2 * n, classes))
    logits[np.arange(n), truth[:n]] += 2.5
    similarity = np.clip(rng.normal(np.where(truth < 0, 0.3, 0.65), 0.15), -1, 1)
    return {
        "logits": logits[:n].astype(np.float16),
        "predicted": logits.argmax(1).astype(np.int8),
        "similarity": similarity.astype(np.float16),
        "truth": truth.astype(np.int8),
    }


def mapped(seed: int, n: int = 300) -> dict[str, Any]:
    """Places and kinds of training samples on a map."""
    rng = np.random.default_rng(seed)
    return {
        "map": rng.normal(0, 30, (n, 2)).astype(np.float16),
        "kind": rng.choice(3, n, p=[0.45, 0.3, 0.25]).astype(np.int8),
    }
