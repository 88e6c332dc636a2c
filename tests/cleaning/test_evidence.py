import numpy as np
import pytest

from graphclean.cleaning.evidence import class_signal


def test_signal_is_large_for_real_evidence_and_small_for_chance() -> None:
    rng = np.random.default_rng(6)
    truth = rng.integers(0, 5, 1000)
    evidence = rng.gamma(np.where(truth[:, None] == np.arange(5), 24.0, 2.0))
    evidence /= evidence.sum(1, keepdims=True)
    labels = np.where(rng.random(1000) < 0.8, rng.integers(0, 5, 1000), truth)
    assert class_signal(evidence, labels) > 10
    shuffled = np.random.default_rng(7).permutation(labels)
    assert abs(class_signal(evidence, shuffled)) < 4
    assert class_signal(np.full((10, 5), 0.2), labels[:10]) == 0


def test_signal_is_in_standard_errors_also_for_unequal_classes() -> None:
    rng = np.random.default_rng(8)
    guess = rng.choice(3, 300, p=[0.8, 0.15, 0.05])
    evidence = np.where(guess[:, None] == np.arange(3), 0.8, 0.1)
    labels = rng.choice(3, 300, p=[0.9, 0.07, 0.03])
    drawn_scores = [class_signal(evidence, rng.permutation(labels)) for _ in range(2000)]
    assert np.mean(drawn_scores) == pytest.approx(0, abs=0.1)
    assert np.std(drawn_scores) == pytest.approx(1, abs=0.1)
