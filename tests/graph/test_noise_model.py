import dataclasses

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array

from graphclean.cleaning import label_model
from graphclean.config import GraphSettings
from graphclean.graph import GraphCleaner
from graphclean.graph.noise_model import (
    TEMPERATURES,
    find_preference,
    find_shared_mistakes,
    fit_mistakes,
    most_confident,
    unmix,
)
from graphclean.graph.selection import judge_confidence

OFF = GraphSettings(k=10, eta=0.8, evidence="leave-own-out")
ON = dataclasses.replace(OFF, unmix=True)


def clouds(n: int, seed: int, flips: dict[int, int], rate: float) -> tuple[torch.Tensor, ...]:
    """Five clouds of points, labels of which a share is drawn anew or flipped, and the truth."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.arange(n) % 5
    z = 2.5 * torch.eye(5, 8)[truth] + 0.6 * torch.randn(n, 8, generator=generator)
    noisy = torch.tensor([flips.get(int(c), int(c)) for c in truth])
    if not flips:
        noisy = torch.randint(0, 5, (n,), generator=generator)
    return z, torch.where(torch.rand(n, generator=generator) < rate, noisy, truth), truth


def mixed(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Evidence of neighbours of which four in ten of class 0 are called 1, as of 3 and 4 in turn; labels."""
    rng = np.random.default_rng(seed)
    T = np.eye(5)
    T[0, :2], T[3, 3:], T[4, 3:] = (0.6, 0.4), (0.6, 0.4), (0.4, 0.6)
    truth = rng.integers(0, 5, n)
    pure = np.array([rng.dirichlet(0.3 + 6 * np.eye(5)[c]) for c in truth])
    evidence = np.array([rng.multinomial(12, row @ T) for row in pure]) + rng.uniform(0.01, 0.1, (n, 5))
    labels = np.array([rng.choice(5, p=T[c]) for c in truth])
    return evidence / evidence.sum(1, keepdims=True), labels


def brute_fit(evidence: np.ndarray, labels: np.ndarray, undo: bool) -> tuple[np.ndarray, ...]:
    """T, t, the mean log-likelihood, and the posterior, a sample at a time."""
    n, k = evidence.shape
    guess, counts = evidence.argmax(1), np.zeros((k, k))
    for c in range(k):
        mine = sorted((i for i in range(n) if guess[i] == c), key=lambda i: -evidence[i].max())
        for rank, i in enumerate(mine):
            counts[c, labels[i]] += rank < 0.6 * len(mine)
    for _ in range(4):
        stay = np.trace(counts) / counts.sum()
        T = np.zeros((k, k))
        for c in range(k):
            prior = [stay if y == c else (1 - stay) / (k - 1) for y in range(k)]
            T[c] = (counts[c] + 2 * np.array(prior)) / (counts[c].sum() + 2)
        off = sorted(T[c, y] for c in range(k) for y in range(k) if c != y)
        P = np.eye(k)
        for c in range(k):
            usual = max(2 * off[(len(off) - 1) // 2], 3 / counts[c].sum())
            row = np.array([T[c, y] if y == c else max(T[c, y] - usual, 0) for y in range(k)])
            P[c] = row / row.sum() if undo else P[c]
        pi = np.zeros_like(evidence)
        for i, e in enumerate(evidence):
            pi[i] = e
            for _ in range(10):
                pi[i] = pi[i] * (P @ (e / (pi[i] @ P)))
        fits = []
        for t in TEMPERATURES:
            q = np.maximum(pi, 1e-6) ** t
            joint = q / q.sum(1, keepdims=True) * T[:, labels].T
            fits.append((np.log(joint.sum(1)).mean(), t, joint / joint.sum(1, keepdims=True)))
        likelihood, t, posterior = max(fits, key=lambda fit: fit[0])
        counts = np.array([[posterior[labels == y, c].sum() for y in range(k)] for c in range(k)])
    return T, np.array(t), np.array(likelihood), posterior


@pytest.mark.parametrize("undo", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_the_fit_equals_one_made_a_sample_at_a_time(seed: int, undo: bool) -> None:
    evidence, labels = mixed(300, seed)
    e, y = torch.as_tensor(evidence), torch.as_tensor(labels)
    found = fit_mistakes(e, y, undo=undo)
    T, t, likelihood, posterior = brute_fit(evidence, labels, undo)
    np.testing.assert_allclose(found.transition.numpy(), T, rtol=1e-9)
    assert found.temperature == t
    assert found.log_likelihood == pytest.approx(float(likelihood), rel=1e-9)
    np.testing.assert_allclose(found.posterior(e, y).numpy(), posterior, rtol=1e-7, atol=1e-12)


def test_every_class_has_its_confident_samples() -> None:
    top, guess = torch.tensor([9, 8, 7, 6, 5, 0.1, 0.3, 0.2]), torch.tensor([0, 0, 0, 0, 0, 2, 2, 2])
    assert sorted(most_confident(top, guess, 3).tolist()) == [0, 1, 2, 6, 7]


def test_preference_is_what_is_left_of_unequal_noise() -> None:
    transition = torch.tensor(
        [[0.58, 0.4, 0.01, 0.01], [0.03, 0.91, 0.03, 0.03], [0.02, 0.02, 0.94, 0.02], [0.01, 0.01, 0.2, 0.78]]
    )
    many = torch.full((4,), 1000.0)
    found = find_preference(transition, many)
    wanted = torch.tensor([[0.58, 0.36, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0.16, 0.78]])
    torch.testing.assert_close(found, wanted / wanted.sum(1, keepdim=True))
    few = torch.tensor([5.0, 1000.0, 1000.0, 1000.0])  # 0.4 of five samples are two: nothing to go by
    assert find_preference(transition, few)[0].tolist() == [1, 0, 0, 0]
    assert find_preference(transition, torch.full((4,), 4.0)) is None


def test_unmixing_is_that_of_the_verdicts() -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        preference = 0.5 * np.eye(6) + 0.5 * rng.dirichlet(np.full(6, 0.3), 6)
        evidence = rng.dirichlet(np.full(6, 0.5), 40)
        found = unmix(torch.as_tensor(evidence), torch.as_tensor(preference)).numpy()
        wanted = label_model.unmix(evidence, csr_array(preference))
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-15)


def test_the_likeliest_class_is_confident_if_it_was_given_or_passes_eta() -> None:
    soft = torch.tensor([[0.3, 0.5, 0.2], [0.3, 0.5, 0.2], [0.05, 0.05, 0.9], [0.4, 0.3, 0.3], [1, 1, 1.0]])
    soft = soft / soft.sum(1, keepdim=True)
    labels, confident = judge_confidence(soft, torch.tensor([0, 1, 0, -1, 0]), eta=0.8, accept="argmax")
    assert labels.tolist() == [1, 1, 2, 0, 0]
    assert confident.tolist() == [False, True, True, False, False]


@pytest.mark.parametrize("seed", range(3))
def test_labels_that_neighbours_got_wrong_together_are_put_right(seed: int) -> None:
    z, given, truth = clouds(1000, seed, {0: 1, 3: 4, 4: 3}, 0.4)
    logits = torch.zeros(1000, 5)
    plain, undone = (GraphCleaner(given, 5, s).step(z, logits) for s in (OFF, ON))
    right = [float((cleaned.labels == truth).float().mean()) for cleaned in (plain, undone)]
    assert right[0] < 0.82
    assert right[1] > right[0] + 0.1
    chosen = undone.selected
    assert chosen.sum() > plain.selected.sum() + 50
    assert (undone.labels == truth)[chosen].float().mean() > 0.99
    torch.testing.assert_close(undone.soft_labels.sum(1), torch.ones(1000))


@pytest.mark.parametrize("rate", [0.0, 0.5, 0.7])
def test_without_shared_mistakes_nothing_changes(rate: float) -> None:
    z, given, _ = clouds(1000, 1, {}, rate)
    logits = torch.randn(1000, 5, generator=torch.Generator().manual_seed(0))
    cleaners = [GraphCleaner(given, 5, s) for s in (OFF, ON)]
    for _ in range(2):
        plain, undone = (cleaner.step(z, logits) for cleaner in cleaners)
        assert torch.equal(plain.soft_labels, undone.soft_labels)
        assert torch.equal(plain.selected, undone.selected)


def test_what_was_undone_is_not_undone_again() -> None:
    """Every step starts from the given labels: on the same points it finds the same."""
    z, given, _ = clouds(1000, 2, {0: 1, 3: 4, 4: 3}, 0.4)
    cleaner = GraphCleaner(given, 5, ON)
    first = cleaner.step(z, torch.zeros(1000, 5))
    again = cleaner.step(z, torch.randn(1000, 5))
    assert torch.equal(first.soft_labels, again.soft_labels)
    assert torch.equal(first.selected, again.selected)


def test_unlabelled_and_lonely_samples_are_judged_by_what_there_is() -> None:
    z, given, truth = clouds(1000, 3, {0: 1, 3: 4, 4: 3}, 0.4)
    given = given.clone()
    given[:50] = -1
    z = torch.cat([z, torch.zeros(1, 8)])  # like nothing: no neighbour counts
    cleaned = GraphCleaner(torch.cat([given, torch.tensor([0])]), 5, ON).step(z, torch.zeros(1001, 5))
    assert (cleaned.labels[:50] == truth[:50]).float().mean() > 0.9
    assert cleaned.selected[:50].any()
    torch.testing.assert_close(cleaned.soft_labels[-1], torch.full((5,), 0.2))
    assert not cleaned.confident[-1]


def test_one_class_or_no_labels_share_no_mistakes() -> None:
    assert find_shared_mistakes(torch.ones(4, 1), torch.zeros(4, dtype=torch.long)) is None
    assert find_shared_mistakes(torch.full((4, 3), 1 / 3), torch.full((4,), -1)) is None
    assert find_shared_mistakes(torch.full((4, 3), 1 / 3), torch.tensor([0, 1, 2, 0])) is None


def test_labels_must_spread() -> None:
    with pytest.raises(ValueError, match="unmix needs correct"):
        GraphSettings(unmix=True, correct=False)
