"""Detectors that read features and the classifier's weights."""

from typing import Self

import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn.functional import normalize

from ..detector import Detector
from .features import BANK, scatter, spread
from .logits import class_means
from .prototypes import NO_DETECTOR

EXACT = "donot_use_mm_for_euclid_dist"
SMALL = 1e-12
"""Lengths below this count as 0."""


class HeadDetector(Detector):
    """Stores the classifier's weights, to compute logits from features."""

    needs = "features"
    needs_head = True
    weight: Tensor
    bias: Tensor

    def __init__(self, n_classes: int, width: int) -> None:
        super().__init__(n_classes, width)
        self.n_classes = n_classes
        self.register_buffer("weight", torch.zeros(n_classes, width))
        self.register_buffer("bias", torch.zeros(n_classes))

    def take_head(self, weight: Tensor, bias: Tensor) -> None:
        """Store the classifier's weights."""
        self.weight, self.bias = weight.detach().clone(), bias.detach().clone()

    def fit_features(self, features: Tensor, labels: Tensor) -> Self:  # noqa: ARG002
        """Nothing to fit by default."""
        return self

    def logits(self, features: Tensor) -> Tensor:
        """The classifier's logits."""
        return features @ self.weight.T + self.bias

    def energy(self, features: Tensor) -> Tensor:
        """− log Σ exp of the logits."""
        return -self.logits(features).logsumexp(1)


class ViM(HeadDetector):
    """The norm of features outside their principal space, as a logit in addition to those of the classes."""

    name = "vim"
    title = "scaled norm of features outside their principal space, plus energy"
    paper = "Wang et al., ViM: Out-Of-Distribution with Virtual-logit Matching, CVPR 2022"
    cost = "d² / 2"
    choices = "the principal space has half of the dimensions, or 512 from 1,500 features on"
    cross_fit = True
    origin: Tensor
    residual: Tensor
    """(d, d − dimensions): orthonormal directions outside the principal space."""
    alpha: Tensor

    def __init__(self, n_classes: int, width: int) -> None:
        super().__init__(n_classes, width)
        self.dimensions = 512 if width >= 1500 else width // 2
        self.register_buffer("origin", torch.zeros(width))
        self.register_buffer("residual", torch.zeros(0, 0))
        self.register_buffer("alpha", torch.zeros(()))

    def fit_features(self, features: Tensor, labels: Tensor) -> Self:
        """The principal space of the selected samples, around the point at which all logits are 0."""
        x = features[labels >= 0]
        origin = -torch.linalg.pinv(self.weight.double()) @ self.bias.double()
        moment = scatter(x, origin[None], torch.zeros_like(labels[labels >= 0]))
        vectors = torch.linalg.eigh(moment / max(len(x), 1)).eigenvectors
        residual = vectors[:, : features.shape[1] - self.dimensions]
        self.origin, self.residual = (part.to(features.dtype).contiguous() for part in (origin, residual))
        self.alpha = torch.zeros_like(self.alpha, dtype=features.dtype)
        outside = vector_norm((x - self.origin) @ self.residual, dim=1).mean() if len(x) else self.alpha
        if float(outside) > 0:
            # With a negative scale, features outside the principal space would lower the score.
            self.alpha = self.logits(x).amax(1).mean().clamp(min=0) / outside
        return self

    def predict_features(self, features: Tensor) -> Tensor:
        """α ‖Rᵀ(x − u)‖ − log Σ exp l."""
        outside: Tensor = vector_norm((features - self.origin) @ self.residual, dim=1)
        return self.alpha * outside + self.energy(features)

    def notes(self) -> list[str]:
        """Without a residual the score is the energy."""
        if float(self.alpha) > 0:
            return []
        return ["vim found nothing outside the principal space of the selected samples: its score is energy"]


class FDBD(HeadDetector):
    """The distance to the decision boundaries, relative to the distance to the mean of all features."""

    name = "fdbd"
    title = "− mean distance to the decision boundaries, relative to that to the mean feature"
    paper = "Liu and Qin, Fast Decision Boundary based OOD Detector, ICML 2024"
    cost = "none"
    choices = "none"
    mean: Tensor
    closeness: Tensor
    """(K, K): 1 over the distance between two classes' weights, 0 if they are equal."""

    def __init__(self, n_classes: int, width: int) -> None:
        super().__init__(n_classes, width)
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("closeness", torch.zeros(n_classes, n_classes))

    def take_head(self, weight: Tensor, bias: Tensor) -> None:
        """Store the classifier's weights, and the distances between those of its classes."""
        super().take_head(weight, bias)
        gaps = torch.cdist(self.weight.double(), self.weight.double(), compute_mode=EXACT)
        self.closeness = torch.where(gaps > 0, 1 / gaps, 0).to(weight.dtype)

    def fit_features(self, features: Tensor, labels: Tensor) -> Self:
        """The mean of the selected samples, or of all if none is selected."""
        known = labels >= 0
        self.mean = features[known if bool(known.any()) else slice(None)].mean(0)
        return self

    def predict_features(self, features: Tensor) -> Tensor:
        """− mean over the other classes of (l_ŷ − l_c) / ‖w_ŷ − w_c‖, divided by ‖x − μ‖."""
        logits = self.logits(features)
        top = logits.max(1)
        others = ((top.values[:, None] - logits) * self.closeness[top.indices]).sum(1)
        away: Tensor = vector_norm(features - self.mean, dim=1).clamp(min=SMALL)
        return -others / max(self.n_classes - 1, 1) / away


class SHE(HeadDetector):
    """− the inner product with the mean feature of the predicted class."""

    name = "she"
    needs_relu = True
    title = "− inner product with the mean feature of the predicted class"
    paper = "Zhang et al., Out-of-Distribution Detection based on In-Distribution Data Patterns, ICLR 2023"
    cost = "none"
    choices = "none; means are over selected samples that are predicted correctly"
    patterns: Tensor

    def __init__(self, n_classes: int, width: int) -> None:
        super().__init__(n_classes, width)
        self.register_buffer("patterns", torch.zeros(n_classes, width))

    def fit_features(self, features: Tensor, labels: Tensor) -> Self:
        """Mean features per class: over its correct predictions, else all its samples, else all classes."""
        right = self.logits(features).argmax(1) == labels
        known = labels >= 0
        x, n = features.double(), self.n_classes
        mean = x[known].mean(0) if bool(known.any()) else x.new_zeros(x.shape[1])
        patterns = mean.repeat(n, 1)
        for rows in (known, right):
            there = torch.bincount(labels[rows], minlength=n) > 0
            patterns[there] = class_means(x[rows], labels[rows], n)
        self.patterns = patterns.to(features.dtype)
        return self

    def predict_features(self, features: Tensor) -> Tensor:
        """− xᵀ S_ŷ."""
        return -(features * self.patterns[self.logits(features).argmax(1)]).sum(1)

    def notes(self) -> list[str]:
        """Without means nothing can be rejected."""
        return [] if bool(self.patterns.any()) else [NO_DETECTOR]


class NNGuide(HeadDetector):
    """Energy, guided by the similarity to the nearest training samples and by their own energy."""

    name = "nnguide"
    title = "energy times the mean cosine with the k nearest training samples, weighted by their energy"
    paper = "Park et al., Nearest Neighbor Guidance for Out-of-Distribution Detection, ICCV 2023"
    cost = "N d"
    choices = f"k = 10; at most {BANK:,} samples, evenly spaced"
    cross_fit = True
    k = 10
    bank: Tensor

    def __init__(self, n_classes: int, width: int) -> None:
        super().__init__(n_classes, width)
        self.register_buffer("bank", torch.zeros(0, width))

    def fit_features(self, features: Tensor, labels: Tensor) -> Self:
        """The samples with labels of at least 0, evenly subsampled, each scaled to norm −E."""
        some = spread(features[labels >= 0])
        self.bank = normalize(some, dim=1) * -self.energy(some)[:, None]
        return self

    def predict_features(self, features: Tensor) -> Tensor:
        """E(x) times the mean of the k largest −E_i cos(x, x_i)."""
        if not len(self.bank):
            return self.energy(features)
        near = (normalize(features, dim=1) @ self.bank.T).topk(min(self.k, len(self.bank))).values
        return self.energy(features) * near.mean(1)

    def notes(self) -> list[str]:
        """Without samples the score is the energy."""
        return [] if len(self.bank) else ["not one sample was selected as clean: nnguide's score is energy"]
