"""What another threshold would do, next to the detector's own count."""

from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest

from graphclean.config import OodSettings
from graphclean.ood import Threshold, find_threshold
from graphclean.report.samples import Samples, read_samples
from graphclean.report.thresholds import sweep_thresholds
from graphclean.training.model import DetectorRecord


def at(threshold: float) -> DetectorRecord:
    """A detector that learned from OOD samples, with this threshold."""
    return DetectorRecord(**asdict(Threshold(threshold, 0.05, 0.8, 0.2, 100)))


def make_samples(n: int = 200) -> Samples:
    rng = np.random.default_rng(0)
    ood = rng.uniform(0, 1, n)
    table = pd.DataFrame(
        {
            "id": [str(row) for row in range(n)],
            "given_label": "cat",
            "proposed_label": "cat",
            "verdict": np.where(ood > 0.6, "ood", "keep"),
            "confidence": 0.5,
            "label_quality": 0.5,
            "ood_score": ood,
            "selected": True,
            "neighbors": [[] for _ in range(n)],
            "duplicate_group": pd.NA,
        }
    )
    return read_samples(table, ["cat", "dog"], ood - rng.normal(0, 0.2, n))


@pytest.mark.parametrize("learned", [True, False])
def test_at_the_detectors_own_threshold_the_shares_are_its_own(learned: bool) -> None:
    samples = make_samples()
    assert samples.detector_score is not None
    found = find_threshold(samples.detector_score, samples.ood, OodSettings(), learned=learned)
    tried = sweep_thresholds(samples, DetectorRecord(**asdict(found)))
    assert tried is not None
    place = tried["chosen"]
    assert tried["borders"][place] == pytest.approx(found.threshold, abs=1e-6)
    assert tried["known"][place] == pytest.approx(found.rejected_known, abs=1e-5)
    assert (tried["strange"] > 0) == learned
    if learned:
        assert tried["caught"][place] / tried["strange"] == pytest.approx(found.rejected_ood)


def test_every_threshold_counts_what_lies_above_it() -> None:
    samples = make_samples()
    score = samples.detector_score
    assert score is not None
    tried = sweep_thresholds(samples, at(1 - 0.4321))
    assert tried is not None
    assert len(tried["borders"]) == 202
    exact = np.unique(np.append(np.linspace(score.min(), score.max(), 201), 1 - 0.4321))
    for place in (0, 50, tried["chosen"], 201):
        above = score > exact[place]
        assert tried["rejected"][place] == above.sum()
        assert tried["caught"][place] == (above & (samples.ood > 0.5)).sum()
    assert sum(tried["bins"]["ood"]) + sum(tried["bins"]["known"]) == len(samples)
    assert tried["strange"] == (samples.ood > 0.5).sum()


def test_what_has_no_score_is_not_counted() -> None:
    """A photo that can't be read is on neither side of a threshold."""
    samples = make_samples()
    assert samples.detector_score is not None
    samples.detector_score[:3] = np.nan
    tried = sweep_thresholds(samples, at(0.5))
    assert tried is not None
    assert tried["total"] == sum(tried["bins"]["ood"]) + sum(tried["bins"]["known"]) == len(samples) - 3


def test_without_scores_there_is_no_threshold_to_move() -> None:
    samples = make_samples(3)
    assert sweep_thresholds(Samples(**{**vars(samples), "detector_score": None}), at(0.5)) is None
    assert (
        sweep_thresholds(Samples(**{**vars(samples), "detector_score": np.full(3, np.nan)}), at(0.5)) is None
    )
