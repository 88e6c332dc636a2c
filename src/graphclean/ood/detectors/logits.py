"""Detectors that read only logits, which every network has."""

from typing import Self

import torch
from torch import Tensor

from ..detector import Detector
from .prototypes import NO_DETECTOR


class MaxSoftmax(Detector):
    """1 − the probability of the most probable class."""

    name = "msp"
    needs = "logits"
    title = "1 − largest softmax probability"
    paper = "Hendrycks and Gimpel, A Baseline for Detecting Misclassified and OOD Examples, ICLR 2017"
    cost = "none"

    def predict_logits(self, logits: Tensor) -> Tensor:
        """1 − max p."""
        return 1 - logits.softmax(1).amax(1)


class MaxLogit(Detector):
    """− the largest logit."""

    name = "max-logit"
    needs = "logits"
    title = "− largest logit"
    paper = "Hendrycks et al., Scaling Out-of-Distribution Detection for Real-World Settings, ICML 2022"
    cost = "none"

    def predict_logits(self, logits: Tensor) -> Tensor:
        """− max l."""
        return -logits.amax(1)


class Energy(Detector):
    """The free energy of the logits at temperature 1."""

    name = "energy"
    needs = "logits"
    title = "− log-sum-exp of the logits"
    paper = "Liu et al., Energy-based Out-of-distribution Detection, NeurIPS 2020"
    cost = "none"
    choices = "temperature 1"

    def predict_logits(self, logits: Tensor) -> Tensor:
        """− log Σ exp l."""
        return -logits.logsumexp(1)


class Entropy(Detector):
    """The entropy of the predicted probabilities, in nats."""

    name = "entropy"
    needs = "logits"
    title = "entropy of the softmax probabilities"
    paper = "Hendrycks and Gimpel, A Baseline for Detecting Misclassified and OOD Examples, ICLR 2017"
    cost = "none"

    def predict_logits(self, logits: Tensor) -> Tensor:
        """− Σ p log p."""
        log_p = logits.log_softmax(1)
        return -(log_p.exp() * log_p).sum(1)


class GEN(Detector):
    """The generalized entropy of the largest probabilities; a sum, unlike the mean in pytorch-ood."""

    name = "gen"
    needs = "logits"
    title = "generalized entropy Σ pᵞ(1 − p)ᵞ of the largest probabilities"
    paper = "Liu et al., GEN: Pushing the Limits of Softmax-Based OOD Detection, CVPR 2023"
    cost = "none"
    choices = "γ = 0.1 and the 100 largest probabilities, as in the paper"
    gamma = 0.1
    largest = 100

    def predict_logits(self, logits: Tensor) -> Tensor:
        """Σ (p (1 − p))ᵞ, computed from logarithms, because rounding matters most near 0 and 1."""
        log_p = logits.log_softmax(1).sort(1, descending=True).values
        log_others = torch.cat([log_p[:, 1:].logsumexp(1, keepdim=True), torch.log1p(-log_p[:, 1:].exp())], 1)
        return (self.gamma * (log_p + log_others)[:, : self.largest]).exp().sum(1)


class KLMatching(Detector):
    """The smallest Kullback-Leibler divergence of the probabilities from the mean of a class."""

    name = "kl-matching"
    needs = "logits"
    title = "smallest KL divergence from the mean probabilities of a predicted class"
    paper = "Hendrycks et al., Scaling Out-of-Distribution Detection for Real-World Settings, ICML 2022"
    cost = "none"
    choices = "none; means are over samples selected as clean"
    cross_fit = True
    log_means: Tensor
    """(predicted classes, K)"""

    def __init__(self, n_classes: int, width: int) -> None:
        super().__init__(n_classes, width)
        self.register_buffer("log_means", torch.zeros(0, n_classes))

    def fit_logits(self, logits: Tensor, labels: Tensor) -> Self:
        """The mean probabilities of the selected samples by predicted class."""
        p = logits[labels >= 0].double().softmax(1)
        means = class_means(p, p.argmax(1), p.shape[1])
        self.log_means = means.clamp(min=torch.finfo(logits.dtype).tiny).log().to(logits.dtype)
        return self

    def predict_logits(self, logits: Tensor) -> Tensor:
        """min_c Σ p (log p − log mean_c)."""
        if not len(self.log_means):
            return logits.new_zeros(len(logits))
        log_p = logits.log_softmax(1)
        p = log_p.exp()
        return ((p * log_p).sum(1, keepdim=True) - p @ self.log_means.to(p.dtype).T).amin(1)

    def notes(self) -> list[str]:
        """Without means nothing can be rejected."""
        return [] if len(self.log_means) else [NO_DETECTOR]


def class_means(values: Tensor, classes: Tensor, n_classes: int) -> Tensor:
    """The mean row of each class that has samples."""
    total = values.new_zeros(n_classes, values.shape[1]).index_add_(0, classes, values)
    count = torch.bincount(classes, minlength=n_classes)
    return total[count > 0] / count[count > 0, None]
