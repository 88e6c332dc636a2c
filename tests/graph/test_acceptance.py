"""Acceptance of given labels by the estimated noise: exact rows, known transition matrices, properties."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphclean.config import Config, GraphSettings, apply_settings
from graphclean.config.settings import Accept
from graphclean.errors import InputError
from graphclean.graph import GraphCleaner, confident_labels
from graphclean.graph.acceptance import find_mistaken, find_mistakes, is_outdone
from graphclean.graph.noise_model import NoiseModel
from tests.graph.test_cleaner import blobs

N, K = 4000, 5
RULES: tuple[Accept, ...] = ("uniform", "auto")


def evidence_of(truth: torch.Tensor, transition: torch.Tensor, purity: float, seed: int) -> torch.Tensor:
    """What 200 neighbors say, a share `purity` of them of the sample's class, whose labels follow T."""
    generator = torch.Generator().manual_seed(seed)
    of = purity * transition[truth] + (1 - purity) * transition.mean(0)
    votes = torch.multinomial(of, 200, replacement=True, generator=generator)
    return torch.nn.functional.one_hot(votes, len(transition)).double().mean(1)


def sample(transition: torch.Tensor, seed: int, purity: float = 0.8) -> tuple[torch.Tensor, ...]:
    """Truth, labels drawn by T, and evidence from neighbors whose labels were drawn by T too."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.arange(N) % K
    labels = torch.multinomial(transition[truth], 1, generator=generator).squeeze(1)
    return truth, labels, evidence_of(truth, transition, purity, seed + 1)


def symmetric(rate: float) -> torch.Tensor:
    return (1 - rate) * torch.eye(K, dtype=torch.float64) + rate / K


def mistaken(rate: float) -> torch.Tensor:
    """Class 1 is taken for 0 and class 3 for 2 with probability `rate`."""
    transition = torch.eye(K, dtype=torch.float64)
    for true, taken in ((1, 0), (3, 2)):
        transition[true, true], transition[true, taken] = 1 - rate, rate
    return transition


@pytest.mark.parametrize(("rate", "bound"), [(0.2, 1 / 42), (0.5, 1 / 12), (0.9, 1 / 3.1)])
def test_one_over_k_is_about_the_level_for_half_of_the_labels(rate: float, bound: float) -> None:
    """A given label of ten is likelier than all other classes together from the level that is derived."""
    transition = (1 - rate) * torch.eye(10, dtype=torch.float64) + rate / 10
    model = NoiseModel(transition, torch.full((10,), 0.1, dtype=torch.float64), temperature=1.0)
    for share, likelier in ((0.96 * bound, False), (1.04 * bound, True)):
        row = torch.full((1, 10), (1 - share) / 9, dtype=torch.float64)
        row[0, 0] = share
        assert bool(model.posterior(row, torch.tensor([0])).classes[0, 0] > 0.5) is likelier


def test_a_label_is_compared_with_the_classes_mistaken_for_it_and_no_other() -> None:
    mistakes = torch.zeros(3, 3, dtype=torch.bool)
    mistakes[1, 0] = True  # class 1 is taken for 0
    posterior = torch.tensor([[0.3, 0.4, 0.3], [0.3, 0.2, 0.5], [0.3, 0.4, 0.3], [0.1, 0.2, 0.7]])
    assert is_outdone(posterior, torch.tensor([0, 0, 2, 1]), mistakes).tolist() == [True, False, False, False]


def test_mistakes_are_what_stands_out_of_the_transition_matrix() -> None:
    assert not find_mistakes(symmetric(0.5), torch.full((K,), 800.0)).any()
    found = find_mistakes(mistaken(0.4), torch.full((K,), 800.0))
    assert found.nonzero().tolist() == [[1, 0], [3, 2]]
    assert not find_mistakes(mistaken(0.4), torch.full((K,), 7.0)).any(), "3 of 7 samples say nothing"


@pytest.mark.parametrize("rate", [0.2, 0.5, 0.8, 0.9])
def test_random_noise_leaves_eq_3_as_it_is(rate: float) -> None:
    _, labels, evidence = sample(symmetric(rate), seed=3)
    assert not find_mistaken(evidence, labels).any()


@pytest.mark.parametrize("purity", [0.8, 0.95])
def test_mistaken_labels_are_found_where_eq_3_keeps_them(purity: float) -> None:
    truth, labels, evidence = sample(mistaken(0.4), seed=4, purity=purity)
    labels[::9] = -1
    wrong, right = (labels >= 0) & (labels != truth), labels == truth
    kept = confident_labels(evidence, labels, eta=1.0).confident
    assert kept[wrong].double().mean() > 0.9
    found = find_mistaken(evidence, labels)
    assert found[wrong].double().mean() > 0.8
    assert found[right].double().mean() < 0.02
    assert not found[labels < 0].any()


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 999), rate=st.floats(0, 0.6))
def test_it_lies_between_argmax_and_eq_3(seed: int, rate: float) -> None:
    """Whatever the noise: what argmax accepts it accepts, and nothing that Eq. 3 refuses."""
    _, labels, evidence = sample(mistaken(rate), seed, purity=0.3)
    labels[::7] = -1
    accepted = {}
    for rule in ("argmax", *RULES):
        out = confident_labels(evidence, labels, eta=1.0, accept=rule)
        accepted[rule] = out.confident & (out.labels == labels)
        assert not accepted[rule][::7].any()
    assert not (accepted["argmax"] & ~accepted["auto"]).any()
    assert not (accepted["auto"] & ~accepted["uniform"]).any()


def test_without_labels_or_classes_to_choose_from_nothing_is_mistaken() -> None:
    assert not find_mistaken(torch.ones(4, 1), torch.zeros(4).long()).any()
    assert not find_mistaken(torch.full((4, 2), 0.5), torch.full((4,), -1)).any()
    half = torch.tensor([[0.9, 0.1], [0.1, 0.9]]).repeat(20, 1)
    assert not find_mistaken(half.bfloat16(), torch.tensor([0, 1]).repeat(20)).any()


def test_the_cleaner_refuses_what_the_neighbors_share() -> None:
    """Clusters; four of ten of class 1 are labeled 0, which Eq. 3 alone finds confident."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.arange(800) % 8
    z = torch.randn(8, 8, generator=generator)[truth] * 3 + torch.randn(800, 8, generator=generator)
    labels = torch.where((truth == 1) & (torch.rand(800, generator=generator) < 0.4), 0, truth)
    wrong, kept = labels != truth, {}
    for accept in RULES:
        cleaner = GraphCleaner(labels, 8, GraphSettings(k=20, accept=accept, leave_one_out=True))
        cleaned = cleaner.step(z, torch.zeros(800, 8))
        kept[accept] = cleaned.confident & (cleaned.labels == labels)
    assert kept["uniform"][wrong].double().mean() > 0.9
    assert kept["auto"][wrong].double().mean() < 0.1
    assert kept["auto"][~wrong].double().mean() > 0.95
    alone = GraphCleaner(labels, 8, GraphSettings(k=20, accept="auto")).step(z, torch.zeros(800, 8))
    assert torch.equal(alone.soft_labels, cleaned.soft_labels), "a label must not confirm itself"
    with pytest.raises(InputError, match="accept=auto needs correct"):
        apply_settings(Config(), ["graph.accept=auto", "graph.correct=false"])


def test_labels_as_given_start_every_epoch_alike() -> None:
    z, labels, logits = blobs(60, 4, 0.4, 2)
    labels[5] = -1
    cleaner = GraphCleaner(labels, 4, GraphSettings(k=5, start="given"))
    memory = GraphCleaner(labels, 4, GraphSettings(k=5))
    first = cleaner.step(z, logits)
    assert torch.equal(first.soft_labels, memory.step(z, logits).soft_labels), "so does memory begin"
    assert torch.equal(cleaner.step(z, 5 * logits).soft_labels, first.soft_labels)
    assert not torch.equal(memory.step(z, 5 * logits).soft_labels, first.soft_labels)
