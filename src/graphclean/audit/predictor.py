"""Class or OOD for new embeddings, from what an audit learned."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy.optimize import minimize
from scipy.special import expit, softmax, xlogy
from torch import Tensor

from ..errors import InputError
from ..graph import Neighbours, nearest_neighbours
from ..ood import prototype_similarity
from .evidence import Standardiser
from .inputs import Labels, check_embeddings
from .label_model import Array, pieces

Detector = Literal["graph", "prototypes"]

NEIGHBOURS = 10
"""Training samples that speak for a new one."""
FLOOR = 1e-3
"""Shares count as at least this much, so that their logarithms stay within what ten neighbours can tell."""

BORDER = 0.5
"""P(OOD) from which a sample is rejected."""
FEW = 10
"""Samples of a kind under which nothing is said of what becomes of their like."""


class Calibration(NamedTuple):
    """Turns the shares of the neighbours into probabilities; fitted on the training samples."""

    temperature: float
    intercept: float
    slope: float

    def __call__(self, shares: Array) -> tuple[Array, Array]:
        """P(class | known) and P(OOD) from the neighbours' shares, whose last column is OOD."""
        known = softmax(self.temperature * np.log(np.maximum(shares[:, :-1], FLOOR)), axis=1)
        return known, expit(self.intercept + self.slope * logit(shares[:, -1]))


def fit_calibration(shares: Array, posterior: Array) -> Calibration:
    """Fit to what the audit believes of the training samples, each judged by its neighbours' shares."""
    log_shares = np.log(np.maximum(shares[:, :-1], FLOOR))
    log_shares -= log_shares.max(1, keepdims=True)
    odds = logit(shares[:, -1])
    classes, ood = posterior[:, :-1], posterior[:, -1]
    known, agreed = classes.sum(1), float((classes * log_shares).sum())
    start = np.array([0.0, 0.0, 1.0])

    def loss(theta: Array) -> tuple[float, Array]:
        """Mean cross-entropy with a penalty, and the gradient in (log t, intercept, slope)."""
        t, p = np.exp(theta[0]), expit(theta[1] + theta[2] * odds)
        log_total, expected = np.empty(len(ood)), np.empty(len(ood))
        for part in pieces(*log_shares.shape):
            weights = np.exp(t * log_shares[part])
            total = weights.sum(1)
            log_total[part], expected[part] = np.log(total), (weights * log_shares[part]).sum(1) / total
        fit = t * agreed - known @ log_total + xlogy(ood, p).sum() + xlogy(1 - ood, 1 - p).sum()
        slopes = np.array([t * (agreed - known @ expected), (ood - p).sum(), ((ood - p) * odds).sum()])
        away = theta - start
        return float(-fit / len(ood) + 1e-3 * away @ away), -slopes / len(ood) + 2e-3 * away

    theta = minimize(loss, start, jac=True, method="L-BFGS-B").x
    return Calibration(float(np.exp(theta[0])), float(theta[1]), float(theta[2]))


def expected_rejects(calibration: Calibration, shares: Array, posterior: Array) -> dict[str, float]:
    """Of inputs like the training samples, the shares of `known` ones and of `ood` ones that are rejected.

    Each is judged by its neighbours alone, as a new one would be, and is what the audit believes it to be.
    That is cautious: beliefs are less sure than they could be, so that more OOD and fewer known samples are
    rejected in the end. Nothing is said where there are too few known samples, or of `ood` too few of these.
    """
    rejected, ood = calibration(shares)[1] >= BORDER, posterior[:, -1]
    kinds = {"known": 1 - ood, "ood": ood}
    if kinds["known"].sum() < FEW:
        return {}
    return {kind: float(p @ rejected / p.sum()) for kind, p in kinds.items() if p.sum() >= FEW}


def neighbour_shares(found: Neighbours, posterior: Tensor) -> Array:
    """The posterior of the neighbours, averaged with their similarities as weights; rows sum to 1."""
    weights = found.similarities.clamp(min=0).to(posterior.dtype)
    total = weights.sum(1, keepdim=True)
    weights = torch.where(total > 0, weights / torch.where(total > 0, total, 1), 1 / weights.shape[1])
    parts = zip(torch.split(found.indices, 4096), torch.split(weights, 4096), strict=True)
    return torch.cat([torch.einsum("nk,nkc->nc", w, posterior[i]) for i, w in parts]).double().numpy()


@dataclass(frozen=True)
class Predictor:
    """The training nodes with what they are believed to be, and the class prototypes."""

    classes: list[int] | list[str]
    standardiser: Standardiser
    nodes: Tensor
    """Standardised unit embeddings, one a distinct training sample."""
    posterior: Tensor
    """P(class) for each class, then P(OOD), of the nodes."""
    calibration: Calibration
    prototypes: Tensor
    zeta: float
    """s(x) below which the prototypes reject: as many training samples lie below it as are estimated OOD."""

    def predict(
        self,
        z: Any,
        ids: list[str] | None = None,
        detector: Detector = "graph",
        progress: Callable[[int, int], None] | None = None,
    ) -> pd.DataFrame:
        """A row a sample: `id`, `predicted_label`, `probability`, `ood_score`, `verdict` (known or ood).

        `predicted_label` is always the best known class. `ood_score` is the chance of being OOD by the
        nearest training samples (`graph`), or 1 − s(x) of Eq. 9 (`prototypes`).
        """
        array = check_embeddings(z)
        width = len(self.standardiser.mean)
        if array.shape[1] != width:
            raise InputError(f"these embeddings have {array.shape[1]} columns, the run was made with {width}")
        unit = self.standardiser(array)
        if detector == "graph":
            found = nearest_neighbours(self.nodes, NEIGHBOURS, queries=unit, progress=progress)
            known, score = self.calibration(neighbour_shares(found, self.posterior))
            rejected = score >= BORDER
        else:
            cosine = prototype_similarity(unit, self.prototypes).double()
            known = (10 * cosine).softmax(1).numpy()
            score = 1 - cosine.amax(1).numpy()
            rejected = score > 1 - self.zeta
        best = known.argmax(1)
        return pd.DataFrame(
            {
                "id": pd.Series(ids if ids is not None else [str(i) for i in range(len(array))], dtype=str),
                "predicted_label": Labels(best, self.classes).names(best),
                "probability": known[np.arange(len(best)), best],
                "ood_score": score,
                "verdict": pd.Series(np.where(rejected, "ood", "known").astype(object), dtype=str),
            }
        )


def logit(share: Array) -> Array:
    """Of shares, as far as ten neighbours can tell."""
    p = np.clip(share, FLOOR, 1 - FLOOR)
    return np.asarray(np.log(p / (1 - p)))
