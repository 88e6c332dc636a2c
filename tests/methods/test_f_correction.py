"""Forward correction against its formulas, with a transition matrix that is known."""

import dataclasses

import numpy as np
import pytest
import torch
from scipy.special import softmax

from graphclean.methods.blocks.supervised import given_losses
from graphclean.methods.blocks.transition import estimate_transition, forward_losses
from graphclean.methods.f_correction import FCorrection, FCorrectionSettings
from graphclean.training.method import Batch, TrainerContext
from tests.methods.test_conditions import SHORT, given, make

K = 5


def matrix(seed: int = 0) -> np.ndarray:
    """Noise that leaves each class mostly what it is."""
    rows = np.random.default_rng(seed).dirichlet(np.ones(K), K)
    return np.asarray(0.4 * rows + 0.6 * np.eye(K))


def draw(n: int = 40, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(0, 3, (n, K)), rng.integers(0, K, n)


def test_the_loss_is_the_likelihood_of_what_the_noise_makes_of_predictions() -> None:
    logits, labels = draw()
    found = forward_losses(torch.tensor(logits), torch.tensor(labels), torch.tensor(matrix()))
    expected = -np.log((softmax(logits, axis=1) @ matrix())[np.arange(40), labels])
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_the_gradient_is_that_of_the_formula() -> None:
    """p − p ∘ T[:, y] / (Tᵀp)_y."""
    logits, labels = draw()
    leaf = torch.tensor(logits, requires_grad=True)
    forward_losses(leaf, torch.tensor(labels), torch.tensor(matrix())).sum().backward()
    p, columns = softmax(logits, axis=1), matrix()[:, labels].T
    assert leaf.grad is not None
    np.testing.assert_allclose(leaf.grad, p - p * columns / (p * columns).sum(1, keepdims=True), atol=1e-12)


def test_without_noise_it_is_cross_entropy_to_the_bit() -> None:
    logits, labels = draw()
    gradients = []
    for matrix_ in (torch.eye(K), None):
        leaf = torch.tensor(logits, dtype=torch.float32, requires_grad=True)
        y = torch.tensor(labels)
        loss = given_losses(leaf, y) if matrix_ is None else forward_losses(leaf, y, matrix_)
        loss.sum().backward()
        assert leaf.grad is not None
        gradients.append((loss.detach(), leaf.grad))
    for corrected, plain in zip(*gradients, strict=True):
        assert torch.equal(corrected, plain)


@pytest.mark.parametrize(("percentile", "n"), [(0.97, 200), (1.0, 200), (0.9, 200)])
def test_a_pure_sample_of_each_class_gives_the_matrix_itself(percentile: float, n: int) -> None:
    """Of `n` samples those at the percentile are pure, and those above it, if any, wrong and surer."""
    noise = torch.tensor(matrix())
    rng = np.random.default_rng(0)
    p = torch.tensor(rng.dirichlet(np.ones(K) * 50, n)) @ noise
    above = n - 1 - (n - 1 if percentile == 1 else int(np.ceil(percentile * (n - 1))) - 1)
    for i in range(K):
        rows = p[i * (above + 1) : (i + 1) * (above + 1)]
        rows[:] = torch.nn.functional.one_hot(torch.tensor(i), K).double()
        rows[-1] = noise[i]
    found = estimate_transition(p, percentile)
    torch.testing.assert_close(found, noise, atol=1e-6, rtol=0)


def test_an_impossible_label_has_a_finite_loss() -> None:
    p = torch.eye(3)[torch.tensor([0, 1, 1, 0])]
    found = estimate_transition(p, 1.0)
    assert torch.allclose(found.sum(1), torch.ones(3))
    assert bool((found > 0).all())
    assert bool(forward_losses(torch.zeros(1, 3), torch.tensor([2]), found).isfinite())


def test_the_second_stage_begins_with_first_weights_and_the_whole_rate() -> None:
    """The first step of each of six epochs, of which the second stage has the last three."""
    rates: list[float] = []
    fresh: list[bool] = []

    class Watched(FCorrection):
        def losses(self, run: TrainerContext, batch: Batch) -> dict[str, torch.Tensor]:
            rates.append(made.optimizers.lr)
            network = self.networks["main"]
            counted = [value for name, value in network.state_dict().items() if "num_batches" in name]
            moments = [state["momentum_buffer"] for state in made.optimizers.sgd.state.values()]
            fresh.append(not any(bool(value.any()) for value in (*counted, *moments)))
            return super().losses(run, batch)

    settings = dataclasses.replace(SHORT, epochs=6, batch_size=16, lr_warmup_epochs=0.0)
    made = make(Watched(FCorrectionSettings(estimation_fraction=0.5)), given(), settings=settings)
    made.train()
    assert fresh == [True, False, False, True, False, False]
    assert rates[:3] == rates[3:]
    assert rates[0] == settings.lr
    assert rates[2] < settings.lr / 2


def test_the_matrix_is_that_of_the_epoch_that_knew_most() -> None:
    """Of what is held out, which the first stage does not train on."""
    made = make(FCorrection(), given())
    method = made.method
    assert isinstance(method, FCorrection)
    method.held_out[:] = torch.arange(len(method.held_out)) < 4
    logits = torch.randn(3, len(made.given), 8, generator=torch.Generator().manual_seed(0))
    losses = [float(given_losses(each, made.given)[:4].mean()) for each in logits]
    best = int(np.argmin(losses))
    for each in logits:
        made.embed = lambda each=each: type("Out", (), {"logits": each})  # type: ignore[method-assign, misc]
        method._estimate(made)
    torch.testing.assert_close(method.transition, estimate_transition(logits[best].softmax(1), 0.97))


def test_a_matrix_that_confuses_classes_is_said() -> None:
    made = make(FCorrection(), given())
    method = made.method
    assert isinstance(method, FCorrection)
    assert method.notes(made) == []
    method.transition = method.transition[[1, 0, 2, 3, 4, 5, 6, 7]]
    (note,) = method.notes(made)
    assert "2 of 8 classes" in note
    one = make(FCorrection(), given(), settings=dataclasses.replace(SHORT, epochs=1))
    assert "nothing was corrected" in one.train().notes[0]


@pytest.mark.parametrize(
    "bad",
    [{"estimation_fraction": 0.0}, {"estimation_fraction": 1.0}, {"percentile": 0.0}, {"identity": 1.1}],
)
def test_settings_out_of_range_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(bad))} must be"):
        FCorrectionSettings(**bad)
