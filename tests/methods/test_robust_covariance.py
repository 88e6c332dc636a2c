"""Robust Gaussian classes against scikit-learn: the minimum covariance determinant, linear discriminants."""

import numpy as np
import pytest
import torch
from sklearn.covariance import fast_mcd
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from graphclean.methods.blocks.robust_covariance import (
    concentrate,
    fit_gaussians,
    robust_gaussians,
    smallest_of_each,
)


def contaminated(n: int = 80, d: int = 3, seed: int = 0) -> torch.Tensor:
    """A Gaussian with a fifth of its points far away."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)) @ rng.normal(size=(d, d))
    x[: n // 5] += 15
    return torch.tensor(x)


def three_classes(n: int = 300, d: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 3, n)
    x = rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + 3 * rng.normal(size=(3, d))[labels]
    return torch.tensor(x), torch.tensor(labels)


def test_the_smallest_of_each_class_by_hand() -> None:
    values = torch.tensor([5.0, 1, 2, 9, 0, 3, 3])
    labels = torch.tensor([0, 0, 0, 0, -1, 2, 2])
    assert smallest_of_each(values, labels, 3, 0.5).tolist() == [False, True, True, False, False, True, False]
    assert smallest_of_each(values, labels, 3, 0.0).sum() == 2, "at least one of each class"
    ten = torch.zeros(10, dtype=torch.long)
    assert smallest_of_each(torch.arange(10.0), ten, 1, 0.7).sum() == 7


def test_concentration_ends_at_the_minimum_covariance_determinant_of_scikit_learn() -> None:
    x = contaminated()
    labels, generator = torch.zeros(80, dtype=torch.long), torch.Generator().manual_seed(0)
    ends = []
    for _ in range(20):
        found, kept = robust_gaussians(x, labels, 1, 0.7, generator)
        for _ in range(30):
            found, kept = concentrate(x, labels, found, 0.7)
        assert kept.sum() == 56
        ends.append((float(torch.linalg.inv(found.precision).det()), found, kept))
    least, best, kept = min(ends, key=lambda end: end[0])
    location, covariance, support, _ = fast_mcd(x.numpy(), support_fraction=0.7, random_state=0)
    assert least == pytest.approx(np.linalg.det(covariance))
    np.testing.assert_array_equal(kept, support)
    np.testing.assert_allclose(best.means[0], location, rtol=1e-12)
    np.testing.assert_allclose(best.precision, np.linalg.inv(covariance), rtol=1e-9)
    assert not kept[:16].any(), "none of those far away"


def test_with_all_samples_the_scores_are_those_of_linear_discriminant_analysis() -> None:
    x, labels = three_classes()
    found, kept = robust_gaussians(x, labels, 3, 1.0, torch.Generator().manual_seed(0))
    assert kept.all()
    weight, bias = found.linear()
    ours = (x @ weight.T + bias).log_softmax(1)
    # Weighted by the sizes of the classes, as the covariance within classes is; equal for prediction.
    sizes = np.bincount(labels) / len(labels)
    theirs = LinearDiscriminantAnalysis(solver="lsqr", priors=sizes).fit(x.numpy(), labels.numpy())
    scores = theirs.decision_function(x.numpy()) - np.log(sizes)
    np.testing.assert_allclose(ours, torch.tensor(scores).log_softmax(1), atol=1e-10)


def test_each_class_weighs_by_its_size_not_by_what_is_kept_of_it() -> None:
    x, labels = three_classes()
    some = torch.rand(300, generator=torch.Generator().manual_seed(0)) < 0.5
    start = fit_gaussians(x, labels, some, 3)
    found, kept = concentrate(x, labels, start, 0.4)
    array, y, mask = x.numpy(), labels.numpy(), kept.numpy()
    covariance = sum(
        (y == c).mean() * np.cov(array[mask & (y == c)], rowvar=False, bias=True) for c in range(3)
    )
    np.testing.assert_allclose(found.precision, np.linalg.inv(covariance), rtol=1e-9)
    for c in range(3):
        rows = np.flatnonzero(y == c)
        off = array[rows] - start.means[c].numpy()
        distance = np.einsum("ij,jk,ik->i", off, start.precision.numpy(), off)
        nearest = rows[np.argsort(distance)[: int(0.4 * len(rows))]]
        assert set(np.flatnonzero(mask & (y == c))) == set(nearest)
        np.testing.assert_allclose(found.means[c], array[nearest].mean(0))


def test_an_empty_class_is_never_predicted_and_unlabeled_samples_count_for_nothing() -> None:
    x, labels = three_classes()
    more = torch.cat([x, x[:50] + 100])
    unlabeled = torch.cat([labels, torch.full((50,), -1)])
    found, kept = robust_gaussians(more, unlabeled, 4, 1.0, torch.Generator().manual_seed(0))
    plain, _ = robust_gaussians(x, labels, 3, 1.0, torch.Generator().manual_seed(0))
    assert not kept[300:].any()
    torch.testing.assert_close(found.precision, plain.precision)
    weight, bias = found.linear()
    p = (more @ weight.T + bias).softmax(1)
    assert not p[:, 3].any()
    assert p.isfinite().all()


def test_fewer_samples_than_dimensions_have_a_pseudo_inverse() -> None:
    x = torch.randn(4, 9, generator=torch.Generator().manual_seed(0))
    found, _ = robust_gaussians(x, torch.tensor([0, 0, 1, 1]), 2, 0.7, torch.Generator().manual_seed(0))
    assert found.precision.isfinite().all()
