"""Selection by small losses against NumPy, a sample at a time."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphclean.methods.blocks.small_loss import remaining, smallest_losses, smallest_of_class

VALUES = st.lists(st.integers(0, 6), min_size=1, max_size=30)
"""Losses with ties."""


@settings(max_examples=60, deadline=None)
@given(VALUES, st.integers(0, 20), st.integers(0, 2**30 - 1))
def test_it_keeps_the_smallest_of_the_candidates(values: list[int], percent: int, bits: int) -> None:
    losses = np.array(values, dtype=np.float32)
    candidates = np.array([bool(bits >> place & 1) for place in range(len(values))])
    count = max(1, candidates.sum() * (20 - percent) // 20)
    ranked = sorted(np.flatnonzero(candidates), key=lambda place: (losses[place], place))
    mask = torch.tensor(candidates)
    kept = smallest_losses(torch.tensor(losses), mask, remaining(mask, percent / 20))
    assert kept.nonzero().flatten().tolist() == sorted(ranked[:count])


@pytest.mark.parametrize(
    ("n", "drop", "left"), [(5, 0.2, 4), (10, 0.9, 1), (10, 0.7, 3), (10, 0.8, 2), (7, 0.5, 3), (3, 0.99, 1)]
)
def test_a_fraction_is_rounded_down_and_leaves_one(n: int, drop: float, left: int) -> None:
    assert int(remaining(torch.ones(n, dtype=torch.bool), drop)) == left
    assert int(remaining(torch.ones(n, dtype=torch.bool), torch.tensor(drop))) == left


def test_without_candidates_nothing_is_kept() -> None:
    none = torch.zeros(4, dtype=torch.bool)
    assert not smallest_losses(torch.rand(4), none, remaining(none, 0.5)).any()


@settings(max_examples=60, deadline=None)
@given(VALUES, st.integers(0, 4), st.integers(0, 2**31 - 1))
def test_each_class_has_its_own_smallest(values: list[int], count: int, seed: int) -> None:
    losses = np.array(values, dtype=np.float32)
    labels = np.random.default_rng(seed).integers(-1, 3, len(values))
    expected = np.zeros(len(values), dtype=bool)
    for c in range(3):
        ranked = sorted(np.flatnonzero(labels == c), key=lambda place: (losses[place], place))
        expected[ranked[:count]] = True
    found = smallest_of_class(torch.tensor(losses), torch.tensor(labels), 3, count)
    assert found.tolist() == expected.tolist()


def test_classes_may_have_quotas_of_their_own() -> None:
    losses, labels = torch.tensor([3.0, 1, 2, 5, 4]), torch.tensor([0, 0, 0, 1, 1])
    found = smallest_of_class(losses, labels, 3, torch.tensor([2, 1, 7]))
    assert found.tolist() == [False, True, True, False, True]
