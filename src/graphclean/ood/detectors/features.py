"""Detectors that read only the trunk's features: distances to class means and to training samples."""

from typing import Self

import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn.functional import normalize

from ..detector import Detector, LearnedBuffers
from .prototypes import NO_DETECTOR

SMALLEST_VARIANCE = 1e-9
"""Relative to the largest variance along any direction; smaller ones are rounding errors in float32."""
BANK = 20_000
"""Maximum number of stored training samples: more would hardly change the score, but enlarge the model."""

FEATURES_AT_ONCE = 16_384
"""Features processed at once in double precision."""


class Gaussian(LearnedBuffers):
    """Class means of features, and squared Mahalanobis distances to them with one shared covariance.

    The covariance is inverted along the directions in which the samples vary, as in a pseudo-inverse. If they
    vary in none, as with one sample per class, the distance is Euclidean.
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
        """Fit to the samples with labels of at least 0."""
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
        """The squared distance to the nearest mean; 0 if there is none."""
        if not len(self.means):
            return features.new_zeros(len(features))
        white = (features - self.center) @ self.root
        nearest = (2 * white @ self.means.T - (self.means**2).sum(1)).argmax(1)
        # Not from the expanded squares above, which cancel if they are large.
        return ((white - self.means[nearest]) ** 2).sum(1)

    @property
    def singular(self) -> bool:
        """Whether some directions are ignored."""
        return len(self.means) > 0 and self.root.shape[1] < self.root.shape[0]


class Mahalanobis(Detector):
    """The squared Mahalanobis distance to the nearest class mean, with the covariance within classes."""

    name = "mahalanobis"
    needs = "features"
    title = "squared Mahalanobis distance to the nearest class mean"
    paper = "Lee et al., A Simple Unified Framework for Detecting OOD Samples, NeurIPS 2018"
    cost = "d²"
    choices = "none; one layer, no input noise"
    cross_fit = True

    def __init__(self, n_classes: int, width: int) -> None:
        super().__init__(n_classes, width)
        self.n_classes, self.within = n_classes, Gaussian()

    def fit_features(self, features: Tensor, labels: Tensor) -> Self:
        """Class means and their shared covariance."""
        self.within.fit(features, labels, self.n_classes)
        return self

    def predict_features(self, features: Tensor) -> Tensor:
        """min_c (x − μ_c)ᵀ Σ⁻¹ (x − μ_c)."""
        distance: Tensor = self.within(features)
        return distance

    def notes(self) -> list[str]:
        """A note if a covariance is singular: some directions are ignored."""
        return describe_gaussians([self.within])


class RelativeMahalanobis(Mahalanobis):
    """The same minus the distance to the mean of all samples, with the covariance of all."""

    name = "rmd"
    title = "Mahalanobis distance to the nearest class mean minus that to the overall mean"
    paper = "Ren et al., A Simple Fix to Mahalanobis Distance for Improving Near-OOD Detection, 2021"
    cost = "2 d²"
    choices = "none"

    def __init__(self, n_classes: int, width: int) -> None:
        super().__init__(n_classes, width)
        self.overall = Gaussian()

    def fit_features(self, features: Tensor, labels: Tensor) -> Self:
        """Class means, the overall mean, and the covariance around each."""
        self.overall.fit(features, labels.clamp(max=0), 1)
        return super().fit_features(features, labels)

    def predict_features(self, features: Tensor) -> Tensor:
        """min_c MD_c − MD_0."""
        overall: Tensor = self.overall(features)
        return super().predict_features(features) - overall


class NearestNeighbors(Detector):
    """The distance to the k-th nearest training sample, for features normalized to unit length."""

    name = "knn"
    needs = "features"
    title = "distance of normalized features to the k-th nearest training sample"
    paper = "Sun et al., Out-of-Distribution Detection with Deep Nearest Neighbors, ICML 2022"
    cost = "N d"
    choices = f"k = 50, at most half the mean class size; at most {BANK:,} samples, evenly spaced"
    cross_fit = True
    k = 50
    bank: Tensor

    def __init__(self, n_classes: int, width: int) -> None:
        super().__init__(n_classes, width)
        self.n_classes = n_classes
        self.register_buffer("bank", torch.zeros(0, width))

    def fit_features(self, features: Tensor, labels: Tensor) -> Self:
        """The samples with labels of at least 0, evenly subsampled."""
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
        """Without samples nothing can be rejected."""
        return [] if len(self.bank) else [NO_DETECTOR]


def spread(rows: Tensor) -> Tensor:
    """At most `BANK` rows, evenly spaced."""
    if len(rows) <= BANK:
        return rows
    return rows[torch.arange(BANK, device=rows.device) * len(rows) // BANK]


def scatter(x: Tensor, centers: Tensor, place: Tensor) -> Tensor:
    """Σ (x − c)(x − c)ᵀ in double precision, where `place` is the index of each row's center c."""
    total = torch.zeros(x.shape[1], x.shape[1], dtype=torch.double, device=x.device)
    for rows, own in zip(torch.split(x, FEATURES_AT_ONCE), torch.split(place, FEATURES_AT_ONCE), strict=True):
        away = rows.double() - centers[own]
        total += away.T @ away
    return total


def describe_gaussians(parts: list[Gaussian]) -> list[str]:
    """Caveats of distances computed by these."""
    if not len(parts[0].means):
        return [NO_DETECTOR]
    if not any(part.singular for part in parts):
        return []
    return [
        "the features of the selected samples don't vary in all directions, as with fewer samples than "
        "features: the detector ignores the other directions"
    ]
