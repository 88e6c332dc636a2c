"""Local outlier factors against scikit-learn, and what is made of them."""

import numpy as np
import pytest
import torch
from scipy.special import erf
from sklearn.neighbors import LocalOutlierFactor

from graphclean.methods.blocks import local_outliers
from graphclean.methods.blocks.local_outliers import (
    class_outlier_factors,
    local_outlier_factors,
    outlier_probabilities,
)


def points(n: int = 150, d: int = 4) -> torch.Tensor:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, d))
    x[:10] *= 6
    return torch.tensor(x)


@pytest.mark.parametrize("k", [1, 5, 20, 149, 500])
def test_factors_are_those_of_scikit_learn(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_outliers, "TILE", 4000)  # in several tiles
    x = points()
    theirs = LocalOutlierFactor(n_neighbors=min(k, 149)).fit(x.numpy())
    np.testing.assert_allclose(local_outlier_factors(x, k), -theirs.negative_outlier_factor_, rtol=1e-12)


def test_duplicates_and_few_samples_divide_by_nothing() -> None:
    same = torch.ones(30, 3)
    assert local_outlier_factors(same, 5).tolist() == pytest.approx([1.0] * 30)
    assert local_outlier_factors(same[:1], 5).tolist() == [1]
    assert local_outlier_factors(same[:0], 5).tolist() == []
    assert local_outlier_factors(torch.cat([same, points(30, 3).float()]), 5).isfinite().all()


def test_only_samples_of_the_same_label_are_neighbors() -> None:
    x = points()
    labels = torch.arange(150) % 3
    labels[::10] = -1
    found = class_outlier_factors(x, labels, 4, 5)
    for c in range(3):
        rows = labels == c
        theirs = LocalOutlierFactor(n_neighbors=5).fit(x[rows].numpy()).negative_outlier_factor_
        np.testing.assert_allclose(found[rows], -theirs, rtol=1e-12)
    assert (found[labels < 0] == 1).all()


def test_probabilities_are_relative_to_each_class() -> None:
    factors = torch.tensor([1.0, 1.1, 0.9, 3.0, 1.0, 1.0, 50.0], dtype=torch.float64)
    labels = torch.tensor([0, 0, 0, 0, 1, 1, -1])
    found = outlier_probabilities(factors, labels, 3)
    excess = factors[:4].numpy() - 1
    expected = np.maximum(0, erf(excess / np.sqrt(2 * np.mean(excess**2))))
    np.testing.assert_allclose(found[:4], expected, rtol=1e-12)
    assert found[4:].tolist() == [0, 0, 0]
