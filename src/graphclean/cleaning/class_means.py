"""k-NN combined with class means of whitened features, for new embeddings.

Neighbors follow classes of any shape, but ten neighbors are few. A class mean represents its whole class, but
only if the class is one round cluster. The weights of both are fitted on the training samples, each judged
without its own contribution, by maximum likelihood of the given labels.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.linalg import eigh
from scipy.optimize import minimize
from scipy.special import expit, softmax
from torch import Tensor
from torch.nn.functional import normalize

from ..graph import Neighbors
from ..graph.noise_model import NoiseModel, Probabilities, evenly_spaced
from ..ood import prototype_similarity
from .evidence import Copies
from .inputs import Array, Codes, Labels
from .knn_model import CALIBRATION_FLOOR, logit, neighbor_shares
from .scale import is_large, row_blocks
from .verdicts import Posterior, hold_posterior

SHRINKAGE = 0.6
"""Shrinkage of the covariance towards a multiple of the identity: a thousand samples can't determine a
million entries.
"""
DIRECTIONS = 256
"""Number of leading directions that are whitened individually; the others share one scale."""
MEANS_START = np.log([20.0, 0.5])
"""Initial log weights of cosines and log shares."""
MEANS_PRIOR_WEIGHT = 1.0
"""Weight of the squared distance from START against the log-likelihood, which keeps the weights finite."""
OOD_START = np.array([-1.5, 0.5, 1.5])
"""Initial parameters of P(OOD): intercept, weight of the neighbors' logit and of the deviation from class
means.
"""
OOD_PRIOR_WEIGHT = 10.0
"""Weight of the squared distance from OOD_START, except for the intercept, which must be free if nothing is
OOD.
"""
CHUNK = 4096
"""Samples processed at once."""
LEAST_LENGTH = 1e-5
"""Smallest squared length of a class mean without a sample, below which it counts as empty."""


@dataclass(frozen=True)
class Whitening:
    """Whitens features, so that all directions count equally, then normalizes rows to length 1."""

    mean: Tensor
    directions: Tensor
    """Orthonormal columns."""
    damping: Tensor
    """The fraction of each direction that is removed."""

    @classmethod
    def fit(cls, unit: Tensor) -> "Whitening":
        """Fit to standardized unit rows: their covariance, shrunk, to the power of −½."""
        mean = unit.mean(0)
        centered = (unit - mean).double().numpy()
        n, width = centered.shape
        total = float((centered**2).sum()) / n
        count = min(DIRECTIONS, n - 1, width)
        tall = n >= width
        gram = (centered.T @ centered if tall else centered @ centered.T) / n
        values, vectors = eigh(gram, subset_by_index=[len(gram) - count, len(gram) - 1])
        live = values > 1e-10 * total
        values, vectors = values[live], vectors[:, live]
        if not tall:
            vectors = centered.T @ vectors / np.sqrt(n * values)
        average = total / width
        rest = max(total - values.sum(), 0) / (width - len(values)) if len(values) < width else 0.0
        kept, flat = (SHRINKAGE * average + (1 - SHRINKAGE) * spread for spread in (values, rest))
        damping = 1 - np.sqrt(flat / kept)
        # In the order of memory that a saved one has, so that it says the same to the bit.
        parts = (np.ascontiguousarray(part, dtype=np.float32) for part in (vectors, damping))
        return cls(mean, *map(torch.as_tensor, parts))

    def __call__(self, unit: Tensor) -> Tensor:
        """Whitened unit rows."""
        centered = unit - self.mean
        whitened: Tensor = centered - (centered @ self.directions * self.damping) @ self.directions.T
        return normalize(whitened, dim=1)


class Weights(NamedTuple):
    """The weight of each."""

    centers: float
    neighbors: float


@dataclass(frozen=True)
class KnnClassMeans:
    """The classifier on standardized unit embeddings."""

    nodes: Tensor
    """The distinct training samples."""
    posterior: Tensor
    """P(class) for each class, then P(OOD), of the nodes."""
    whitening: Whitening
    centers: Tensor
    """For each class, the unit mean of the whitened nodes weighted by P(class)."""
    weights: Weights

    def known(self, unit: Tensor, shares: Tensor) -> Tensor:
        """log P(class | known), given the shares of each class and of OOD among the neighbors."""
        w = self.weights
        cosine = prototype_similarity(self.whitening(unit), self.centers).to(shares.dtype)
        log_shares = shares[:, :-1].clamp(min=CALIBRATION_FLOOR).log()
        return (w.centers * cosine + w.neighbors * log_shares).log_softmax(1)

    def tensors(self) -> dict[str, Tensor]:
        """All tensors except the weights, by name."""
        w = self.whitening
        whitening = {"mean": w.mean, "directions": w.directions, "damping": w.damping}
        return {"nodes": self.nodes, "posterior": self.posterior, "centers": self.centers, **whitening}

    @classmethod
    def restore(cls, tensors: dict[str, Tensor], weights: Any) -> "KnnClassMeans":
        """Rebuild from `tensors` and the weights in their order; KeyError or TypeError if they don't fit."""
        whitening = Whitening(tensors["mean"], tensors["directions"], tensors["damping"])
        nodes, posterior, centers = (tensors[name] for name in ("nodes", "posterior", "centers"))
        return cls(nodes, posterior, whitening, centers, Weights(*map(float, weights)))


class FittedClassMeans(NamedTuple):
    """Class means, and their leave-one-out prior on the training samples."""

    model: KnnClassMeans
    prior: Posterior
    """The prior of every sample, before its given label is taken into account."""


def fit_class_means(
    nodes: Tensor,
    near: Neighbors,
    copies: Copies,
    posterior: Posterior,
    labels: Codes,
    model: NoiseModel,
    whitening: Whitening,
) -> FittedClassMeans:
    """Fit to the posterior of the samples, their labels (−1: unlabeled) and the noise model; copies count
    once.

    `near` holds the nodes nearest to each of the `nodes`.
    """
    believed = torch.as_tensor(copies.average(np.column_stack(posterior)), dtype=torch.float32)
    blocks = list(row_blocks(len(nodes)))
    pull = sum(believed[block, :-1].T @ whitening(nodes[block]) for block in blocks)
    assert isinstance(pull, Tensor)
    kind = np.float32 if is_large(len(nodes)) else np.float64
    cosine = np.concatenate(
        [
            _leave_one_out(whitening(nodes[block]), believed[block, :-1], pull).astype(kind, copy=False)
            for block in blocks
        ]
    )
    shares = neighbor_shares(near, believed)
    if not copies.alone:
        cosine, shares = cosine[copies.node], shares[copies.node]
    log_shares = np.log(np.maximum(shares[:, :-1], CALIBRATION_FLOOR))
    voices = copies.voices(labels)
    some = voices[evenly_spaced(len(voices)).numpy()]
    known = 1 - posterior.ood[some]
    by_class = _fit_classes(cosine[some], log_shares[some], known, labels[some], model.transition.numpy())
    by_ood = _fit_ood(cosine[some].max(1), shares[some, -1], posterior.ood[some])
    class_means = KnnClassMeans(nodes, believed, whitening, normalize(pull, dim=1), Weights(*by_class))
    ood = expit(by_ood[0] + by_ood[1] * logit(shares[:, -1]) - by_ood[2] * cosine.max(1))
    classes = softmax(by_class[0] * cosine + by_class[1] * log_shares, axis=1)
    return FittedClassMeans(class_means, Posterior((1 - ood)[:, None] * classes, ood))


def combine_with_class_means(
    nodes: Tensor,
    near: Neighbors,
    copies: Copies,
    posterior: Posterior,
    given: Labels,
    model: NoiseModel,
    whitening: Whitening,
) -> tuple[Posterior, FittedClassMeans]:
    """Average the neighbors' posterior with the one from class means, and fit the class means to the result.

    Done only once: feeding a posterior back repeatedly amplifies its own errors.
    """
    labels = given.codes
    first = fit_class_means(nodes, near, copies, posterior, labels, model, whitening)
    prior = Probabilities(*map(torch.from_numpy, first.prior))
    second = Posterior(*(part.numpy() for part in model.update(prior, torch.from_numpy(labels))))
    both = Posterior((posterior.classes + second.classes) / 2, (posterior.ood + second.ood) / 2)
    both = hold_posterior(both, given)
    return both, fit_class_means(nodes, near, copies, both, labels, model, whitening)


def _leave_one_out(whitened: Tensor, own: Tensor, pull: Tensor) -> Array:
    """Cosines with the class means computed without each sample; 0 if nothing remains of a class."""
    whole = (pull.double() ** 2).sum(1)
    parts = []
    for unit, mine in zip(torch.split(whitened, CHUNK), torch.split(own.double(), CHUNK), strict=True):
        dot = (unit @ pull.T).double()
        left = whole - 2 * mine * dot + mine**2
        alive = left > LEAST_LENGTH * whole
        parts.append(torch.where(alive, (dot - mine) / torch.where(alive, left, 1).sqrt(), 0))
    return np.asarray(torch.cat(parts).numpy())


def _fit_classes(
    cosine: Array, log_shares: Array, known: Array, labels: Codes, transition: Array
) -> tuple[float, float]:
    """Maximum-likelihood weights for the given labels; samples are weighted by P(known)."""
    some = labels >= 0
    evidence = np.stack([cosine[some], log_shares[some]]).astype(np.float64, copy=False)
    to_given, known = transition.T[labels[some]], known[some]
    size = max(len(known), 1)

    def loss(theta: Array) -> tuple[float, Array]:
        weights = np.exp(theta)
        q = softmax(np.tensordot(weights, evidence, 1), axis=1)
        joint = q * to_given
        likely = joint.sum(1, keepdims=True)
        slope = known[:, None] * (joint / likely - q)
        gradient = -weights * np.tensordot(evidence, slope, 2)
        away = theta - MEANS_START
        value = MEANS_PRIOR_WEIGHT * away @ away - known @ np.log(likely[:, 0])
        return float(value) / size, (gradient + 2 * MEANS_PRIOR_WEIGHT * away) / size

    centers, neighbors = np.exp(minimize(loss, MEANS_START, jac=True, method="L-BFGS-B").x)
    return float(centers), float(neighbors)


def _fit_ood(similarity: Array, share: Array, believed: Array) -> tuple[float, float, float]:
    """Intercept and nonnegative weights of P(OOD), fitted to the posterior."""
    center, spread = float(similarity.mean()), float(similarity.std())
    spread = spread if spread > 1e-9 else 1.0
    design = np.column_stack([np.ones_like(share), logit(share), (center - similarity) / spread])
    counted = np.array([0.0, 1.0, 1.0])

    def loss(theta: Array) -> tuple[float, Array]:
        odds = design @ theta
        away = counted * (theta - OOD_START)
        value = (np.logaddexp(0, odds) - believed * odds).sum() + OOD_PRIOR_WEIGHT * away @ away
        gradient = design.T @ (expit(odds) - believed) + 2 * OOD_PRIOR_WEIGHT * away
        return float(value) / len(share), gradient / len(share)

    signs = [(None, None), (0, None), (0, None)]
    intercept, by_share, by_distance = minimize(loss, OOD_START, jac=True, bounds=signs, method="L-BFGS-B").x
    slope = by_distance / spread
    return float(intercept + slope * center), float(by_share), float(slope)
