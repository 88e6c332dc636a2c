"""mixup against its formulas, and which samples are mixed with which."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from torch import nn

from graphclean.methods.blocks.supervised import given_losses, labeled_mean, labeled_partners
from graphclean.methods.mixup import Mixup, MixupSettings
from graphclean.training.augment import draw_beta
from graphclean.training.method import Batch
from graphclean.training.networks import Output

N, K = 10, 4


def run_of_logits(seed: int = 0) -> Any:
    """A run whose network takes its inputs for logits."""
    run: Any = SimpleNamespace(n_classes=K, generator=torch.Generator().manual_seed(seed))
    run.new_network = nn.Identity
    run.weak_view = lambda inputs: inputs
    run.forward = lambda *batches: [Output(logits=batch, z=batch) for batch in batches]
    return run


def batch_of(given: list[int], seed: int = 0) -> Batch:
    logits = torch.randn(len(given), K, generator=torch.Generator().manual_seed(seed)) * 3
    return Batch(torch.arange(len(given)), logits, torch.tensor(given))


@pytest.mark.parametrize("alpha", [0.0, 1.0, 32.0])
def test_the_loss_is_that_of_the_formula(alpha: float) -> None:
    given = [0, 3, -1, 1, 2, 2, -1, 0, 1, 3]
    method, batch = Mixup(MixupSettings(alpha)), batch_of(given)
    found = method.losses(run_of_logits(), batch)
    lam, partner = 1.0, np.arange(N)
    if alpha > 0:
        generator = torch.Generator().manual_seed(0)
        lam = float(draw_beta(alpha, alpha, generator))
        partner = labeled_partners(batch.given >= 0, generator).numpy()
    images = batch.inputs.double().numpy()
    log_p = log_softmax(lam * images + (1 - lam) * images[partner], axis=1)
    expected = [
        -lam * log_p[i, label] - (1 - lam) * log_p[i, given[partner[i]]]
        for i, label in enumerate(given)
        if label >= 0
    ]
    assert set(found) == {"ce"}
    assert float(found["ce"]) == pytest.approx(np.mean(expected), rel=1e-5)


def test_labeled_samples_are_mixed_with_each_other_alone() -> None:
    labeled = torch.tensor([True, False, True, True, False, True, True, True])
    generator, seen = torch.Generator().manual_seed(0), set()
    for _ in range(50):
        partner = labeled_partners(labeled, generator)
        assert sorted(partner.tolist()) == list(range(8)), "a permutation"
        assert bool(labeled[partner[labeled]].all())
        assert torch.equal(partner[~labeled], torch.tensor([1, 4]))
        seen.add(int(partner[0]))
    assert seen == {0, 2, 3, 5, 6, 7}


@pytest.mark.parametrize("labels", [1, 0])
def test_few_labels_leave_everyone_in_place(labels: int) -> None:
    labeled = torch.arange(5) < labels
    assert labeled_partners(labeled, torch.Generator()).tolist() == list(range(5))


def test_unlabeled_samples_change_nothing() -> None:
    given = [0, 3, -1, 1]
    batch = batch_of(given)
    changed = Batch(batch.index, batch.inputs.clone(), batch.given)
    changed.inputs[2] += 5
    losses = [Mixup().losses(run_of_logits(), each)["ce"] for each in (batch, changed)]
    assert torch.equal(*losses)


def test_without_labels_the_loss_is_zero() -> None:
    assert Mixup().losses(run_of_logits(), batch_of([-1, -1]))["ce"] == 0


def test_means_are_weighted_by_their_mask() -> None:
    values = torch.tensor([1.0, 2.0, 6.0])
    assert labeled_mean(values, torch.tensor([True, False, True])) == 3.5
    assert labeled_mean(values, torch.zeros(3, dtype=torch.bool)) == 0


def test_losses_are_in_float32_at_least() -> None:
    for given, kept in ((torch.bfloat16, torch.float32), (torch.float64, torch.float64)):
        assert given_losses(torch.zeros(2, K, dtype=given), torch.tensor([0, -1])).dtype == kept


def test_settings_out_of_range_are_refused() -> None:
    for bad in (-0.1, float("nan")):
        with pytest.raises(ValueError, match="mixup_alpha must be at least 0"):
            MixupSettings(bad)
