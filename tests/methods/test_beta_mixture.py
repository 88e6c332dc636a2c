"""The beta mixture against SciPy and a plain EM, and which losses it takes for those of wrong labels."""

import numpy as np
import pytest
import torch
from scipy.stats import beta

from graphclean.methods.blocks.beta_mixture import (
    PLACES,
    BetaMixture,
    fit_beta_mixture,
    fit_loss_model,
    no_loss_model,
)


def draw(n: int = 20_000, seed: int = 0) -> np.ndarray:
    """Three in five from Beta(2, 8), the others from Beta(8, 3)."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random(n) < 0.6, rng.beta(2, 8, n), rng.beta(8, 3, n))


def plain_em(x: np.ndarray, iterations: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A component at a time."""
    x = np.clip(x, 1e-4, 1 - 1e-4)
    a, b, weight = np.array([1.0, 2.0]), np.array([2.0, 1.0]), np.array([0.5, 0.5])
    for _ in range(iterations):
        share = np.stack([weight[c] * beta.pdf(x, a[c], b[c]) for c in range(2)])
        share = np.maximum(share, 1e-12)
        share /= share.sum(0)
        for c in range(2):
            mean = np.average(x, weights=share[c])
            variance = np.average((x - mean) ** 2, weights=share[c])
            a[c] = mean * (mean * (1 - mean) / variance - 1)
            b[c] = a[c] * (1 - mean) / mean
        weight = share.sum(1) / len(x)
    return a, b, weight


@pytest.mark.parametrize("iterations", [1, 10, 40])
def test_it_is_that_of_a_plain_em(iterations: int) -> None:
    x = np.concatenate([draw(2000), [0.0, 1.0]])
    found = fit_beta_mixture(torch.tensor(x), iterations)
    for part, expected in zip(found, plain_em(x, iterations), strict=True):
        np.testing.assert_allclose(part, expected, rtol=1e-9)


def test_it_finds_the_mixture_that_values_were_drawn_from() -> None:
    """After a hundred iterations: after ten, as many as the method makes, it is far from there."""
    x = torch.tensor(draw())
    a, b, weight = fit_beta_mixture(x, 100)
    np.testing.assert_allclose(a, [2, 8], rtol=0.08)
    np.testing.assert_allclose(b, [8, 3], rtol=0.08)
    np.testing.assert_allclose(weight, [0.6, 0.4], atol=0.01)
    early = fit_beta_mixture(x, 10)
    np.testing.assert_allclose(early.a, [0.86, 1.65], atol=0.05)
    np.testing.assert_allclose(early.b, [2.41, 1.07], atol=0.05)


def test_densities_are_those_of_scipy() -> None:
    a, b, weight = np.array([0.7, 8.0]), np.array([2.0, 0.5]), np.array([0.3, 0.7])
    x = np.linspace(0.001, 0.999, 50)
    found = BetaMixture(*map(torch.tensor, (a, b, weight))).densities(torch.tensor(x))
    expected = weight[:, None] * beta.pdf(x, a[:, None], b[:, None])
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def losses(n: int = 4000) -> torch.Tensor:
    """Small ones, and from 60 % on large ones."""
    x = np.sort(draw(n))
    return torch.tensor(0.5 + 6 * x, dtype=torch.float32)


def test_the_probability_of_a_wrong_label_grows_with_the_loss_and_stays_where_it_is_highest() -> None:
    model = fit_loss_model(losses())
    table = model.table.numpy()
    assert table.shape == (PLACES,)
    assert table.min() >= 0
    assert table.max() <= 1
    top = table.argmax()
    assert 0 < top < PLACES - 1 or table[-1] == table.max()
    assert (table[top:] == table[top]).all()
    found = model.noisy(torch.tensor([-5.0, 0.5, 3.0, 6.0, 100.0]))
    assert (found.diff() >= 0).all()
    assert found[0] < 0.1
    assert found[-1] > 0.9


def test_the_table_is_the_posterior_of_the_second_component() -> None:
    """Of losses between their 5th and 95th percentile, scaled to these."""
    each = losses()
    low, high = np.percentile(each, 5), np.percentile(each, 95)
    kept = each.numpy()[(each >= low) & (each <= high)].astype(np.float64)
    scaled = np.clip((kept - low - 1e-5) / (high - low - 1e-5 + 1e-6), 1e-3, 1 - 1e-3)
    a, b, weight = plain_em(scaled, 10)
    x = np.linspace(1e-12, 1 - 1e-12, PLACES)
    density = weight[:, None] * beta.pdf(x, a[:, None], b[:, None])
    expected = density[1] / (density.sum(0) + 1e-12)
    expected[expected.argmax() :] = expected.max()
    np.testing.assert_allclose(fit_loss_model(each).table, expected, atol=1e-3)


@pytest.mark.parametrize("each", [[], [2.0], [0.0, 5.0], [1.5] * 30, [0.0, 1.0, 5.0]])
def test_losses_that_say_nothing_leave_a_probability(each: list[float]) -> None:
    model = fit_loss_model(torch.tensor(each))
    found = model.noisy(torch.tensor([0.0, 1.5, 9.0]))
    assert bool(((found >= 0) & (found <= 1)).all())
    if len(set(each)) < 3:
        assert bool((found < 0.01).all()), "no label is wrong"


def test_without_a_model_no_label_is_wrong() -> None:
    assert not no_loss_model(torch.device("cpu")).noisy(torch.tensor([0.0, 50.0])).any()
