"""k and the end of warm-up from N, K and the noise: the formula against counting, and what is estimated."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from graphclean.config import Config, GraphSettings, apply_settings
from graphclean.errors import InputError
from graphclean.graph import GraphCleaner, knn_graph, nearest_neighbors
from graphclean.graph.votes import (
    RISK,
    choose_k,
    estimate_purity,
    estimate_votes,
    most_neighbors,
    votes_needed,
)
from graphclean.methods import build_method
from graphclean.training import EpochReport
from tests.builders import assert_same_tensors
from tests.training.test_trainer import TINY, ngc, trainer

pytestmark = pytest.mark.usefixtures("one_thread")

AUTO = GraphSettings(k="auto")


def test_votes_by_hand() -> None:
    """Ten classes, half of the neighbors of the class, nine of twenty labels wrong: a = 0.325, b = 0.075."""
    expected = 2 * math.log(10 / RISK) * 0.4 / 0.25**2
    assert votes_needed(0.45, 0.5, 10) == pytest.approx(expected)
    assert votes_needed(0.9, 0.5, 10) == math.inf, "every label is as likely as any other"
    assert votes_needed(0.2, 0.0, 10) == math.inf
    assert votes_needed(0.0, 1.0, 2) == pytest.approx(2 * math.log(2 / RISK))


@pytest.mark.parametrize(
    ("noise", "purity", "n_classes"), [(0.45, 0.5, 10), (0.72, 0.8, 10), (0.5, 0.4, 100)]
)
def test_so_many_votes_tell_the_class_but_for_the_risk(noise: float, purity: float, n_classes: int) -> None:
    """Drawn votes: the right label leads but in a share of δ, and a tenth of them would not do."""
    rng = np.random.default_rng(0)
    p = np.full(n_classes, purity * noise / (n_classes - 1) + (1 - purity) / n_classes)
    p[0] = purity * (1 - noise) + (1 - purity) / n_classes
    needed = votes_needed(noise, purity, n_classes)
    wrong = {}
    for votes in (math.ceil(needed), math.ceil(needed / 10)):
        counts = rng.multinomial(votes, p, 4000)
        wrong[votes] = float((counts[:, 0] <= counts[:, 1:].max(1)).mean())
    assert wrong[math.ceil(needed)] < RISK
    assert wrong[math.ceil(needed / 10)] > RISK


@pytest.mark.parametrize(
    ("n", "n_classes", "most"),
    [(70_000, 10, 200), (50_000, 100, 100), (1200, 8, 30), (100, 10, 10), (6, 3, 10)],
)
def test_k_is_between_what_holds_classes_together_and_a_part_of_a_class(
    n: int, n_classes: int, most: int
) -> None:
    assert most_neighbors(n, n_classes) == most
    assert choose_k(math.inf, n, n_classes, 0.5) == most
    assert choose_k(1.0, n, n_classes, 0.5) == min(30, most)


def test_more_noise_takes_more_neighbors() -> None:
    """CIFAR-10's cells, with features whose neighbors are of the class in seven of ten cases."""
    found = [choose_k(votes_needed(0.9 * rate, 0.7, 10), 50_000, 10, 0.5) for rate in (0.2, 0.5, 0.8, 0.9)]
    assert found[:2] == [30, 30]
    assert 30 < found[2] < found[3] < 200
    reach = [choose_k(votes_needed(0.72, 0.7, 10), 50_000, 10, alpha) for alpha in (0.0, 0.5)]
    assert reach[0] > reach[1], "without propagation only the neighbors themselves count"


@pytest.mark.parametrize(("rate", "spread"), [(0.0, 0.5), (0.5, 0.5), (0.5, 1.5), (0.8, 0.5)])
def test_noise_and_purity_are_seen_in_the_graph(rate: float, spread: float) -> None:
    """On clusters near and apart: what is estimated is near what is, and so are the votes."""
    generator = torch.Generator().manual_seed(1)
    truth = torch.arange(3000) % 6
    z = torch.randn(6, 6, generator=generator)[truth] + spread * torch.randn(3000, 6, generator=generator)
    drawn = torch.rand(3000, generator=generator) < rate
    labels = torch.where(drawn, torch.randint(0, 6, (3000,), generator=generator), truth)
    graph = knn_graph(nearest_neighbors(z, 30))
    rows = torch.repeat_interleave(torch.arange(3000), 30)
    pure = float((truth[rows] == truth[graph.col_indices()]).double().mean())
    purity = (pure - 1 / 6) / (1 - 1 / 6)
    noise = float((labels != truth).double().mean())
    assert estimate_purity(labels, graph, noise, 6) == pytest.approx(purity, abs=0.05)
    cleaner = GraphCleaner(labels, 6, AUTO)
    cleaner.step(z, torch.zeros(3000, 6))
    assert cleaner.votes == pytest.approx(votes_needed(noise, purity, 6), rel=0.5)
    assert cleaner.k == choose_k(cleaner.votes, 3000, 6, 0.5)


def test_without_labels_nothing_is_known() -> None:
    graph = knn_graph(nearest_neighbors(torch.randn(20, 3, generator=torch.Generator().manual_seed(0)), 4))
    unlabeled = torch.full((20,), -1)
    assert estimate_votes(torch.full((20, 3), 1 / 3), unlabeled, graph) == math.inf
    assert estimate_votes(torch.ones(20, 1), torch.zeros(20).long(), graph) == math.inf
    assert estimate_purity(torch.zeros(20).long(), graph, 0.0, 3) == 0, "one label alone tells nothing"


def test_the_chosen_k_is_part_of_the_state() -> None:
    generator = torch.Generator().manual_seed(3)
    truth = torch.arange(800) % 4
    z = torch.randn(4, 5, generator=generator)[truth] * 2 + torch.randn(800, 5, generator=generator)
    logits = torch.zeros(800, 4)
    straight = GraphCleaner(truth, 4, AUTO)
    assert straight.k == 40
    straight.step(z, logits)
    assert straight.k == 30
    resumed = GraphCleaner(truth, 4, AUTO)
    resumed.load_state_dict(straight.state_dict())
    assert resumed.k == 30
    assert_same_tensors(straight.step(z, logits), resumed.step(z, logits))
    assert "k" not in GraphCleaner(truth, 4, GraphSettings(k=5)).state_dict()


@pytest.mark.parametrize(("suffices", "longest"), [(True, 1), (False, 3)])
def test_warm_up_ends_when_neighbors_suffice_and_no_later_than_a_tenth(suffices: bool, longest: int) -> None:
    method = ngc(warmup_epochs="auto", graph=AUTO)
    made, warmup = trainer(dataclasses.replace(TINY, epochs=30), method, n=96), list[bool]()
    method.cleaner.__class__ = type("Told", (GraphCleaner,), {"suffices": suffices})

    def keep(report: EpochReport, _: object) -> None:
        warmup.append(report.own["warmup"])
        assert report.own["next_k"] == method.cleaner.k
        if len(warmup) == 5:
            raise StopIteration

    with pytest.raises(StopIteration):
        made.train(on_epoch=keep)
    assert warmup == [epoch < longest for epoch in range(5)]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("graph.k=0", "k must be auto, or a whole number of at least 1"),
        ("graph.k=many", "'many' is not a whole number or auto"),
        ("graph.eta=2", "eta must be from 0 to 1, or auto"),
        ("graph.eta=Auto", "'Auto' is not a number or auto"),
        ("method.warmup_epochs=2.5", "is not a whole number or auto"),
    ],
)
def test_refused(setting: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_method(apply_settings(Config(), [setting]))
    kept = apply_settings(Config(), ["graph.k=auto", "graph.eta=auto", "method.warmup_epochs=auto"])
    assert (kept.graph.k, kept.graph.eta) == ("auto", "auto")
    build_method(kept)
