"""The distance of SSD, which treats all training samples as one cluster."""

from typing import Self

from torch import Tensor
from torch.nn.functional import normalize

from ..detector import Detector
from .features import Gaussian, describe_gaussians


class ClusterDistance(Detector):
    """The squared Mahalanobis distance of features of unit length to the mean of all samples.

    SSD standardizes the features first, which has no effect on this distance.
    """

    name = "ssd"
    needs = "features"
    title = "squared Mahalanobis distance of normalized features to the mean of all samples"
    paper = "Sehwag et al., SSD: A Unified Framework for Self-Supervised Outlier Detection, ICLR 2021"
    cost = "d²"
    choices = "none; one cluster"
    cross_fit = True

    def __init__(self, n_classes: int, width: int) -> None:
        super().__init__(n_classes, width)
        self.overall = Gaussian()

    def fit_features(self, features: Tensor, labels: Tensor) -> Self:
        """Mean and covariance, regardless of class."""
        self.overall.fit(normalize(features, dim=1), labels.clamp(max=0), 1)
        return self

    def predict_features(self, features: Tensor) -> Tensor:
        """(x − μ)ᵀ Σ⁻¹ (x − μ)."""
        distance: Tensor = self.overall(normalize(features, dim=1))
        return distance

    def notes(self) -> list[str]:
        """A note if a covariance is singular: some directions are ignored."""
        return describe_gaussians([self.overall])
