"""What other values of ζ would do to the training set."""

from typing import Any

import numpy as np

from .samples import Floats, Ints, Samples

STEPS = 200
BINS = 60


def try_borders(samples: Samples, zeta: float) -> dict[str, Any] | None:
    """For each of many ζ: samples below it, the share of known samples among them, as the detector expects
    it (`find_threshold`), and how many of those judged `ood`.
    """
    if samples.similarity is None:
        return None
    there = np.isfinite(samples.similarity)
    s, p = samples.similarity[there], np.nan_to_num(samples.ood[there])
    if len(s) == 0:
        return None
    low, high = float(min(s.min(), zeta)), float(max(s.max(), zeta))
    borders = np.unique(np.append(np.linspace(low, high, STEPS + 1), zeta))
    order = np.argsort(s)
    below = np.searchsorted(s[order], borders, side="left")
    known, strange = 1 - p, samples.where("ood")[there].astype(np.float64)
    edges = np.linspace(low, high, BINS + 1)
    kinds = {"ood": p > 0.5, "known": p <= 0.5}
    return {
        "zeta": zeta,
        "borders": borders.round(6).tolist(),
        "chosen": int(np.searchsorted(borders, zeta)),
        "total": len(s),
        "rejected": below.tolist(),
        "known": (_below(known, order, below) / max(known.sum(), 1e-9)).round(5).tolist(),
        "caught": _below(strange, order, below).astype(int).tolist(),
        "strange": int(strange.sum()),
        "edges": [low, high],
        "bins": {name: np.histogram(s[kind], edges)[0].tolist() for name, kind in kinds.items()},
    }


def _below(weight: Floats, order: Ints, below: Ints) -> Floats:
    """What the first so many in order weigh together."""
    return np.concatenate([[0.0], np.cumsum(weight[order])])[below]
