"""What another ζ would do, beside the detector's own count."""

import numpy as np
import pandas as pd
import pytest

from graphclean.ood import find_threshold
from graphclean.ood.settings import OodSettings
from graphclean.report.border import try_borders
from graphclean.report.samples import Samples, read_samples


def make_samples(n: int = 200) -> Samples:
    rng = np.random.default_rng(0)
    ood = rng.uniform(0, 1, n)
    table = pd.DataFrame(
        {
            "id": [str(row) for row in range(n)],
            "given_label": "cat",
            "proposed_label": "cat",
            "verdict": np.where(ood > 0.6, "ood", "keep"),
            "label_quality": 0.5,
            "ood_score": ood,
            "selected": True,
            "neighbours": [[] for _ in range(n)],
        }
    )
    return read_samples(table, ["cat", "dog"], 1 - ood + rng.normal(0, 0.2, n))


def test_at_the_detectors_own_border_the_shares_are_its_own() -> None:
    samples = make_samples()
    threshold = find_threshold(samples.similarity, samples.ood, OodSettings())
    tried = try_borders(samples, threshold.zeta)
    assert tried is not None
    place = tried["chosen"]
    assert tried["borders"][place] == pytest.approx(threshold.zeta, abs=1e-6)
    assert tried["known"][place] == pytest.approx(threshold.rejected_known, abs=1e-5)


def test_every_border_counts_what_lies_below_it() -> None:
    samples = make_samples()
    tried = try_borders(samples, 0.4321)
    assert tried is not None
    assert len(tried["borders"]) == 202
    exact = np.unique(np.append(np.linspace(samples.similarity.min(), samples.similarity.max(), 201), 0.4321))
    for place in (0, 50, tried["chosen"], 201):
        below = samples.similarity < exact[place]
        assert tried["rejected"][place] == below.sum()
        assert tried["caught"][place] == (below & samples.where("ood")).sum()
    assert sum(tried["bins"]["ood"]) + sum(tried["bins"]["known"]) == len(samples)
    assert tried["strange"] == samples.where("ood").sum()


def test_what_has_no_likeness_is_not_counted() -> None:
    """A photo that can't be read is on neither side of a border."""
    samples = make_samples()
    samples.similarity[:3] = np.nan
    tried = try_borders(samples, 0.5)
    assert tried is not None
    assert tried["total"] == sum(tried["bins"]["ood"]) + sum(tried["bins"]["known"]) == len(samples) - 3


def test_without_likeness_there_is_no_border() -> None:
    samples = make_samples(3)
    assert try_borders(Samples(**{**vars(samples), "similarity": None}), 0.5) is None
    assert try_borders(Samples(**{**vars(samples), "similarity": np.full(3, np.nan)}), 0.5) is None
