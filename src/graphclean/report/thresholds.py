"""What other thresholds would do to the training set."""

from typing import Any

import numpy as np

from ..data.verdict import Verdict
from .samples import Floats, Ints, Samples

THRESHOLD_STEPS = 200
BINS = 60


def sweep_thresholds(samples: Samples, threshold: float) -> dict[str, Any] | None:
    """For each of many thresholds: samples above it, the share of known samples among them, as the detector
    expects it (`find_threshold`), and how many of those judged `ood`.
    """
    if samples.detector_score is None:
        return None
    there = np.isfinite(samples.detector_score)
    s, p = samples.detector_score[there], np.nan_to_num(samples.ood[there])
    if len(s) == 0:
        return None
    low, high = float(min(s.min(), threshold)), float(max(s.max(), threshold))
    borders = np.unique(np.append(np.linspace(low, high, THRESHOLD_STEPS + 1), threshold))
    order = np.argsort(-s)
    above = len(s) - np.searchsorted(np.sort(s), borders, side="right")
    known, strange = 1 - p, samples.where(Verdict.OOD)[there].astype(np.float64)
    edges = np.linspace(low, high, BINS + 1)
    kinds = {"ood": p > 0.5, "known": p <= 0.5}
    return {
        "threshold": threshold,
        "borders": borders.round(6).tolist(),
        "chosen": int(np.searchsorted(borders, threshold)),
        "total": len(s),
        "rejected": above.tolist(),
        "known": (_first(known, order, above) / max(known.sum(), 1e-9)).round(5).tolist(),
        "caught": _first(strange, order, above).astype(int).tolist(),
        "strange": int(strange.sum()),
        "edges": [round(low, 6), round(high, 6)],
        "bins": {name: np.histogram(s[kind], edges)[0].tolist() for name, kind in kinds.items()},
    }


def _first(weight: Floats, order: Ints, count: Ints) -> Floats:
    """What the first so many in order weigh together."""
    return np.concatenate([[0.0], np.cumsum(weight[order])])[count]
