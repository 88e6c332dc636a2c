"""The MixMatch step against its formulas."""

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax
from scipy.stats import entropy

from graphclean.methods.blocks.mixmatch import (
    cycle_rows,
    divergence_from_uniform,
    mix_pairs,
    mixmatch_losses,
    sharpen,
)
from graphclean.training.augment import draw_beta

B, K = 10, 4


def draw(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits and soft labels."""
    generator = torch.Generator().manual_seed(seed)
    return (
        2 * torch.randn(B, K, generator=generator),
        torch.randn(B, K, generator=generator).softmax(1),
    )


def test_sharpening_raises_to_a_power() -> None:
    p = torch.tensor([[0.5, 0.3, 0.2], [1.0, 0.0, 0.0]])
    torch.testing.assert_close(sharpen(p, 1.0), p)
    expected = torch.tensor([[25 / 38, 9 / 38, 4 / 38], [1, 0, 0]])
    torch.testing.assert_close(sharpen(p, 0.5), expected)
    hard = sharpen(torch.tensor([[0.4, 0.35, 0.25]]), 0.001)
    torch.testing.assert_close(hard, torch.tensor([[1.0, 0.0, 0.0]]), msg="no power underflows")


@pytest.mark.parametrize("labeled", [1, 4, 9])
def test_the_losses_are_those_of_the_formulas(labeled: int) -> None:
    logits, targets = draw()
    found = mixmatch_losses(logits, targets, labeled)
    z, t = logits.double().numpy(), targets.double().numpy()
    ce = -(t * log_softmax(z, 1))[:labeled].sum(1).mean()
    squared = (softmax(z, 1) - t)[labeled:] ** 2
    prior = entropy(np.full(K, 1 / K), softmax(z, 1).mean(0))
    assert float(found["ce"]) == pytest.approx(ce, rel=1e-5)
    assert float(found["consistency"]) == pytest.approx(squared.mean(), rel=1e-5)
    assert float(found["prior"]) == pytest.approx(prior, rel=1e-5)


def test_the_prior_is_finite_where_a_class_is_given_up() -> None:
    certain = torch.zeros(B, K)
    certain[:, 0] = 1000
    assert 200 < float(divergence_from_uniform(certain.log_softmax(1))) < 1000
    assert float(divergence_from_uniform(torch.zeros(B, K).log_softmax(1))) == pytest.approx(0, abs=1e-6)


def test_each_is_mixed_with_one_other_and_remains_the_larger_part() -> None:
    images, targets = torch.eye(B), draw()[1]
    for seed in range(20):
        mixed, soft = mix_pairs(images, targets, 4.0, torch.Generator().manual_seed(seed))
        lam = float(draw_beta(4.0, 4.0, torch.Generator().manual_seed(seed)))
        assert float(mixed.diagonal().min()) == pytest.approx(max(lam, 1 - lam))
        torch.testing.assert_close(mixed.sum(0), torch.ones(B), msg="each is a partner once")
        torch.testing.assert_close(soft, mixed @ targets)
    assert mix_pairs(images, targets, 0.0, torch.Generator()) == (images, targets)


@pytest.mark.parametrize(("n", "shape"), [(7, (3, 4)), (1, (2, 3)), (12, (3, 4)), (30, (2, 5))])
def test_rows_come_equally_often_in_random_order(n: int, shape: tuple[int, int]) -> None:
    rows = torch.arange(n) + 100
    found = cycle_rows(rows, shape, torch.Generator().manual_seed(0))
    assert found.shape == shape
    counts = torch.bincount(found.flatten() - 100, minlength=n)
    assert int(counts.max() - counts.min()) <= 1
    whole = shape[0] * shape[1] // n
    for start in range(whole):
        assert found.flatten()[start * n : (start + 1) * n].sort().values.tolist() == rows.tolist()
    if n == 30:
        assert found.tolist() != rows[:10].view(shape).tolist()
