"""Labels that neighbors got wrong together: the graph step with the class-dependent noise model."""

from dataclasses import replace

import pytest
import torch

from graphclean.config import GraphSettings
from graphclean.graph import GraphCleaner
from graphclean.graph.selection import confident_labels

OFF = GraphSettings(k=10, eta=0.8, leave_one_out=True)
ON = replace(OFF, class_dependent_noise=True)


def clouds(n: int, seed: int, flips: dict[int, int], rate: float) -> tuple[torch.Tensor, ...]:
    """Five clouds of points, labels of which a share is resampled or flipped, and the truth."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.arange(n) % 5
    z = 2.5 * torch.eye(5, 8)[truth] + 0.6 * torch.randn(n, 8, generator=generator)
    noisy = torch.tensor([flips.get(int(c), int(c)) for c in truth])
    if not flips:
        noisy = torch.randint(0, 5, (n,), generator=generator)
    return z, torch.where(torch.rand(n, generator=generator) < rate, noisy, truth), truth


def test_the_most_likely_class_is_confident_if_it_was_given_or_passes_eta() -> None:
    soft = torch.tensor([[0.3, 0.5, 0.2], [0.3, 0.5, 0.2], [0.05, 0.05, 0.9], [0.4, 0.3, 0.3], [1, 1, 1.0]])
    soft = soft / soft.sum(1, keepdim=True)
    labels, confident = confident_labels(soft, torch.tensor([0, 1, 0, -1, 0]), eta=0.8, accept="argmax")
    assert labels.tolist() == [1, 1, 2, 0, 0]
    assert confident.tolist() == [False, True, True, False, False]


@pytest.mark.parametrize("seed", range(3))
def test_labels_that_neighbors_got_wrong_together_are_put_right(seed: int) -> None:
    z, given, truth = clouds(1000, seed, {0: 1, 3: 4, 4: 3}, 0.4)
    logits = torch.zeros(1000, 5)
    plain, corrected = (GraphCleaner(given, 5, s).step(z, logits) for s in (OFF, ON))
    right = [float((cleaned.labels == truth).float().mean()) for cleaned in (plain, corrected)]
    assert right[0] < 0.82
    assert right[1] > right[0] + 0.1
    chosen = corrected.selected
    assert chosen.sum() > plain.selected.sum() + 50
    assert (corrected.labels == truth)[chosen].float().mean() > 0.99
    torch.testing.assert_close(corrected.soft_labels.sum(1), torch.ones(1000))


@pytest.mark.parametrize("rate", [0.0, 0.5, 0.7])
def test_without_class_dependent_noise_nothing_changes(rate: float) -> None:
    z, given, _ = clouds(1000, 1, {}, rate)
    logits = torch.randn(1000, 5, generator=torch.Generator().manual_seed(0))
    cleaners = [GraphCleaner(given, 5, s) for s in (OFF, ON)]
    for _ in range(2):
        plain, corrected = (cleaner.step(z, logits) for cleaner in cleaners)
        assert torch.equal(plain.soft_labels, corrected.soft_labels)
        assert torch.equal(plain.selected, corrected.selected)


def test_what_was_corrected_is_not_corrected_again() -> None:
    """Every step starts from the given labels: on the same points it finds the same."""
    z, given, _ = clouds(1000, 2, {0: 1, 3: 4, 4: 3}, 0.4)
    cleaner = GraphCleaner(given, 5, ON)
    first = cleaner.step(z, torch.zeros(1000, 5))
    again = cleaner.step(z, torch.randn(1000, 5))
    assert torch.equal(first.soft_labels, again.soft_labels)
    assert torch.equal(first.selected, again.selected)


def test_unlabeled_and_lonely_samples_are_judged_by_what_there_is() -> None:
    z, given, truth = clouds(1000, 3, {0: 1, 3: 4, 4: 3}, 0.4)
    given = given.clone()
    given[:50] = -1
    z = torch.cat([z, torch.zeros(1, 8)])  # like nothing: no neighbor counts
    cleaned = GraphCleaner(torch.cat([given, torch.tensor([0])]), 5, ON).step(z, torch.zeros(1001, 5))
    assert (cleaned.labels[:50] == truth[:50]).float().mean() > 0.9
    assert cleaned.selected[:50].any()
    torch.testing.assert_close(cleaned.soft_labels[-1], torch.full((5,), 0.2))
    assert not cleaned.confident[-1]
