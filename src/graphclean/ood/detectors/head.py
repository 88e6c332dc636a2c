"""Detectors that read features together with the weights of the classifier."""

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
"""A length that is none."""


class HeadDetector(Detector):
    """Keeps the classifier's weights, and so has the logits of features."""

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
        """Keep the classifier."""
        self.weight, self.bias = weight.detach().clone(), bias.detach().clone()

    def fit_features(self, features: Tensor, labels: Tensor) -> Self:  # noqa: ARG002
        """Some have nothing more to learn."""
        return self

    def logits(self, features: Tensor) -> Tensor:
        """Of the classifier."""
        return features @ self.weight.T + self.bias

    def energy(self, features: Tensor) -> Tensor:
        """− log Σ exp of the logits."""
        return -self.logits(features).logsumexp(1)


class ViM(HeadDetector):
    """What of the features lies outside their principal space, as a logit next to those of the classes."""

    name = "vim"
    title = "scaled norm of features outside their principal space, plus energy"
    paper = "Wang et al., ViM: Out-Of-Distribution with Virtual-logit Matching, CVPR 2022"
    cost = "d² / 2"
    choices = "the principal space has half of the dimensions; from 1,500 on, 512"
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
        """The principal space of the selected samples, around the point where all logits are 0."""
        x = features[labels >= 0]
        origin = -torch.linalg.pinv(self.weight.double()) @ self.bias.double()
        moment = scatter(x, origin[None], torch.zeros_like(labels[labels >= 0]))
        vectors = torch.linalg.eigh(moment / max(len(x), 1)).eigenvectors
        residual = vectors[:, : features.shape[1] - self.dimensions]
        self.origin, self.residual = (part.to(features.dtype).contiguous() for part in (origin, residual))
        self.alpha = torch.zeros_like(self.alpha, dtype=features.dtype)
        outside = vector_norm((x - self.origin) @ self.residual, dim=1).mean() if len(x) else self.alpha
        if float(outside) > 0:
            # A negative scale would take what lies outside for a sign of being known.
            self.alpha = self.logits(x).amax(1).mean().clamp(min=0) / outside
        return self

    def predict_features(self, features: Tensor) -> Tensor:
        """α ‖Rᵀ(x − u)‖ − log Σ exp l."""
        outside: Tensor = vector_norm((features - self.origin) @ self.residual, dim=1)
        return self.alpha * outside + self.energy(features)

    def notes(self) -> list[str]:
        """Without a residual it is energy."""
        if float(self.alpha) > 0:
            return []
        return ["vim found nothing outside the principal space of the selected samples: its score is energy"]


class FDBD(HeadDetector):
    """How near the decision boundaries are, next to how far the mean of all features is."""

    name = "fdbd"
    title = "− mean distance to the decision boundaries, by that from the mean feature"
    paper = "Liu and Qin, Fast Decision Boundary based OOD Detector, ICML 2024"
    cost = "none"
    choices = "none"
    mean: Tensor
    closeness: Tensor
    """(K, K): 1 over the distance of two classes' weights, 0 where they are equal."""

    def __init__(self, n_classes: int, width: int) -> None:
        super().__init__(n_classes, width)
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("closeness", torch.zeros(n_classes, n_classes))

    def take_head(self, weight: Tensor, bias: Tensor) -> None:
        """Keep the classifier, and how far its classes are from each other."""
        super().take_head(weight, bias)
        gaps = torch.cdist(self.weight.double(), self.weight.double(), compute_mode=EXACT)
        self.closeness = torch.where(gaps > 0, 1 / gaps, 0).to(weight.dtype)

    def fit_features(self, features: Tensor, labels: Tensor) -> Self:
        """The mean of the selected samples, or of all where there are none."""
        known = labels >= 0
        self.mean = features[known if bool(known.any()) else slice(None)].mean(0)
        return self

    def predict_features(self, features: Tensor) -> Tensor:
        """− mean over the other classes of (l_ŷ − l_c) / ‖w_ŷ − w_c‖, by ‖x − μ‖."""
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
    choices = "none; means are over selected samples that are predicted as selected"
    patterns: Tensor

    def __init__(self, n_classes: int, width: int) -> None:
        super().__init__(n_classes, width)
        self.register_buffer("patterns", torch.zeros(n_classes, width))

    def fit_features(self, features: Tensor, labels: Tensor) -> Self:
        """The mean feature of each class; of one that is never predicted so, that of all its samples, and of
        one without samples that of all classes.
        """
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
        """Without any mean nothing can be rejected."""
        return [] if bool(self.patterns.any()) else [NO_DETECTOR]


class NNGuide(HeadDetector):
    """Energy, guided by the nearest training samples and how sure the classifier is of these."""

    name = "nnguide"
    title = "energy times the mean cosine with the k nearest training samples, weighted by theirs"
    paper = "Park et al., Nearest Neighbor Guidance for Out-of-Distribution Detection, ICCV 2023"
    cost = "N d"
    choices = f"k 10; of N > {BANK:,} samples so many, evenly spaced"
    cross_fit = True
    k = 10
    bank: Tensor

    def __init__(self, n_classes: int, width: int) -> None:
        super().__init__(n_classes, width)
        self.register_buffer("bank", torch.zeros(0, width))

    def fit_features(self, features: Tensor, labels: Tensor) -> Self:
        """The samples with labels of at least 0, evenly thinned out, each as long as its energy."""
        some = spread(features[labels >= 0])
        self.bank = normalize(some, dim=1) * -self.energy(some)[:, None]
        return self

    def predict_features(self, features: Tensor) -> Tensor:
        """E(x) · mean of the k largest E_i cos(x, x_i), negative."""
        if not len(self.bank):
            return self.energy(features)
        near = (normalize(features, dim=1) @ self.bank.T).topk(min(self.k, len(self.bank))).values
        return self.energy(features) * near.mean(1)

    def notes(self) -> list[str]:
        """Without any sample it is energy."""
        return [] if len(self.bank) else ["not one sample was selected as clean: nnguide's score is energy"]
