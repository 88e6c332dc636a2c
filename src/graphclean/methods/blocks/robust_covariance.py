"""A classifier of Gaussian classes, fitted to most of their samples by minimum covariance determinant."""

from typing import NamedTuple

import torch
from torch import Generator, Tensor

EMPTY = -1e9
"""Score of a class without samples: finite, with probability 0."""


class Gaussians(NamedTuple):
    """A Gaussian for each class, with a shared covariance."""

    means: Tensor
    """(K, d); zeros for a class without samples."""
    precision: Tensor
    """(d, d), the pseudo-inverse of the covariance."""
    occupied: Tensor
    """(K,): whether the class has samples."""

    def distances(self, x: Tensor, labels: Tensor) -> Tensor:
        """Squared Mahalanobis distance of each row to the mean of its label, which must not be negative."""
        off = x - self.means[labels]
        return ((off @ self.precision) * off).sum(1)

    def linear(self) -> tuple[Tensor, Tensor]:
        """Weights (K, d) and biases (K,) of log P(class) up to a constant per row, with equal class priors.

        Computed relative to the center of the means, so that features far from 0 lose no precision.
        """
        middle = self.means[self.occupied].mean(0) if bool(self.occupied.any()) else self.means[0]
        off = self.means - middle
        weight = off @ self.precision
        bias = -(weight * off).sum(1) / 2 - weight @ middle
        weight = weight.where(self.occupied.unsqueeze(1), torch.zeros_like(weight))
        return weight, bias.where(self.occupied, torch.full_like(bias, EMPTY))


def smallest_of_each(values: Tensor, labels: Tensor, n_classes: int, share: float) -> Tensor:
    """Mask of the smallest values in each class: a fraction `share` of its samples, and at least one.

    It selects ⌊share · n⌋ of n samples; labels below 0 belong to no class.
    """
    of_class = torch.where(labels < 0, n_classes, labels)
    order = values.argsort(stable=True)
    order = order[of_class[order].argsort(stable=True)]
    counts = torch.bincount(of_class, minlength=n_classes + 1)
    # Slightly more, since fractions such as 0.7 may be rounded down in binary.
    quotas = (share * counts.double() + 1e-9).long().clamp(min=1)
    quotas[n_classes] = 0
    ranked = of_class[order]
    rank = torch.arange(len(order), device=labels.device) - (counts.cumsum(0) - counts)[ranked]
    found = torch.zeros_like(labels, dtype=torch.bool)
    found[order] = rank < quotas[ranked]
    return found


def fit_gaussians(
    x: Tensor, labels: Tensor, kept: Tensor, n_classes: int, sizes: Tensor | None = None
) -> Gaussians:
    """The mean of each class and the shared covariance, from the samples in `kept`.

    The covariance of a class is weighted by its number of kept samples, or by `sizes`.
    """
    known = labels.clamp(min=0)
    used = kept & (labels >= 0)
    counts = torch.bincount(known[used], minlength=n_classes)
    shown = used.to(x.dtype).unsqueeze(1)
    means = torch.zeros(n_classes, x.shape[1], dtype=x.dtype, device=x.device)
    means.index_add_(0, known, x * shown)
    means /= counts.clamp(min=1).unsqueeze(1)
    sizes = counts if sizes is None else torch.where(counts > 0, sizes, 0)
    weight = (sizes.to(x.dtype) / counts.clamp(min=1) / sizes.sum().clamp(min=1))[known]
    off = (x - means[known]) * shown
    covariance = off.T @ (off * weight.unsqueeze(1))
    return Gaussians(means, torch.linalg.pinv(covariance, hermitian=True), counts > 0)


def concentrate(x: Tensor, labels: Tensor, found: Gaussians, share: float) -> tuple[Gaussians, Tensor]:
    """One concentration step: refit to the fraction `share` of each class nearest to its mean; also return
    the mask.

    With one class, repeated until nothing changes, it estimates the minimum covariance determinant.
    """
    n_classes = len(found.means)
    kept = smallest_of_each(found.distances(x, labels.clamp(min=0)), labels, n_classes, share)
    sizes = torch.bincount(labels[labels >= 0], minlength=n_classes)
    return fit_gaussians(x, labels, kept, n_classes, sizes), kept


@torch.no_grad()
def robust_gaussians(
    x: Tensor, labels: Tensor, n_classes: int, share: float, generator: Generator
) -> tuple[Gaussians, Tensor]:
    """Gaussians of a random fraction `share` of each class, refitted to the nearest samples; also their mask.

    Labels below 0 are ignored.
    """
    x = x.double()
    drawn = torch.rand(len(x), generator=generator, device=x.device)
    some = smallest_of_each(drawn, labels, n_classes, share)
    return concentrate(x, labels, fit_gaussians(x, labels, some, n_classes), share)
