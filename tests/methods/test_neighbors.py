"""Votes of neighbors against a plain count, and by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphclean.methods.blocks.neighbors import average_neighbors, balanced_votes, fitting_k

LINE = torch.tensor([[1.0, 0.0], [1.0, 0.1], [1.0, 0.3], [0.0, 1.0], [0.1, 1.0]])
"""Three points side by side, and two elsewhere."""


def rank(z: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k nearest of each by cosine, and their cosines."""
    unit = z / np.linalg.norm(z, axis=1, keepdims=True)
    cosine = unit @ unit.T
    np.fill_diagonal(cosine, -2)
    order = np.argsort(-cosine, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(cosine, order, 1)


def test_votes_by_hand() -> None:
    """Class 0 has three samples and class 1 two, so that a vote for 1 counts for one and a half for 0."""
    labels = torch.tensor([0, 1, 0, 1, 0])
    found = balanced_votes(LINE, labels, 2, 2)
    third, half = 1 / 3, 1 / 2
    expected = torch.tensor([[third, half], [2 * third, 0], [third, half], [2 * third, 0], [third, half]])
    torch.testing.assert_close(found, expected / expected.sum(1, keepdim=True))


def test_a_label_that_is_missing_has_no_vote_and_takes_none_away() -> None:
    labels = torch.tensor([0, -1, 1, -1, -1])
    found = balanced_votes(LINE, labels, 2, 2)
    assert found[0].tolist() == [0, 1]
    assert found[2].tolist() == [1, 0]
    assert balanced_votes(LINE, torch.full((5,), -1), 2, 2).tolist() == [[0, 0]] * 5


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), k=st.integers(1, 12))
def test_votes_are_those_of_a_plain_count(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    z, labels = rng.normal(size=(40, 5)), rng.integers(-1, 4, 40)
    found = balanced_votes(torch.as_tensor(z), torch.as_tensor(labels), 4, k).numpy()
    near, _ = rank(z, k)
    for i, row in enumerate(near):
        votes = np.array([(labels[row] == c).sum() / max((labels == c).sum(), 1) for c in range(4)])
        np.testing.assert_allclose(found[i], votes / votes.sum() if votes.any() else votes, atol=1e-6)


def test_soft_labels_are_averaged_by_similarity() -> None:
    rng = np.random.default_rng(3)
    z, soft = rng.normal(size=(30, 6)), rng.dirichlet(np.ones(4), 30)
    found = average_neighbors(torch.as_tensor(z), torch.as_tensor(soft), 7, 0.3).numpy()
    near, cosine = rank(z, 7)
    weights = np.exp(cosine / 0.3)
    expected = np.einsum("nk,nkc->nc", weights / weights.sum(1, keepdims=True), soft[near])
    np.testing.assert_allclose(found, expected, atol=1e-12)
    np.testing.assert_allclose(found.sum(1), 1)


def test_within_blocks_that_are_apart_soft_labels_become_the_blocks_own() -> None:
    """On two blocks, each of equal points, all that a block's points have is the mean over the others."""
    z = torch.tensor([[1.0, 0.0]] * 4 + [[0.0, 1.0]] * 4)
    soft = torch.eye(2).repeat_interleave(4, 0)
    assert torch.equal(average_neighbors(z, soft, 3, 0.3), soft)


@pytest.mark.parametrize(
    ("k", "n", "n_classes", "expected"),
    [(200, 50_000, 10, 200), (200, 50_000, 100, 200), (200, 1200, 8, 75), (200, 5, 10, 1), (3, 5000, 2, 3)],
)
def test_no_more_neighbors_than_suit_the_set(k: int, n: int, n_classes: int, expected: int) -> None:
    assert fitting_k(k, n, n_classes) == expected
