"""SOP+: its losses and the gradients of its own terms against their formulas."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax
from torch import nn

from graphclean.methods.sop_plus import SOPPlus, SopPlusSettings
from graphclean.training.method import Batch
from graphclean.training.networks import Output
from tests.methods.test_conditions import given, make

pytestmark = pytest.mark.usefixtures("one_thread")
N, K = 12, 4
INDEX = [5, 1, 7, 3, 0, 8]


def start(**settings: float) -> tuple[SOPPlus, Any, Batch]:
    """The method with terms that have grown, a run whose strong view is half of the logits, and a batch."""
    rng = np.random.default_rng(0)
    labels = torch.as_tensor(rng.integers(0, K, N))
    labels[3] = -1
    run: Any = SimpleNamespace(given=labels, n_classes=K, device=torch.device("cpu"), batch_size=128)
    run.new_network = nn.Identity
    run.generator, run.settings = torch.Generator().manual_seed(0), SimpleNamespace(epochs=300)
    run.views = lambda inputs: torch.cat([inputs, inputs / 2])
    run.weak_view = lambda inputs: inputs
    run.forward = lambda *batches: [Output(batch, batch) for batch in batches]
    method = SOPPlus(SopPlusSettings(**settings))
    method.setup(run)
    with torch.no_grad():
        method.u.copy_(torch.as_tensor(rng.uniform(-0.9, 0.9, (N, 1))))
        method.v.copy_(torch.as_tensor(rng.uniform(-0.9, 0.9, (N, K))))
        method.u[1] = method.v[7] = 1.5  # cut off at 1
    index = torch.tensor(INDEX)
    return method, run, Batch(index, torch.as_tensor(rng.normal(0, 2, (6, K))).float(), labels[index])


def parts(method: SOPPlus, batch: Batch) -> dict[str, np.ndarray]:
    """One-hot labels, both terms, predictions of both views, and what is compared with the labels."""
    y = np.where(batch.given.numpy()[:, None] == np.arange(K), 1.0, 0.0)
    u, v = (terms.detach().double().numpy()[INDEX] for terms in (method.u, method.v))
    found = {"y": y, "U": (u**2 * y).clip(0, 1), "V": (v**2 * (1 - y)).clip(0, 1)}
    z = batch.inputs.double().numpy()
    found |= {"p": softmax(z, 1), "strong": softmax(z / 2, 1), "hard": np.eye(K)[z.argmax(1)]}
    q = (found["p"] + found["U"] - found["V"]).clip(1e-4)
    return found | {"raw": q, "q": q / q.sum(1, keepdims=True)}


def test_the_losses_are_those_of_the_formulas() -> None:
    method, run, batch = start()
    found = method.losses(run, batch)
    known = parts(method, batch)
    labeled = batch.given.numpy() >= 0
    expected = {
        "ce": -(known["y"] * np.log(known["q"])).sum(1)[labeled].mean(),
        "error": ((known["hard"] + known["U"] - known["V"] - known["y"]) ** 2).sum(1)[labeled].mean(),
        "consistency": (known["p"] * np.log(known["p"] / known["strong"])).sum(1).mean(),
        "balance": -np.log(K * known["q"].mean(0)).mean(),
    }
    assert {name: float(loss.detach()) for name, loss in found.items()} == pytest.approx(expected, rel=1e-4)
    assert method.weights == {"ce": 1.0, "error": 1.0, "consistency": 0.9, "balance": 0.1}


def test_the_terms_have_the_gradients_of_the_formulas() -> None:
    """u learns by both losses, v by the squared error alone."""
    method, run, batch = start(lambda_balance=0, lambda_consistency=0)
    losses = method.losses(run, batch)
    (losses["ce"] + losses["error"]).backward()
    assert method.u.grad is not None
    assert method.v.grad is not None
    known, rows = parts(method, batch), np.arange(6)
    error = 2 * (known["hard"] + known["U"] - known["V"] - known["y"])
    total = known["raw"].sum(1, keepdims=True)
    by_q = (1 / total - known["y"] / known["raw"]) * (known["raw"] > 1e-4)
    u, v = (terms.detach().double().numpy()[INDEX] for terms in (method.u, method.v))
    of_u = ((error + by_q) * known["y"]).sum(1) * 2 * u[:, 0] * (u[:, 0] ** 2 <= 1) / 5
    of_v = -error * (1 - known["y"]) * 2 * v * (v**2 <= 1) / 5
    of_v[rows[batch.given.numpy() < 0]] = 0
    np.testing.assert_allclose(method.u.grad[INDEX, 0], of_u, atol=1e-5)
    np.testing.assert_allclose(method.v.grad[INDEX], of_v, atol=1e-5)
    others = [i for i in range(N) if i not in INDEX]
    assert not method.u.grad[others].any()
    assert not method.v.grad[others].any()


def test_without_terms_and_with_weights_0_it_is_cross_entropy_of_one_view() -> None:
    method, run, batch = start(lambda_balance=0, lambda_consistency=0)
    run.views = None
    with torch.no_grad():
        method.u.zero_()
        method.v.zero_()
    leaf = batch.inputs.requires_grad_()
    losses = method.losses(run, batch)
    assert losses.keys() == {"ce", "error"}
    assert not torch.autograd.grad(losses["error"], leaf, retain_graph=True, allow_unused=True)[0]
    labeled = batch.given >= 0
    expected = -log_softmax(leaf.detach().double().numpy(), 1)[range(6), batch.given.numpy()][labeled].mean()
    assert float(losses["ce"].detach()) == pytest.approx(expected, rel=1e-3)


def test_rates_are_scaled_to_what_the_run_does_of_an_epoch_and_of_all() -> None:
    method = SOPPlus(SopPlusSettings(lr_u=1, lr_v=100))
    trainer = make(method, given())
    scale = 8 / 128 * 300 / trainer.settings.epochs
    rates = {name: made.param_groups[0]["lr"] for name, made in method.optimizers().items()}
    assert rates == pytest.approx({"u": scale, "v": 100 * scale})
    assert float(method.u.detach().abs().max()) < 1e-7
    assert float(method.v.detach().std()) == pytest.approx(1e-8, rel=0.3)


def test_a_label_that_u_explains_away_gives_way() -> None:
    method, run, _ = start()
    with torch.no_grad():
        method.u.zero_()
        method.v.zero_()
        method.u[4] = -0.9
        wrong = (int(run.given[4]) + 1) % K
        method.v[4, wrong] = 0.8
        method.v[4, run.given[4]] = 5.0  # of the given class it has no meaning
    selection = method.selection(run)
    unselected = (~selection.selected).nonzero().flatten().tolist()
    assert unselected == [3, 4], "sample 3 has no label"
    assert int(selection.labels[4]) == wrong
    logits = torch.eye(K)[torch.full((N,), 2)]
    concluded = method.conclude(run, logits, logits)
    assert concluded.labels[[3, 4]].tolist() == [2, 2]
    assert torch.equal(concluded.labels[selection.selected], run.given[selection.selected])


@pytest.mark.parametrize("name", ["lr_u", "lr_v", "lambda_consistency", "lambda_balance"])
def test_settings_out_of_range_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least 0"):
        SopPlusSettings(**{name: -1.0})
