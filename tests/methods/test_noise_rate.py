"""The estimated noise rate, on points whose labels were made wrong at a known rate."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from graphclean.methods.blocks.noise_rate import (
    NoiseRate,
    check_noise_rate,
    estimate_noise,
    rate_of_agreement,
)

K, N = 5, 600


def clusters(spread: float = 0.3) -> tuple[Tensor, Tensor]:
    """Points of `K` classes, and their classes."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.arange(N) % K
    return torch.eye(K)[truth] + spread * torch.randn(N, K, generator=generator), truth


def spoil(truth: Tensor, rate: float) -> Tensor:
    """Labels of which a fraction is that of another class."""
    generator = torch.Generator().manual_seed(1)
    order = torch.randperm(N, generator=generator)[: round(rate * N)]
    labels = truth.clone()
    labels[order] = (labels[order] + torch.randint(1, K, order.shape, generator=generator)) % K
    return labels


@pytest.mark.parametrize("rate", [0.0, 0.2, 0.45, 0.6])
@pytest.mark.parametrize("spread", [0.1, 0.3])
def test_the_rate_is_found(rate: float, spread: float) -> None:
    z, truth = clusters(spread)
    assert float(estimate_noise(z, spoil(truth, rate), K).rate) == pytest.approx(rate, abs=0.03)


def test_class_dependent_noise_is_found_too() -> None:
    z, truth = clusters()
    labels = truth.clone()
    changed = torch.rand(N, generator=torch.Generator().manual_seed(2)) < 0.3
    labels[changed & (truth == 0)] = 1
    rate = float((labels != truth).double().mean())
    assert float(estimate_noise(z, labels, K).rate) == pytest.approx(rate, abs=0.02)


def test_unlabeled_samples_have_no_part_in_it() -> None:
    z, truth = clusters()
    labels = spoil(truth, 0.4)
    labels[torch.rand(N, generator=torch.Generator().manual_seed(3)) < 0.3] = -1
    assert float(estimate_noise(z, labels, K).rate) == pytest.approx(0.4, abs=0.05)
    assert float(estimate_noise(z, torch.full((N,), -1), K).rate) == 0


def test_labels_at_random_are_no_worse_than_that() -> None:
    z, _ = clusters()
    labels = torch.randint(0, K, (N,), generator=torch.Generator().manual_seed(4))
    found = float(estimate_noise(z, labels, K).rate)
    assert found == pytest.approx(1 - 1 / K, abs=0.05)
    assert found <= 1 - 1 / K + 1e-6


@pytest.mark.parametrize("n_classes", [2, 10, 100])
@pytest.mark.parametrize("rate", [0.0, 0.2, 0.3, 0.45])
def test_the_rate_of_an_agreement_inverts_the_formula(rate: float, n_classes: int) -> None:
    agreement = (1 - rate) ** 2 + rate**2 / (n_classes - 1)
    found = rate_of_agreement(torch.tensor(agreement, dtype=torch.float64), n_classes)
    assert float(found) == pytest.approx(rate, abs=1e-9)


@pytest.mark.parametrize(("agreement", "rate"), [(0.644, 0.2), (0.278, 0.5), (0.111, 0.8), (0.05, 0.9)])
def test_of_ten_classes_it_is_what_the_paper_has(agreement: float, rate: float) -> None:
    """Less agreement than by chance counts as random labels."""
    assert float(rate_of_agreement(torch.tensor(agreement), 10)) == pytest.approx(rate, abs=2e-3)


def run_of(epochs: int, labels: Tensor, z: Tensor) -> Any:
    run: Any = SimpleNamespace(given=labels, n_classes=K, settings=SimpleNamespace(epochs=epochs), passes=0)

    def embed() -> Any:
        run.passes += 1
        return SimpleNamespace(z=z)

    run.embed = embed
    return run


def test_it_is_estimated_in_the_first_half_alone() -> None:
    z, truth = clusters()
    run = run_of(12, spoil(truth, 0.4), z)
    rate = NoiseRate("auto", K, torch.device("cpu"))
    found = []
    for run.epoch in range(12):
        found.append(float(rate.begin_epoch(run)))
    assert found[0] == 0
    assert found[1:] == [pytest.approx(0.4, abs=0.03)] * 11
    assert run.passes == 6
    (note,) = rate.notes(run)
    assert f"{found[-1]:.3f}" in note
    assert "estimated" in note
    assert rate.metrics() == {"noise_rate": found[-1]}


def test_of_one_epoch_nothing_is_estimated() -> None:
    z, truth = clusters()
    run = run_of(1, spoil(truth, 0.4), z)
    run.epoch, rate = 0, NoiseRate("auto", K, torch.device("cpu"))
    assert float(rate.begin_epoch(run)) == 0
    assert "too few to estimate it: it counted as 0" in rate.notes(run)[0]


def test_a_rate_that_is_given_costs_nothing() -> None:
    z, truth = clusters()
    run = run_of(12, truth, z)
    rate = NoiseRate(0.25, K, torch.device("cpu"))
    for run.epoch in range(12):
        assert float(rate.begin_epoch(run)) == 0.25
    assert run.passes == 0
    assert rate.notes(run) == []


def test_what_is_no_rate_is_refused() -> None:
    for bad in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match="noise_rate must be auto, or at least 0 and less than 1"):
            check_noise_rate(bad)
    check_noise_rate("auto")
