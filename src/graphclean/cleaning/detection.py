"""OOD detection for new embeddings: distance from the training samples, and similarity to OOD among them.

Each training sample is scored like a new one, by the others alone. It is removed from its neighbors, from its
class mean and from the covariance, in closed form.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize
from scipy.special import expit
from torch import Tensor, nn
from torch.nn.functional import normalize

from ..config import OodSettings
from ..graph import Neighbors
from ..graph.noise_model import evenly_spaced
from ..ood import Threshold, find_threshold, holds_ood, prototype_similarity
from .inputs import Array

RIDGE = 0.5
"""Shrinkage of the covariance towards a multiple of the identity; the best of 0.05, 0.2, 0.5 and 0.9 on
digits and CIFAR-10.
"""
WIDEST = 2048
"""Wider features are projected at random to this many columns: distances are preserved at lower cost."""
OOD_WEIGHTS = np.array([1.0, 0.0, 3.0, 1.0])
"""Weights of the signs in units of their standard deviation, if training contained OOD.

They are not fitted: a posterior that counts samples far from all classes as OOD would count distance twice.
They are the best by mean AUROC of six sets of weights on digits, CIFAR-10 and TinyImageNet, with and without
noise. On none of these is the mean over six splits more than 0.001 below that of the OOD share alone; with
fitted weights it was 0.01 below on one.
"""
SLOPE_PRIOR_WEIGHT = 5.0
"""Weight of the squared slope against the log-likelihood, for weighted signs in units of their standard
deviation.
"""
NODES_AT_ONCE = 4096
"""Training samples scored at once."""
LEAST_LEFT = 1e-6
"""Fraction of a class that must remain without a sample; otherwise the class has no mean."""
SHARE_FLOOR = 1e-3
"""Lower bound on shares: ten neighbors can't resolve less."""


class Signs(NamedTuple):
    """Indicators of OOD; larger means more OOD."""

    centers: Tensor
    """1 − whitened cosine with the nearest class mean."""
    neighbors: Tensor
    """1 − mean cosine with the nearest training samples."""
    share: Tensor
    """Log-odds of the share of OOD among these neighbors."""
    ood_center: Tensor
    """Whitened cosine with the mean of the OOD samples."""


class SignWeights(NamedTuple):
    """Weights of the signs, and an intercept."""

    intercept: float
    centers: float
    neighbors: float
    share: float
    ood_center: float


class FeatureDetector(nn.Module):
    """OOD scores of standardized unit embeddings.

    If training contained OOD samples, the share of OOD among the neighbors has the largest weight
    (`OOD_WEIGHTS`), and the score is a probability. Otherwise the score is a distance: the mean of the
    distances to class means and to neighbors, weighted so that both vary equally over the training samples.
    """

    mean: Tensor
    root: Tensor
    """(d, r): the root of the inverse covariance, shrunk."""
    centers: Tensor
    """Whitened unit mean of each class, then of OOD."""

    def __init__(
        self, mean: Tensor, root: Tensor, centers: Tensor, weights: SignWeights, *, learned: bool
    ) -> None:
        """`learned`: training contained OOD samples to learn from."""
        super().__init__()
        for name, tensor in (("mean", mean), ("root", root), ("centers", centers)):
            self.register_buffer(name, tensor)
        self.weights, self.learned = weights, learned

    @property
    def name(self) -> str:
        """The name in summary.json."""
        return "learned from OOD samples" if self.learned else "distance"

    def describe_score(self) -> str:
        """A description of the score."""
        if self.learned:
            return "probability of being OOD"
        return "cosine distance from class means and training samples"

    def forward(self, unit: Tensor, share: Tensor, similarity: Tensor) -> Tensor:
        """The score, given the share of OOD among the nearest training samples and their mean cosine."""
        whitened = (unit - self.mean) @ self.root
        known = prototype_similarity(whitened, self.centers[:-1]).amax(1)
        ood = normalize(whitened, dim=1) @ self.centers[-1:].T
        signs = Signs(1 - known, 1 - similarity, log_odds(share), ood[:, 0])
        return self.weigh(signs)

    def weigh(self, signs: Signs) -> Tensor:
        """The score from the signs."""
        intercept, *weights = self.weights
        total = torch.full_like(signs.centers, intercept)
        for weight, sign in zip(weights, signs, strict=True):
            total = total + weight * sign
        return torch.sigmoid(total) if self.learned else total

    def facts(self) -> dict[str, Any]:
        """What is not stored in buffers."""
        return {"weights": list(self.weights), "learned": self.learned}

    @classmethod
    def restore(cls, tensors: dict[str, Tensor], facts: Any) -> "FeatureDetector":
        """Rebuild from buffers and `facts`; KeyError, TypeError or ValueError if they don't fit."""
        mean, root, centers = (tensors[name] for name in ("mean", "root", "centers"))
        weights = SignWeights(*map(float, facts["weights"]))
        if mean.ndim != 1 or centers.ndim != 2:
            raise ValueError("the detector's parts don't have the right shape")
        if root.shape != (len(mean), centers.shape[1]) or not np.isfinite(weights).all():
            raise ValueError("the detector's parts don't fit together")
        if not all(tensor.isfinite().all() for tensor in (mean, root, centers)):
            raise ValueError("the detector holds other than numbers")
        return cls(mean, root, centers, weights, learned=bool(facts["learned"]))


@dataclass(frozen=True)
class Detection:
    """A detector, and its scores of the training nodes, each judged by the others alone."""

    detector: FeatureDetector
    score: Array
    found: Threshold


def fit_detector(
    nodes: Tensor, near: Neighbors, shares: Array, posterior: Array, settings: OodSettings
) -> Detection:
    """Fit to the distinct training samples: unit rows, the nearest other rows of each with their class
    shares, and their P(class) and P(OOD).
    """
    ood = posterior[:, -1]
    mean, root, centers, cosines = _whiten(nodes, torch.as_tensor(posterior))
    signs = Signs(
        1 - cosines[:, 0],
        1 - near.similarities.double().mean(1),
        log_odds(torch.as_tensor(shares[:, -1]).double()),
        cosines[:, 1],
    )
    # Neighbors can't tell: OOD samples of one kind have each other.
    learned = holds_ood(signs.centers.numpy(), ood)
    weights = _learn(np.column_stack(signs), ood) if learned else _by_distance(signs)
    detector = FeatureDetector(mean, root, centers, weights, learned=learned)
    score = detector.weigh(signs).numpy()
    good = score[ood <= 0.5] if learned else score
    found = find_threshold(score, ood, settings, learned=learned, good=good)
    # Which samples are good is then a verdict, so that the share is an estimate and no promise.
    return Detection(detector, score, replace(found, promised=None) if learned else found)


def log_odds(share: Tensor) -> Tensor:
    """Log-odds of shares, within what ten neighbors can resolve."""
    p = share.clamp(SHARE_FLOOR, 1 - SHARE_FLOOR)
    return (p / (1 - p)).log()


def _whiten(nodes: Tensor, own: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Mean, root and class means, and the largest cosine of each node with a class and with OOD, computed
    without the node itself.
    """
    n, width = nodes.shape
    mean = nodes.double().mean(0)
    project = None
    if width > WIDEST:
        generator = torch.Generator().manual_seed(0)
        project = torch.randn(width, WIDEST, generator=generator, dtype=torch.double) / WIDEST**0.5

    def centered(part: Tensor) -> Tensor:
        away = part.double() - mean
        return away if project is None else away @ project

    covariance = sum(part.T @ part for part in map(centered, torch.split(nodes, NODES_AT_ONCE))) / n
    assert isinstance(covariance, Tensor)
    size = covariance.diagonal().mean()
    shrunk = (1 - RIDGE) * covariance + RIDGE * size * torch.eye(len(covariance), dtype=torch.double)
    root = torch.linalg.inv(torch.linalg.cholesky(shrunk)).T
    pull = sum(
        mine.double().T @ (centered(part) @ root)
        for part, mine in zip(torch.split(nodes, NODES_AT_ONCE), torch.split(own, NODES_AT_ONCE), strict=True)
    )
    assert isinstance(pull, Tensor)
    total = own.sum(0, dtype=torch.double)
    centers = pull / total.clamp(min=1e-12)[:, None]
    parts = []
    for part, mine in zip(torch.split(nodes, NODES_AT_ONCE), torch.split(own, NODES_AT_ONCE), strict=True):
        cosine = leave_one_out(centered(part) @ root, mine.double(), centers, total, n)
        parts.append(torch.column_stack([cosine[:, :-1].amax(1), cosine[:, -1]]))
    full = root if project is None else project @ root
    return mean.float(), full.float(), normalize(centers, dim=1).float(), torch.cat(parts)


def leave_one_out(whitened: Tensor, own: Tensor, centers: Tensor, total: Tensor, n: int) -> Tensor:
    """Cosines of some of `n` centered, whitened samples with all `centers`, computed without each sample; −1
    if nothing remains of a center.

    `own` is the contribution of each sample to each center, `total` the sum of all. With mean m and
    covariance C of the other samples, x is rescaled, a center moves along x, and the inverse of C changes by
    a matrix of rank one (Sherman-Morrison); the ridge is unchanged.
    """
    size = (whitened**2).sum(1, keepdim=True)
    along = whitened @ centers.T
    length = (centers**2).sum(1)
    left = total - own
    alive = left > LEAST_LEFT * total
    left = torch.where(alive, left, 1)
    scale, shift = total / left, 1 / (n - 1) - own / left
    to_center = scale * along + shift * size
    of_center = scale**2 * length + 2 * scale * shift * along + shift**2 * size
    taken = (1 - RIDGE) / (n - 1)
    lift = taken / (1 - taken * size)
    cosine = (to_center + lift * size * to_center) / (
        (size + lift * size**2) * (of_center + lift * to_center**2)
    ).clamp(min=1e-30).sqrt()
    return torch.where(alive, cosine, -1.0)


def _by_distance(signs: Signs) -> SignWeights:
    """Weights of class means and neighbors in inverse proportion to their variation: a mean of both
    distances.
    """
    centers, neighbors = (1 / max(float(sign.std(correction=0)), 1e-9) for sign in signs[:2])
    return SignWeights(0.0, centers / (centers + neighbors), neighbors / (centers + neighbors), 0.0, 0.0)


def _learn(signs: Array, believed: Array) -> SignWeights:
    """OOD_WEIGHTS, scaled so that the score is the maximum-likelihood probability of OOD under the posterior;
    never negative.
    """
    some = evenly_spaced(len(signs)).numpy()
    weights = OOD_WEIGHTS / np.maximum(signs.std(0), 1e-9)
    total, target = signs @ weights, believed[some]
    middle, spread = total.mean(), max(float(total.std()), 1e-9)
    standard = (total[some] - middle) / spread

    def loss(theta: Array) -> tuple[float, Array]:
        intercept, slope = theta
        odds = intercept + slope * standard
        value = (np.logaddexp(0, odds) - target * odds).sum() + SLOPE_PRIOR_WEIGHT * slope**2
        away = expit(odds) - target
        gradient = np.array([away.sum(), away @ standard + 2 * SLOPE_PRIOR_WEIGHT * slope])
        return float(value) / len(some), gradient / len(some)

    bounds = [(None, None), (0, None)]
    intercept, slope = minimize(loss, np.zeros(2), jac=True, bounds=bounds, method="L-BFGS-B").x
    slope /= spread
    return SignWeights(float(intercept - slope * middle), *map(float, slope * weights))
