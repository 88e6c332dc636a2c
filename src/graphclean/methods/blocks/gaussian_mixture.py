"""Two Gaussians fitted to the losses of all samples; clean labels form the mode of small losses."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

EM_TOLERANCE = 1e-2
"""EM stops if the mean log-likelihood improves by less than this."""
LEAST_VARIANCE = 5e-4
"""Added to every variance, so that no component collapses to a point."""
EM_ITERATIONS = 10


class Mixture(NamedTuple):
    """Means, variances and weights of two components, each (2,)."""

    means: Tensor
    variances: Tensor
    weights: Tensor

    def log_joint(self, values: Tensor) -> Tensor:
        """The logarithm of weight times density (N, 2)."""
        distance = (values.unsqueeze(1) - self.means).square() / self.variances
        return self.weights.log() - (distance + (2 * math.pi * self.variances).log()) / 2


def small_loss_probability(losses: Tensor, *, max_iterations: int = EM_ITERATIONS) -> Tensor:
    """Each sample's posterior of the component with the smaller mean, from losses scaled to [0, 1]."""
    values = scale_losses(losses.double())
    mixture = fit_mixture(values, start_mixture(values), max_iterations=max_iterations)
    posterior = mixture.log_joint(values).softmax(1)
    return posterior[:, mixture.means.argmin()].to(losses.dtype)


def scale_losses(losses: Tensor) -> Tensor:
    """Losses scaled to [0, 1]; all 0 if they are equal."""
    shifted = losses - losses.amin()
    return shifted / shifted.amax().clamp(min=torch.finfo(losses.dtype).tiny)


def start_mixture(values: Tensor) -> Mixture:
    """The mixture of the optimal split into two clusters: exact k-means in one dimension.

    In sorted order, the split with the smallest sum of squares within clusters has the largest between them.
    Equal values are all in the first cluster.
    """
    n = len(values)
    order = values.argsort(stable=True)
    count = torch.arange(1, n + 1, device=values.device, dtype=values.dtype)
    left = (values[order] - values.mean()).cumsum(0)
    between = left.square() / count + (left[-1] - left).square() / (n - count).clamp(min=1)
    size = n - between.flip(0).argmax()
    low = torch.zeros_like(values)
    low[order] = (count <= size).to(values.dtype)
    return _maximize(values, torch.stack([low, 1 - low], 1))


def fit_mixture(values: Tensor, start: Mixture, *, max_iterations: int = EM_ITERATIONS) -> Mixture:
    """Expectation maximization until the mean log-likelihood improves by less than `EM_TOLERANCE`."""
    mixture, before = start, -math.inf
    for _ in range(max_iterations):
        joint = mixture.log_joint(values)
        likelihood = float(joint.logsumexp(1).mean())
        mixture = _maximize(values, joint.softmax(1))
        if abs(likelihood - before) < EM_TOLERANCE:
            break
        before = likelihood
    return mixture


def _maximize(values: Tensor, posterior: Tensor) -> Mixture:
    counts = posterior.sum(0) + 10 * torch.finfo(values.dtype).eps
    means = (posterior * values.unsqueeze(1)).sum(0) / counts
    spread = (posterior * (values.unsqueeze(1) - means).square()).sum(0) / counts
    return Mixture(means, spread + LEAST_VARIANCE, counts / counts.sum())
