"""SSR: its decision by hand, its losses against their formulas, and what it leaves of noise."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from graphclean.methods.ssr import SSR, SSRPlus, SsrPlusSettings, SsrSettings
from graphclean.training import Trainer
from graphclean.training.batches import ResidentInputs
from graphclean.training.method import Batch
from graphclean.training.networks import Output
from tests.training.test_trainer import TINY, digits

pytestmark = pytest.mark.usefixtures("one_thread")

GIVEN = torch.tensor([0, 0, 0, 1, 1, 1, 1, 0, -1])
PLACES = torch.tensor([[1.0, 0.0]] * 4 + [[0.0, 1.0]] * 5)
"""The first four lie together and the last five: 3 and 7 have the label of the other place."""


def start(p: torch.Tensor, settings: SsrSettings | None = None, decided: Any = None) -> tuple[SSR, Any]:
    """The method on `GIVEN`, and a run whose network says `p` and puts samples at `PLACES`."""
    run: Any = SimpleNamespace(given=GIVEN, n_classes=2, device=torch.device("cpu"), decided=decided)
    run.generator = torch.Generator().manual_seed(0)
    run.new_network = nn.Identity
    run.embed = lambda **asked: Output(p.log(), PLACES, PLACES) if asked["weak"] and asked["features"] else 0
    run.shuffle = lambda: torch.randperm(9, generator=run.generator).view(3, 3)
    run.views = lambda inputs: torch.cat([torch.full_like(inputs, torch.nan), inputs])
    run.forward = lambda *batches: [Output(batch, batch, batch) for batch in batches]
    method = SSR(settings if settings is not None else SsrSettings(k=100))
    method.setup(run)
    return method, run


def test_neighbors_select_and_the_network_relabels_where_it_is_sure() -> None:
    """k = 9 / 2 / 2 classes = 2 neighbors, which agree with each label but those of 3 and 7."""
    unsure = torch.full((9, 2), 0.5)
    method, run = start(unsure)
    labels, selected = method.decide(run)
    assert labels[:8].tolist() == GIVEN[:8].tolist()
    assert selected.tolist() == [True, True, True, False, True, True, True, False, False]
    sure = unsure.clone()
    sure[3] = torch.tensor([0.95, 0.05])
    sure[7] = torch.tensor([0.15, 0.85])  # not sure enough
    sure[8] = torch.tensor([0.05, 0.95])  # had no label
    method, run = start(sure)
    labels, selected = method.decide(run)
    assert labels.tolist() == [0, 0, 0, 0, 1, 1, 1, 0, 1]
    assert selected.tolist() == [True] * 7 + [False, True]
    # From the given labels again: nothing of it is kept once the network is unsure.
    run.embed = start(unsure)[1].embed
    assert method.decide(run)[0][:8].tolist() == GIVEN[:8].tolist()


def test_what_people_decided_stands() -> None:
    decided = torch.full((9,), -1)
    decided[3], decided[4] = 1, 2
    method, run = start(torch.full((9, 2), 0.5), decided=decided)
    labels, selected = method.decide(run)
    assert (labels[3], selected[3], selected[4]) == (1, True, False)


def test_a_smaller_share_of_the_votes_may_do() -> None:
    """With θ_s = 0 every label stands; that of none has no part in it."""
    method, run = start(torch.full((9, 2), 0.5), SsrSettings(theta_s=0.0))
    assert method.decide(run)[1].tolist() == [True] * 8 + [False]


def test_classes_are_trained_on_equally_often() -> None:
    method, run = start(torch.full((9, 2), 0.5))
    (batches,) = method.begin_epoch(run)
    assert batches.shape == (3, 3)
    assert method.selected[batches].all()
    counts = torch.bincount(method.labels[batches.flatten()])
    assert counts.tolist() in ([4, 5], [5, 4])


def test_the_loss_is_mixup_of_strong_views_under_the_labels_decided() -> None:
    """Its λ leans to the image itself, so that the loss is that of mixup by the larger of λ and 1 − λ."""
    method, run = start(torch.full((9, 2), 0.5))
    index = torch.tensor([0, 1, 4, 5])
    logits = torch.randn(4, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    mixes: list[torch.Tensor] = []

    def forward(batch: torch.Tensor) -> list[Output]:
        mixes.append(batch)
        return [Output(batch, batch)]

    run.forward = forward
    loss = method.losses(run, Batch(index, logits, GIVEN[index]))["ce"]
    (mixed,) = mixes
    both, targets = logits.repeat(2, 1), GIVEN[index].repeat(2)
    # λ and the partners, found from what was mixed: each row is on a line between two of the eight.
    generator = torch.Generator().manual_seed(0)
    first, second = (torch._standard_gamma(torch.tensor(4.0), generator=generator) for _ in range(2))
    lam = float(torch.maximum(first, second) / (first + second))
    partner = torch.randperm(8, generator=generator)
    assert 0.5 <= lam <= 1
    torch.testing.assert_close(mixed, lam * both + (1 - lam) * both[partner])
    log_p = mixed.log_softmax(1)
    own, other = (-log_p[torch.arange(8), of] for of in (targets, targets[partner]))
    torch.testing.assert_close(loss, (lam * own + (1 - lam) * other).mean())


def test_an_empty_selection_leaves_no_loss() -> None:
    method, run = start(torch.full((9, 2), 0.5))
    method.selected = torch.zeros(9, dtype=torch.bool)
    found = method.losses(run, Batch(torch.arange(4), torch.randn(4, 2), GIVEN[:4]))
    assert float(found["ce"]) == 0
    method.decide = lambda _: (method.labels, method.selected)  # type: ignore[method-assign]
    (batches,) = method.begin_epoch(run)
    assert sorted(batches.flatten().tolist()) == list(range(9)), "the batch statistics see real batches"


def test_consistency_asks_of_the_strong_view_what_the_weak_one_is() -> None:
    pixels, labels, _ = digits(64)
    method = SSRPlus(SsrPlusSettings())
    Trainer(ResidentInputs(pixels), labels, 8, TINY, method)
    features = torch.randn(2, 16, 128, requires_grad=True)
    strong, weak = features
    loss = method.consistency(strong, weak)
    (gradient,) = torch.autograd.grad(loss, features)
    assert gradient[0].any()
    assert not gradient[1].any()
    foretold = method.heads["predictor"](method.heads["projector"](strong))
    target = method.heads["projector"](weak)
    cosines = [a @ b / (a.norm() * b.norm()) for a, b in zip(foretold, target, strict=True)]
    torch.testing.assert_close(loss, 1 - torch.stack(cosines).mean())


@pytest.mark.slow
def test_most_wrong_labels_of_digits_are_corrected_or_left_out() -> None:
    pixels, labels, truth = digits(800, noise=0.4)
    known = truth < 8
    pixels, labels, truth = pixels[known], labels[known], truth[known]
    method = SSR()
    Trainer(ResidentInputs(pixels), labels, 8, TINY, method).train()
    right = (method.labels == truth)[method.selected].float().mean()
    assert (labels == truth).float().mean() < 0.7
    assert right > 0.9
    assert method.selected.float().mean() > 0.5


@pytest.mark.parametrize(
    "bad", [{"theta_r": -0.1}, {"theta_s": 1.1}, {"k": 0}, {"mixup_alpha": 0.0}, {"lambda_consistency": -1.0}]
)
def test_settings_out_of_range_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        SsrPlusSettings(**bad)
