"""The mixture of two Gaussians against scikit-learn's, from the same start."""

import numpy as np
import pytest
import torch
from scipy.stats import norm
from sklearn.cluster import KMeans
from sklearn.mixture import GaussianMixture

from graphclean.methods.blocks.gaussian_mixture import (
    EM_TOLERANCE,
    LEAST_VARIANCE,
    Mixture,
    fit_mixture,
    scale_losses,
    small_loss_probability,
    start_mixture,
)


def losses(n: int, clean: float = 0.6, seed: int = 0) -> np.ndarray:
    """Small ones of clean labels, and large ones of wrong labels."""
    rng = np.random.default_rng(seed)
    few = round(clean * n)
    return np.concatenate([rng.exponential(0.3, few), rng.normal(3, 0.8, n - few).clip(0)])


@pytest.mark.parametrize(("n", "clean"), [(2000, 0.6), (500, 0.2), (300, 0.95), (40, 0.5)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("most", [1, 10, 200])
def test_it_is_scikit_learns_from_the_same_start(n: int, clean: float, most: int) -> None:
    values = scale_losses(torch.as_tensor(losses(n, clean)))
    start = start_mixture(values)
    found = fit_mixture(values, start, max_iterations=most)
    oracle = GaussianMixture(
        2,
        tol=EM_TOLERANCE,
        max_iter=most,
        reg_covar=LEAST_VARIANCE,
        means_init=start.means.numpy()[:, None],
        weights_init=start.weights.numpy(),
        precisions_init=1 / start.variances.numpy()[:, None, None],
    ).fit(values.numpy()[:, None])
    np.testing.assert_allclose(found.means, oracle.means_[:, 0], atol=1e-12)
    np.testing.assert_allclose(found.variances, oracle.covariances_[:, 0, 0], atol=1e-12)
    np.testing.assert_allclose(found.weights, oracle.weights_, atol=1e-12)
    posterior = oracle.predict_proba(values.numpy()[:, None])[:, oracle.means_.argmin()]
    probability = small_loss_probability(torch.as_tensor(losses(n, clean)), max_iterations=most)
    np.testing.assert_allclose(probability, posterior, atol=1e-10)


@pytest.mark.parametrize("seed", range(5))
def test_the_start_is_the_best_of_many_k_means(seed: int) -> None:
    values = scale_losses(torch.as_tensor(losses(200, 0.7, seed)))
    found = start_mixture(values)
    best = KMeans(2, n_init=20, random_state=0).fit(values.numpy()[:, None])
    np.testing.assert_allclose(sorted(found.means), sorted(best.cluster_centers_[:, 0]), atol=1e-12)
    share = np.bincount(best.labels_)[best.cluster_centers_[:, 0].argmin()] / 200
    assert float(found.weights[0]) == pytest.approx(share)


def test_the_joint_density_is_scipys() -> None:
    mixture = Mixture(*(torch.tensor(part, dtype=torch.float64) for part in ([0, 2], [0.25, 4], [0.3, 0.7])))
    values = torch.linspace(-1, 3, 7, dtype=torch.float64)
    expected = [[np.log(0.3) + norm(0, 0.5).logpdf(x), np.log(0.7) + norm(2, 2).logpdf(x)] for x in values]
    np.testing.assert_allclose(mixture.log_joint(values), expected, atol=1e-12)


def test_small_losses_are_probably_clean_whatever_their_unit() -> None:
    values = torch.as_tensor(losses(1000), dtype=torch.float32)
    found = small_loss_probability(values)
    assert found.dtype == torch.float32
    assert (found[:600] > 0.5).double().mean() > 0.95
    assert (found[600:] > 0.5).double().mean() < 0.05
    torch.testing.assert_close(small_loss_probability(7 * values + 3), found, atol=1e-4, rtol=0)


@pytest.mark.parametrize("values", [[1.0], [2.0, 2.0, 2.0], [0.0, 5.0]])
def test_few_or_equal_losses_have_finite_probabilities(values: list[float]) -> None:
    found = small_loss_probability(torch.tensor(values))
    assert found.isfinite().all()
    assert found[0] >= 0.5
