"""UNICON: its divergence, its selection and its losses against their formulas."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from scipy.special import softmax

from graphclean.methods.unicon import Unicon, UniconSettings, jensen_shannon
from graphclean.training.networks import Ensemble, Output
from tests.methods.test_conditions import given, make
from tests.methods.test_dividemix import SLOPE, K, N, batch_of, start

pytestmark = pytest.mark.usefixtures("one_thread")


def test_the_divergence_is_scipys() -> None:
    p = torch.randn(20, K, generator=torch.Generator().manual_seed(0)).mul(3).softmax(1)
    labels = torch.arange(20) % K
    p[0], p[1] = torch.eye(K)[0], torch.eye(K)[0]  # equal to its label, and disjoint from it
    expected = [jensenshannon(row, np.eye(K)[y]) ** 2 for row, y in zip(p.double(), labels, strict=True)]
    found = jensen_shannon(p.double(), labels)
    np.testing.assert_allclose(found, expected, atol=1e-7)
    assert found[:2].tolist() == pytest.approx([0, np.log(2)])


def judged(run: Any) -> tuple[np.ndarray, np.ndarray]:
    """Every label's divergence, and which labels are taken."""
    y = run.given.numpy()
    p = np.mean([softmax(slope * run.inputs.double().numpy(), 1) for slope in SLOPE.values()], 0)
    d = np.array([jensenshannon(row, np.eye(K)[label]) ** 2 for row, label in zip(p, y, strict=True)])
    known = y >= 0
    count = max(1, round((d[known] < d[known].mean()).mean() * known.sum() / K))
    taken = np.zeros(N, bool)
    for label in range(K):
        mine = np.flatnonzero(y == label)
        taken[mine[d[mine].argsort()][:count]] = True
    return d, taken


def test_as_many_labels_of_each_class_are_taken() -> None:
    method = Unicon()
    run = start(method)
    d, taken = judged(run)
    x, u = method.begin_epoch(run)
    assert sorted(set(x.flatten().tolist())) == np.flatnonzero(taken).tolist()
    assert not set(u.flatten().tolist()) & set(x.flatten().tolist())
    w = np.where(d < 0.5, 1, 1 - d) * (run.given.numpy() >= 0)
    np.testing.assert_allclose(method.clean, [w, w], atol=1e-5)
    assert method.selection(run).selected.tolist() == taken.tolist()
    counts = torch.bincount(run.given[method.selected], minlength=K)
    assert counts.min() == counts.max() > 1


def test_labels_are_judged_again_before_each_network() -> None:
    method = Unicon()
    run = start(method)
    first = method.begin_epoch(run)[0]
    run.part, run.inputs = 1, run.inputs.flip(0)
    run.embed = lambda name: Output(SLOPE[name] * run.inputs, run.inputs)
    assert (
        sorted(set(method.begin_epoch(run)[0].flatten().tolist())) == np.flatnonzero(judged(run)[1]).tolist()
    )
    assert not torch.equal(first, method.selected)


def test_half_of_all_samples_come_as_unlabeled_ones() -> None:
    """64 / (2R) of them with 64 labeled ones, which are R of all; in eighths, and at most 128."""
    method = Unicon()
    for share, expected in ((0.5, 64), (0.8, 40), (0.4, 80), (0.3, 104), (0.1, 128), (1.0, 32)):
        labeled = torch.arange(1000) < 1000 * share
        assert method.unlabeled_size(labeled, 64) == expected
    assert method.unlabeled_size(torch.ones(3, dtype=torch.bool), 1) == 1


def test_labels_are_guessed_by_weak_views_and_strong_ones_are_trained_on() -> None:
    method = Unicon(UniconSettings(mixup_alpha=0))
    run = start(method)
    method.steps.fill_(1)
    run.views = lambda inputs: torch.cat([inputs, inputs + 100])
    seen: list[tuple[str, torch.Tensor, bool]] = []

    def forward(*batches: torch.Tensor, network: str) -> list[Output]:
        seen.extend((network, batch, torch.is_grad_enabled()) for batch in batches)
        return [Output(batch, torch.nn.functional.normalize(batch, dim=1)) for batch in batches]

    run.forward = forward
    x, u = batch_of(run, [1, 2]), batch_of(run, [3, 4, 5])
    found = method.losses(run, x, u)
    weak = [batch.inputs.repeat(2, 1) for batch in (x, u)]
    expected = [
        ("main", weak[0], False),
        ("main", weak[1], False),
        ("second", weak[1], False),
        ("main", torch.cat(weak) + 100, True),
        ("main", weak[1] + 100, True),
    ]
    assert len(seen) == len(expected)
    for ours, theirs in zip(seen, expected, strict=True):
        assert ours[0] == theirs[0]
        assert torch.equal(ours[1], theirs[1])
        assert ours[2] == theirs[2]
    # The contrast, by hand: each view against the other five, of which one is its own other view.
    z = torch.nn.functional.normalize(weak[1] + 100, dim=1).double() / 0.05
    similarity = z @ z.T * 0.05
    terms = []
    for i in range(6):
        others = [j for j in range(6) if j != i]
        terms.append(similarity[i, others].logsumexp(0) - similarity[i, (i + 3) % 6])
    assert float(found["contrast"]) == pytest.approx(float(torch.stack(terms).mean()), rel=1e-3)
    assert method.weights["contrast"] == 0.025
    assert method.weights["consistency"] == 30


def test_both_networks_predict() -> None:
    assert isinstance(make(Unicon(), given()).train().network, Ensemble)


@pytest.mark.parametrize("bad", [{"lambda_contrast": -1.0}, {"tau": 0.0}, {"lambda_u": -1.0}])
def test_settings_out_of_range_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(bad))} must be"):
        UniconSettings(**bad)
