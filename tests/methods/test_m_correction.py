"""M-correction against its formulas, and the mixup that it is before labels are corrected."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from torch.nn.functional import cross_entropy

from graphclean.methods.blocks.beta_mixture import LossModel
from graphclean.methods.blocks.mixmatch import divergence_from_uniform
from graphclean.methods.blocks.supervised import given_losses, labeled_partners
from graphclean.methods.m_correction import (
    MCorrection,
    MCorrectionSettings,
    bootstrap,
    mixing_weight,
)
from graphclean.training import Trainer
from graphclean.training.augment import draw_beta
from graphclean.training.method import Batch, TrainerContext
from tests.methods.test_conditions import SHORT, given, make
from tests.methods.test_mixup import K, batch_of, run_of_logits

GIVEN = [0, 3, -1, 1, 2, 2, -1, 0, 1, 3]


class Judging(MCorrection):
    """Knows how noisy each label is, and what is predicted."""

    noisy = torch.linspace(0.1, 0.9, len(GIVEN))
    guess = torch.rand(len(GIVEN), K, generator=torch.Generator().manual_seed(3)).softmax(1)

    def _judge(self, *_: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return self.noisy, self.guess


def run_at(epoch: int, epochs: int = 300) -> Any:
    run = run_of_logits()
    run.epoch, run.settings = epoch, dataclasses.replace(SHORT, epochs=epochs)
    run.given, run.device = torch.tensor(GIVEN), torch.device("cpu")
    return run


@pytest.mark.parametrize(
    ("variant", "epoch"),
    [("m-dyr-h", 105), ("m-dyr-s", 299), ("md-dyr-sh", 105), ("md-dyr-sh", 109), ("md-dyr-sh", 110)],
)
def test_the_loss_is_that_of_the_formula(variant: Any, epoch: int) -> None:
    method, batch = Judging(MCorrectionSettings(variant)), batch_of(GIVEN)
    found = method.losses(run_at(epoch), batch)
    generator = torch.Generator().manual_seed(0)
    lam = float(draw_beta(32, 32, generator))
    partner = labeled_partners(batch.given >= 0, generator).numpy()
    images, noisy = batch.inputs.double().numpy(), method.noisy.double().numpy()
    of_image = np.full(len(GIVEN), lam)
    if variant == "md-dyr-sh":
        of_image = (1 - noisy) / ((1 - noisy) + (1 - noisy[partner]))
        lam = lam if epoch < 110 else 0.5
        noisy = noisy if epoch >= 110 else 0 * noisy
    mixed = of_image[:, None] * images + (1 - of_image)[:, None] * images[partner]
    log_p = log_softmax(mixed, axis=1)

    def of(i: int, j: int) -> float:
        """Of image i and the labels of j."""
        soft = -log_p[i] @ method.guess[j].double().numpy()
        return float((1 - noisy[j]) * -log_p[i, GIVEN[j]] + noisy[j] * soft)

    rows = [i for i, label in enumerate(GIVEN) if label >= 0]
    expected = np.mean([lam * of(i, i) + (1 - lam) * of(i, partner[i]) for i in rows])
    assert float(found["ce"]) == pytest.approx(expected, rel=1e-5)
    mean = np.exp(log_p).mean(0)
    assert float(found["prior"]) == pytest.approx((np.log(1 / K / mean) / K).sum(), rel=1e-4)


@pytest.mark.parametrize(("variant", "hard"), [("m-dyr-h", True), ("m-dyr-s", False)])
def test_a_guess_is_a_class_or_its_probability(variant: Any, *, hard: bool) -> None:
    logits = torch.randn(6, K, generator=torch.Generator().manual_seed(0))
    guess = MCorrection(MCorrectionSettings(variant))._guess(run_at(200), logits)
    expected = logits.argmax(1, keepdim=True) == torch.arange(K) if hard else logits.softmax(1)
    torch.testing.assert_close(guess, expected.float())


def test_predictions_harden_evenly_until_two_thirds_of_the_epochs() -> None:
    """As the release's 89 temperatures from 1 to 0.001, an epoch each from the 111th on."""
    method = MCorrection(MCorrectionSettings("md-dyr-sh"))
    logits = torch.tensor([[1.0, 0, 0, 0]])
    temperatures = np.linspace(1, 0.001, 89)
    for epoch in (110, 111, 150, 198, 250, 299):
        guess = method._guess(run_at(epoch), logits)
        expected = (logits / temperatures[min(epoch - 110, 88)]).softmax(1)
        torch.testing.assert_close(guess, expected, atol=1e-5, rtol=1e-4)
    assert method._guess(run_at(1, epochs=1), logits).isfinite().all()


def test_labels_that_are_right_leave_mixup_and_wrong_ones_the_prediction_alone() -> None:
    logits, guess = torch.randn(2, 5, K, generator=torch.Generator().manual_seed(0))
    labels, guess = torch.tensor([0, 1, 2, 3, -1]), guess.softmax(1)
    zero, one = torch.zeros(5), torch.ones(5)
    assert torch.equal(bootstrap(logits, labels, guess, zero), given_losses(logits, labels))
    expected = cross_entropy(logits, guess, reduction="none")
    torch.testing.assert_close(bootstrap(logits, labels, guess, one), expected)


def test_the_sample_whose_label_is_less_probably_wrong_has_the_larger_weight() -> None:
    noisy = torch.tensor([0.1, 0.9, 0.5])
    partner = noisy[[1, 0, 2]]
    torch.testing.assert_close(mixing_weight(noisy, partner), torch.tensor([0.9, 0.1, 0.5]))
    torch.testing.assert_close(mixing_weight(noisy, partner) + mixing_weight(partner, noisy), torch.ones(3))


def test_the_prior_is_zero_where_classes_are_equally_frequent_and_finite_where_one_is_alone() -> None:
    even = 50 * torch.eye(K)
    assert float(divergence_from_uniform(even.log_softmax(1))) == pytest.approx(0, abs=1e-6)
    alone = torch.tensor([[500.0, 0, 0, 0]] * 3)
    assert 100 < float(divergence_from_uniform(alone.log_softmax(1))) < 1000


def test_losses_are_judged_in_evaluation_mode_and_predictions_made_in_training_mode() -> None:
    """With a mixture by which every loss over 1 is of a wrong label."""
    modes: list[bool] = []

    class Watched(MCorrection):
        def _judge(
            self, run: TrainerContext, views: torch.Tensor, given: torch.Tensor
        ) -> tuple[torch.Tensor, torch.Tensor]:
            network = self.networks["main"]
            hook = network.register_forward_pre_hook(lambda module, _: modes.append(module.training))
            found = super()._judge(run, views, given)
            hook.remove()
            assert network.training
            assert not found[0].requires_grad
            assert not found[1].requires_grad
            return found

    made = make(Watched(MCorrectionSettings(correct_from=0.0)), given())
    made.train()
    assert modes == [True, False] * (len(modes) // 2)
    assert modes


def test_what_is_probably_wrong_is_taken_for_what_is_predicted() -> None:
    labels = torch.tensor([0, 1, 2, -1])
    made: Trainer = make(MCorrection(), labels, 3)
    method = made.method
    assert isinstance(method, MCorrection)
    model = LossModel(torch.tensor(0.0), torch.tensor(4.0), torch.arange(100) / 100)
    method.low, method.high, method.table = model
    logits = 6 * torch.tensor([[1.0, 0, 0], [0, 0, 1], [0, 0, 1], [1, 0, 0]])
    chosen = method.conclude(made, logits, logits)
    assert chosen.labels.tolist() == [0, 2, 2, 0]
    assert chosen.selected.tolist() == [True, True, True, False]


def test_features_are_mixed_too() -> None:
    batch = batch_of(GIVEN)
    method = Judging(MCorrectionSettings("md-dyr-sh"))
    assert method.losses(run_at(200), Batch(batch.index, batch.inputs, batch.given))["ce"].isfinite()


@pytest.mark.parametrize(
    "bad", [{"variant": "hard"}, {"mixup_alpha": 0.0}, {"correct_from": 1.5}, {"lambda_prior": -1.0}]
)
def test_settings_out_of_range_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(bad))} must be"):
        MCorrectionSettings(**bad)
