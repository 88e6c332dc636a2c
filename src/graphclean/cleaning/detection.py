"""What is OOD among new embeddings: how far they lie from the training samples, and what OOD ones among
these teach.

Each training sample is judged as a new one would be: by the others alone. It is taken out of its neighbors,
of its class mean and of the covariance, in closed form.
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
"""Of the covariance towards a multiple of 1; of 0.05, 0.2, 0.5 and 0.9 the best on digits and CIFAR-10."""
WIDEST = 2048
"""Columns from which on features are projected at random to so many: distances stay, and time is saved."""
OOD_WEIGHTS = np.array([1.0, 0.0, 3.0, 1.0])
"""Of the signs in units of their deviation, where training held OOD.

They are not fitted: a posterior that takes samples far from all classes for OOD would count distance twice.
Of six sets of weights the one with the best mean AUROC on digits, CIFAR-10 and TinyImageNet, with noise and
without. On none of these is the mean over six splits more than 0.001 under that of the share alone; of fitted
weights it was 0.01 on one.
"""
SLOPE_PRIOR_WEIGHT = 5.0
"""Of the squared slope against the log-likelihood, of the weighted signs in units of their deviation."""
NODES_AT_ONCE = 4096
"""Of the training samples, as they are judged."""
LEAST_LEFT = 1e-6
"""Share of a class that others must hold, or without this sample there is no mean."""
SHARE_FLOOR = 1e-3
"""Shares count as at least this much: ten neighbors tell no more."""


class Signs(NamedTuple):
    """What speaks for a sample being OOD; larger means more."""

    centers: Tensor
    """1 − whitened cosine with the nearest class mean."""
    neighbors: Tensor
    """1 − mean cosine with the nearest training samples."""
    share: Tensor
    """Log-odds of the share of OOD among these."""
    ood_center: Tensor
    """Whitened cosine with the mean of the OOD samples."""


class SignWeights(NamedTuple):
    """Of the signs, and what is added."""

    intercept: float
    centers: float
    neighbors: float
    share: float
    ood_center: float


class FeatureDetector(nn.Module):
    """OOD scores of standardized unit embeddings.

    Where training held OOD samples, the share of OOD counts most (`OOD_WEIGHTS`), and the score is a
    probability. Where it held none, the score is a distance: the mean of those from the centers and from the
    neighbors, so weighted that both vary alike over the training samples.
    """

    mean: Tensor
    root: Tensor
    """(d, r): the root of the inverse covariance, shrunk."""
    centers: Tensor
    """Whitened mean of each class, then of OOD, of length 1."""

    def __init__(
        self, mean: Tensor, root: Tensor, centers: Tensor, weights: SignWeights, *, learned: bool
    ) -> None:
        """`learned`: training held OOD samples to learn from."""
        super().__init__()
        for name, tensor in (("mean", mean), ("root", root), ("centers", centers)):
            self.register_buffer(name, tensor)
        self.weights, self.learned = weights, learned

    @property
    def name(self) -> str:
        """As summary.json has it."""
        return "learned from OOD samples" if self.learned else "distance"

    def describe_score(self) -> str:
        """What the score is, in words."""
        if self.learned:
            return "probability of being OOD"
        return "cosine distance from class means and training samples"

    def forward(self, unit: Tensor, share: Tensor, similarity: Tensor) -> Tensor:
        """The score, with the share of OOD among the nearest training samples and their mean cosine."""
        whitened = (unit - self.mean) @ self.root
        known = prototype_similarity(whitened, self.centers[:-1]).amax(1)
        ood = normalize(whitened, dim=1) @ self.centers[-1:].T
        signs = Signs(1 - known, 1 - similarity, log_odds(share), ood[:, 0])
        return self.weigh(signs)

    def weigh(self, signs: Signs) -> Tensor:
        """The score of signs."""
        intercept, *weights = self.weights
        total = torch.full_like(signs.centers, intercept)
        for weight, sign in zip(weights, signs, strict=True):
            total = total + weight * sign
        return torch.sigmoid(total) if self.learned else total

    def facts(self) -> dict[str, Any]:
        """The rest."""
        return {"weights": list(self.weights), "learned": self.learned}

    @classmethod
    def restore(cls, tensors: dict[str, Tensor], facts: Any) -> "FeatureDetector":
        """From its buffers and `facts`; KeyError, TypeError or ValueError where they are something else's."""
        mean, root, centers = (tensors[name] for name in ("mean", "root", "centers"))
        weights = SignWeights(*map(float, facts["weights"]))
        if root.shape != (len(mean), centers.shape[1]) or not np.isfinite(weights).all():
            raise ValueError("the detector's parts don't fit together")
        if not all(tensor.isfinite().all() for tensor in (mean, root, centers)):
            raise ValueError("the detector holds other than numbers")
        return cls(mean, root, centers, weights, learned=bool(facts["learned"]))


@dataclass(frozen=True)
class Detection:
    """A detector, and what it says of the training nodes, each judged by the others alone."""

    detector: FeatureDetector
    score: Array
    found: Threshold


def fit_detector(
    nodes: Tensor, near: Neighbors, shares: Array, posterior: Array, settings: OodSettings
) -> Detection:
    """Fit to the distinct training samples: unit rows, the nearest others of each and what shares of classes
    these give, and their P(class) and P(OOD).
    """
    ood = posterior[:, -1]
    mean, root, centers, cosines = _whiten(nodes, torch.as_tensor(posterior))
    signs = Signs(
        1 - cosines[:, 0],
        1 - near.similarities.double().mean(1),
        log_odds(torch.as_tensor(shares[:, -1])),
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
    """Of shares, as far as ten neighbors can tell."""
    p = share.clamp(SHARE_FLOOR, 1 - SHARE_FLOOR)
    return (p / (1 - p)).log()


def _whiten(nodes: Tensor, own: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Mean, root and centers, and of each node the largest cosine with a class and that with OOD, each as
    they would be without it.
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
        mine.T @ (centered(part) @ root)
        for part, mine in zip(torch.split(nodes, NODES_AT_ONCE), torch.split(own, NODES_AT_ONCE), strict=True)
    )
    assert isinstance(pull, Tensor)
    total = own.sum(0)
    centers = pull / total.clamp(min=1e-12)[:, None]
    parts = []
    for part, mine in zip(torch.split(nodes, NODES_AT_ONCE), torch.split(own, NODES_AT_ONCE), strict=True):
        cosine = leave_one_out(centered(part) @ root, mine, centers, total, n)
        parts.append(torch.column_stack([cosine[:, :-1].amax(1), cosine[:, -1]]))
    full = root if project is None else project @ root
    return mean.float(), full.float(), normalize(centers, dim=1).float(), torch.cat(parts)


def leave_one_out(whitened: Tensor, own: Tensor, centers: Tensor, total: Tensor, n: int) -> Tensor:
    """Cosines of some of `n` centered, whitened samples with all `centers`, as they would be without each;
    −1 where nothing is left of a center.

    `own` is what each gives to each of the centers, `total` what all give. With mean m and covariance C taken
    of the others, x moves by a factor, a center on a line towards x, and the inverse of C by a matrix of rank
    one (Sherman and Morrison); the ridge stays.
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
    """Centers and neighbors, as much of either as it varies less: a mean of both distances."""
    centers, neighbors = (1 / max(float(sign.std(correction=0)), 1e-9) for sign in signs[:2])
    return SignWeights(0.0, centers / (centers + neighbors), neighbors / (centers + neighbors), 0.0, 0.0)


def _learn(signs: Array, believed: Array) -> SignWeights:
    """OOD_WEIGHTS, so scaled that the score is the maximum-likelihood probability of what is believed to be
    OOD; never negative.
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
