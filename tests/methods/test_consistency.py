"""Consistency by positives alone: loss and gradient by hand, and what its predictor is trained by."""

import dataclasses

import numpy as np
import pytest
import torch

from graphclean.methods.blocks.consistency import Consistency
from graphclean.training import EpochReport
from tests.training.test_trainer import TINY, ngc, trainer

pytestmark = pytest.mark.usefixtures("one_thread")

SETTINGS = dataclasses.replace(TINY, lr=0.07, momentum=0.8, weight_decay=3e-4)


def by_hand(head: Consistency, of: np.ndarray, target: np.ndarray) -> float:
    """1 − mean cosine of the predictor's output, layer by layer in NumPy, and the other view."""
    first, norm, _, last = head.predictor
    hidden = of @ first.weight.detach().numpy().T
    hidden = (hidden - hidden.mean(0)) / np.sqrt(hidden.var(0) + norm.eps)
    hidden = np.maximum(hidden * norm.weight.detach().numpy() + norm.bias.detach().numpy(), 0)
    told = hidden @ last.weight.detach().numpy().T + last.bias.detach().numpy()
    cosines = (told * target).sum(1) / np.linalg.norm(told, axis=1) / np.linalg.norm(target, axis=1)
    return float(1 - cosines.mean())


def views() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    weak, strong = torch.randn(2, 7, 8, generator=generator, dtype=torch.float64)
    return weak, strong


def made() -> Consistency:
    torch.manual_seed(1)
    return Consistency(8, SETTINGS).double()


def test_loss_is_one_minus_the_mean_cosine_of_both_directions() -> None:
    head, (weak, strong) = made(), views()
    expected = (by_hand(head, weak.numpy(), strong.numpy()) + by_hand(head, strong.numpy(), weak.numpy())) / 2
    assert head(weak, strong).item() == pytest.approx(expected, abs=1e-12)


def test_gradient_flows_through_what_foretells_alone() -> None:
    """Central differences, with the view that is foretold held where it is."""
    head, (weak, strong) = made(), views()
    weak.requires_grad_()
    head(weak, strong).backward()  # type: ignore[no-untyped-call]
    assert weak.grad is not None
    start, target = weak.detach().numpy(), strong.numpy()
    for i, j in ((0, 0), (3, 5), (6, 7)):
        shifted = [start.copy() for _ in range(2)]
        shifted[0][i, j] += 1e-5
        shifted[1][i, j] -= 1e-5
        slope = (by_hand(head, shifted[0], target) - by_hand(head, shifted[1], target)) / 2e-5
        assert float(weak.grad[i, j]) == pytest.approx(slope / 2, abs=1e-8)


def test_the_predictor_has_its_own_optimizer_at_a_constant_rate() -> None:
    head = made()
    (group,) = head.optimizer().param_groups
    assert len(group["params"]) == len(list(head.parameters())) == 5
    assert (group["lr"], group["momentum"], group["weight_decay"]) == (0.07, 0.8, 3e-4)


def test_it_is_trained_next_to_the_other_losses_and_in_their_place() -> None:
    """At weight 0 there is no predictor; the network's first weights are the same with it and without."""
    first = {}
    for weight in (0.0, 1.0):
        method = ngc(warmup_epochs=1, lambda_consistency=weight, lambda_inst=1 - weight)
        run = trainer(dataclasses.replace(TINY, epochs=3), method, n=96)
        first[weight] = method.predictor().state_dict()["projector.weight"].clone()
        reports = list[EpochReport]()
        if method.consistency is None:
            assert weight == 0
            continue
        before = [value.clone() for value in method.consistency.parameters()]
        run.train(on_epoch=lambda report, _, kept=reports: kept.append(report))
        assert all(
            not torch.equal(*pair) for pair in zip(before, method.consistency.parameters(), strict=True)
        )
        found = [report.losses["consistency"] for report in reports]
        assert found[0] == 0, "not in warm-up"
        assert found[2] < found[1]
        assert reports[2].loss == pytest.approx(
            sum(value for name, value in reports[2].losses.items() if name != "inst"), abs=1e-5
        )
    assert torch.equal(first[0.0], first[1.0])
