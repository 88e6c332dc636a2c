"""The effect of other thresholds on the training set."""

from typing import Any

import numpy as np
import numpy.typing as npt

from ..training.model import DetectorRecord
from .lists import Ints
from .samples import Floats, Samples

THRESHOLD_STEPS = 200
BINS = 60


def sweep_thresholds(samples: Samples, detector: DetectorRecord) -> dict[str, Any] | None:
    """For many thresholds: the number of samples above, the fraction of known samples above, and the number
    of probable OOD samples above, as in `find_threshold`.
    """
    threshold = float(detector["threshold"])
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
    far = p > 0.5
    strange = far & (detector.get("rejected_ood") is not None)
    known = ~strange
    edges = np.linspace(low, high, BINS + 1)
    kinds = {"ood": far, "known": ~far}
    return {
        "threshold": threshold,
        "borders": borders.round(6).tolist(),
        "chosen": int(np.searchsorted(borders, threshold)),
        "total": len(s),
        "rejected": above.tolist(),
        "known": (_first(known, order, above) / max(known.sum(), 1)).round(5).tolist(),
        "caught": _first(strange, order, above).astype(int).tolist(),
        "strange": int(strange.sum()),
        "edges": [round(low, 6), round(high, 6)],
        "bins": {name: np.histogram(s[kind], edges)[0].tolist() for name, kind in kinds.items()},
    }


def _first(weight: npt.NDArray[np.bool_], order: Ints, count: Ints) -> Floats:
    """The number of true entries among the first n in order."""
    return np.concatenate([[0.0], np.cumsum(weight[order])])[count]
