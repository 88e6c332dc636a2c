"""Detectors that read the trunk's features alone: distances from class means, and from training samples."""

from typing import Self

import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn.functional import normalize

from ..detector import Detector, LearnedBuffers
from .prototypes import NO_DETECTOR

SMALLEST_VARIANCE = 1e-9
"""Of the largest variance along any direction: what is smaller, float32 can't tell from rounding."""
BANK = 20_000
"""Training samples that are kept: of more the score hardly changes, and the model grows."""

FEATURES_AT_ONCE = 16_384
"""Features at a time in double precision."""


class Gaussian(LearnedBuffers):
    """Class means of features, and squared Mahalanobis distances from them by one covariance for all.

    The covariance is inverted along the directions in which the samples vary, as by a pseudo-inverse. Where
    they vary in none, as with one sample a class, the distance is Euclidean.
    """

    center: Tensor
    root: Tensor
    """(d, r): the root of the inverse covariance."""
    means: Tensor
    """(classes that have samples, r), whitened."""

    def __init__(self) -> None:
        super().__init__()
        for name, shape in (("center", (0,)), ("root", (0, 0)), ("means", (0, 0))):
            self.register_buffer(name, torch.zeros(shape))

    def fit(self, features: Tensor, labels: Tensor, n_classes: int) -> Self:
        """On the samples with labels of at least 0."""
        known, width = labels >= 0, features.shape[1]
        x, y = features[known], labels[known]
        count = torch.bincount(y, minlength=n_classes)
        total = torch.zeros(n_classes, width, dtype=torch.double, device=x.device)
        for rows, own in zip(torch.split(x, FEATURES_AT_ONCE), torch.split(y, FEATURES_AT_ONCE), strict=True):
            total.index_add_(0, own, rows.double())
        means, center = total / count.clamp(min=1)[:, None], total.sum(0) / max(len(x), 1)
        values, vectors = torch.linalg.eigh(scatter(x, means, y) / max(len(x), 1))
        kept = values > SMALLEST_VARIANCE * values[-1].clamp(min=torch.finfo(values.dtype).tiny)
        root = vectors[:, kept] * values[kept].rsqrt() if bool(kept.any()) else torch.eye(width).to(values)
        found = {"center": center, "root": root, "means": (means[count > 0] - center) @ root}
        for name, value in found.items():
            setattr(self, name, value.to(features.dtype).contiguous())
        return self

    def forward(self, features: Tensor) -> Tensor:
        """The squared distance from the nearest mean; 0 where there is none."""
        if not len(self.means):
            return features.new_zeros(len(features))
        white = (features - self.center) @ self.root
        nearest = (2 * white @ self.means.T - (self.means**2).sum(1)).argmax(1)
        # Not from the squares above, which may be large next to their difference.
        return ((white - self.means[nearest]) ** 2).sum(1)

    @property
    def singular(self) -> bool:
        """Some directions don't count."""
        return len(self.means) > 0 and self.root.shape[1] < self.root.shape[0]


class Mahalanobis(Detector):
    """The squared Mahalanobis distance from the nearest class mean, by the covariance within classes."""

    name = "mahalanobis"
    needs = "features"
    title = "squared Mahalanobis distance from the nearest class mean"
    paper = "Lee et al., A Simple Unified Framework for Detecting OOD Samples, NeurIPS 2018"
    cost = "d²"
    choices = "none; one layer, no noise on the input"
    cross_fit = True

    def __init__(self, n_classes: int, width: int) -> None:
        super().__init__(n_classes, width)
        self.n_classes, self.within = n_classes, Gaussian()

    def fit_features(self, features: Tensor, labels: Tensor) -> Self:
        """Class means and their covariance."""
        self.within.fit(features, labels, self.n_classes)
        return self

    def predict_features(self, features: Tensor) -> Tensor:
        """min_c (x − μ_c)ᵀ Σ⁻¹ (x − μ_c)."""
        distance: Tensor = self.within(features)
        return distance

    def notes(self) -> list[str]:
        """Where the covariance has no inverse, some features are not looked at."""
        return describe_gaussians([self.within])


class RelativeMahalanobis(Mahalanobis):
    """The same less the distance from the mean of all, by the covariance of all."""

    name = "rmd"
    title = "Mahalanobis distance from the nearest class mean, less that from the mean of all"
    paper = "Ren et al., A Simple Fix to Mahalanobis Distance for Improving Near-OOD Detection, 2021"
    cost = "2 d²"
    choices = "none"

    def __init__(self, n_classes: int, width: int) -> None:
        super().__init__(n_classes, width)
        self.overall = Gaussian()

    def fit_features(self, features: Tensor, labels: Tensor) -> Self:
        """Class means, the mean of all, and the covariance around either."""
        self.overall.fit(features, labels.clamp(max=0), 1)
        return super().fit_features(features, labels)

    def predict_features(self, features: Tensor) -> Tensor:
        """min_c MD_c − MD_0."""
        overall: Tensor = self.overall(features)
        return super().predict_features(features) - overall


class NearestNeighbors(Detector):
    """The distance to the k-th nearest training sample, of features of length 1."""

    name = "knn"
    needs = "features"
    title = "distance of normalized features to the k-th nearest training sample"
    paper = "Sun et al., Out-of-Distribution Detection with Deep Nearest Neighbors, ICML 2022"
    cost = "N d"
    choices = f"k 50, at most half an average class; of N > {BANK:,} samples so many, evenly spaced"
    cross_fit = True
    k = 50
    bank: Tensor

    def __init__(self, n_classes: int, width: int) -> None:
        super().__init__(n_classes, width)
        self.n_classes = n_classes
        self.register_buffer("bank", torch.zeros(0, width))

    def fit_features(self, features: Tensor, labels: Tensor) -> Self:
        """The samples with labels of at least 0, evenly thinned out."""
        self.bank = normalize(spread(features[labels >= 0]), dim=1)
        return self

    def predict_features(self, features: Tensor) -> Tensor:
        """‖x − x_(k)‖."""
        if not len(self.bank):
            return features.new_zeros(len(features))
        unit, k = normalize(features, dim=1), max(1, min(self.k, len(self.bank) // (2 * self.n_classes)))
        nearest = (unit @ self.bank.T).topk(k).indices[:, -1]
        distance: Tensor = vector_norm(unit - self.bank[nearest], dim=1)
        return distance

    def notes(self) -> list[str]:
        """Without any sample nothing can be rejected."""
        return [] if len(self.bank) else [NO_DETECTOR]


def spread(rows: Tensor) -> Tensor:
    """At most `BANK` rows, evenly spaced."""
    if len(rows) <= BANK:
        return rows
    return rows[torch.arange(BANK, device=rows.device) * len(rows) // BANK]


def scatter(x: Tensor, centers: Tensor, place: Tensor) -> Tensor:
    """Σ (x − c)(x − c)ᵀ in double precision, with each row's center c at its place."""
    total = torch.zeros(x.shape[1], x.shape[1], dtype=torch.double, device=x.device)
    for rows, own in zip(torch.split(x, FEATURES_AT_ONCE), torch.split(place, FEATURES_AT_ONCE), strict=True):
        away = rows.double() - centers[own]
        total += away.T @ away
    return total


def describe_gaussians(parts: list[Gaussian]) -> list[str]:
    """What a user should know of distances by these."""
    if not len(parts[0].means):
        return [NO_DETECTOR]
    if not any(part.singular for part in parts):
        return []
    return [
        "the features of the selected samples don't vary in all directions, as with fewer samples than "
        "features: the detector does not look at the others"
    ]
