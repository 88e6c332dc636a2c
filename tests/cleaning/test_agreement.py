"""Whether either half of the labels makes the same proposals."""

import numpy as np
import pytest
import torch

from graphclean.cleaning import infer_verdicts
from graphclean.cleaning.agreement import FEWEST_PROPOSALS, measure_agreement
from graphclean.cleaning.evidence import Copies, NodeGraph, Propagated, propagate_labels
from graphclean.cleaning.inputs import Labels, encode_labels
from graphclean.config import CleaningSettings
from graphclean.data.digits import noisy_digits
from graphclean.graph import knn_graph, nearest_neighbors
from graphclean.graph.noise_model import NoiseModel

PLAIN = NoiseModel(torch.eye(2, dtype=torch.float64), torch.full((2,), 0.5), temperature=1.0)


def propagate(z: np.ndarray, codes: np.ndarray, k: int) -> tuple[Propagated, Labels]:
    labels = encode_labels(codes)
    graph = NodeGraph.directed(knn_graph(nearest_neighbors(torch.from_numpy(z), k)))
    return propagate_labels(graph, Copies.none(len(z)).spread_labels(labels.codes, 2), k), labels


def circle(n: int) -> np.ndarray:
    """Points all around, so that neighbors are those next to each other."""
    angle = 2 * np.pi * np.arange(n) / n
    return np.column_stack([np.cos(angle), np.sin(angle)])


def test_labels_that_hold_for_a_region_are_found_by_either_half() -> None:
    codes = np.repeat([0, 1], 200)
    propagated, labels = propagate(circle(400), codes, 20)
    inner = np.zeros(400, dtype=bool)
    inner[np.r_[50:150, 250:350]] = True
    assert measure_agreement(propagated, PLAIN, labels, inner) == 1.0
    few = inner & (np.cumsum(inner) < FEWEST_PROPOSALS)
    assert measure_agreement(propagated, PLAIN, labels, few) is None


def test_random_labels_agree_by_chance() -> None:
    found = []
    for seed in range(5):
        codes = np.random.default_rng(seed).permutation(np.repeat([0, 1], 500))
        propagated, labels = propagate(circle(1000), codes, 20)
        agreed = measure_agreement(propagated, PLAIN, labels, np.ones(1000, dtype=bool))
        assert agreed is not None
        found.append(agreed)
    assert np.mean(found) == pytest.approx(0.5, abs=0.05)


def test_features_that_show_next_to_nothing_of_a_class_relabel_nothing() -> None:
    """By the posterior most proposals would be right, which takes them for many wrong labels."""
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 10, 2000)
    z = rng.normal(0, 1, (10, 16))[truth] + rng.normal(0, 5, (2000, 16))
    labels = np.where(rng.random(2000) < 0.3, rng.integers(0, 10, 2000), truth)
    believing = infer_verdicts(z, labels, settings=CleaningSettings(k=(20,), strength=0.0)).verdicts
    moved = (believing["verdict"] == "relabel").to_numpy()
    assert moved.mean() > 0.5
    assert (believing["proposed_label"].to_numpy() == truth)[moved].mean() < 0.2
    found = infer_verdicts(z, labels, settings=CleaningSettings(k=(20,)))
    assert not (found.verdicts["verdict"] == "relabel").any()
    assert any("either half of the labels" in note for note in found.summary.warnings)


@pytest.mark.slow
def test_four_of_five_wrong_labels_are_still_corrected() -> None:
    digits = noisy_digits(seed=3, noise=0.8)
    known = ~digits.is_ood
    z = digits.images[known].reshape(known.sum(), -1).astype(np.float32)
    found = infer_verdicts(z, digits.labels[known]).verdicts
    moved = (found["verdict"] == "relabel").to_numpy()
    assert moved.mean() > 0.5
    assert (found["proposed_label"].to_numpy() == digits.truth[known])[moved].mean() > 0.8
