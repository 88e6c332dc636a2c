"""Transformations against NumPy, the scores of what is told of them against SciPy and by hand."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import digamma, log_softmax
from scipy.stats import dirichlet
from torch import nn

from graphclean.errors import InputError
from graphclean.ood.detectors.transformations import (
    RotationScore,
    TransformationScore,
    fit_dirichlet,
    inverse_digamma,
)
from graphclean.ood.transformations import TRANSFORMATIONS, rotate_all, transform
from graphclean.training.networks import build_network


def images(n: int = 3, side: int = 8, channels: int = 2) -> torch.Tensor:
    return torch.randn(n, channels, side, side, generator=torch.Generator().manual_seed(0))


def by_numpy(image: np.ndarray, number: int) -> np.ndarray:
    """Mirror, shift with reflection, turn."""
    flip, down, across, turns = np.unravel_index(number, (2, 3, 3, 4))
    step = image.shape[1] // 4
    if flip:
        image = image[:, :, ::-1]
    padded = np.pad(image, ((0, 0), (step, step), (step, step)), mode="reflect")
    top, left = step + (0, step, -step)[down], step + (0, step, -step)[across]
    side = image.shape[1]
    return np.rot90(padded[:, top : top + side, left : left + side], turns, (1, 2))


@pytest.mark.parametrize("side", [4, 8, 9])
def test_all_transformations_are_those_of_numpy(side: int) -> None:
    image = images(1, side)
    everything = transform(image.expand(TRANSFORMATIONS, -1, -1, -1), torch.arange(TRANSFORMATIONS))
    for number, found in enumerate(everything):
        np.testing.assert_array_equal(found, by_numpy(image[0].numpy(), number))
    assert len({bytes(found.numpy().tobytes()) for found in everything}) == TRANSFORMATIONS
    assert torch.equal(everything[:4], rotate_all(image))


def test_what_can_t_be_turned_or_shifted_is_refused() -> None:
    for change in (rotate_all, lambda x: transform(x, torch.zeros(3, dtype=torch.long))):
        with pytest.raises(InputError, match="need square images, not 8×6 pixels"):
            change(images()[..., :6])
    with pytest.raises(InputError, match="4×4 pixels or more"):
        transform(images(side=3), torch.zeros(3, dtype=torch.long))


def test_the_inverse_of_digamma() -> None:
    x = torch.logspace(-6, 5, 200, dtype=torch.float64)
    torch.testing.assert_close(inverse_digamma(torch.tensor(digamma(x.numpy()))), x, rtol=1e-8, atol=0)


def test_dirichlet_parameters_are_the_most_likely() -> None:
    """The gradient of the likelihood is 0 there, and they are near those that were drawn from."""
    rng = np.random.default_rng(0)
    drawn = [[8.0, 2.0, 0.5], [1.0, 1.0, 30.0]]
    samples = [rng.dirichlet(alpha, 20_000) for alpha in drawn]
    mean_log = np.stack([np.log(sample).mean(0) for sample in samples])
    mean = np.stack([sample.mean(0) for sample in samples])
    found = fit_dirichlet(torch.tensor(mean_log), torch.tensor(mean)).numpy()
    np.testing.assert_allclose(digamma(found) - digamma(found.sum(1, keepdims=True)), mean_log, atol=1e-6)
    np.testing.assert_allclose(found, drawn, rtol=0.05)


def network() -> Any:
    torch.manual_seed(0)
    return build_network("small-conv", 5, input_shape=(1, 8, 8)).eval()


def equip(detector: Any, net: Any, outputs: int) -> nn.Linear:
    head = nn.Linear(net.feature_dim, outputs)
    detector.take_transformations(head.weight.detach(), head.bias.detach())
    return head


@torch.no_grad()
def test_rot_plus_by_hand() -> None:
    net, x = network(), images(4, channels=1)
    detector = RotationScore(5, net.feature_dim)
    head = equip(detector, net, 4)
    p = np.exp(log_softmax(net(x).logits.numpy(), axis=1))
    kl = (0.2 * np.log2(0.2 / p)).sum(1)
    lost = np.zeros(4)
    for turns in range(4):
        said = head(net(torch.rot90(x, turns, (2, 3))).features).numpy()
        lost += -log_softmax(said, axis=1)[:, turns] / np.log(2) / 4
    np.testing.assert_allclose(detector.predict_inputs(net, x), lost - kl, rtol=1e-4)


@pytest.mark.slow
@torch.no_grad()
def test_rot_by_scipy() -> None:
    """The score is −mean log density, but for what is the same for all inputs."""
    net, x = network(), images(24, channels=1)
    detector = TransformationScore(5, net.feature_dim)
    head = equip(detector, net, TRANSFORMATIONS)
    labels = torch.zeros(24, dtype=torch.long)
    labels[16:] = -1
    rows_read = []

    def read(rows: torch.Tensor) -> Any:
        rows_read.extend(rows.tolist())
        yield from x[rows].split(6)

    detector.fit_inputs(net, read, labels)
    assert rows_read == list(range(16))
    density = np.zeros(24)
    for number in range(TRANSFORMATIONS):
        moved = torch.stack([torch.tensor(by_numpy(image.numpy(), number).copy()) for image in x])
        log_p = log_softmax(head(net(moved).features).double().numpy(), axis=1)
        alpha = detector.concentration[number].double().numpy()
        gap = digamma(alpha) - digamma(alpha.sum()) - log_p[:16].mean(0)
        assert np.abs(gap).max() < 1e-3, "the most likely of the fitted samples"
        p = np.exp(log_p)
        density += [dirichlet.logpdf(row / row.sum(), alpha) / TRANSFORMATIONS for row in p]
    found = detector.predict_inputs(net, x).double().numpy()
    np.testing.assert_allclose(found - found.mean(), density.mean() - density, atol=5e-3)


def test_without_a_sample_to_fit_to_nothing_is_rejected_and_that_is_told() -> None:
    net = network()
    detector = TransformationScore(5, net.feature_dim)
    equip(detector, net, TRANSFORMATIONS)
    detector.fit_inputs(net, lambda _: iter(()), torch.full((9,), -1))
    assert not detector.predict_inputs(net, images(4, channels=1)).any()
    assert "no detector" in detector.notes()[0]
