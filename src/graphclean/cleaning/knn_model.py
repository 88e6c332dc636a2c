"""Class or OOD for new embeddings, from cleaned training samples."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy.optimize import minimize
from scipy.special import expit, xlogy
from torch import Tensor, nn
from torch.nn.functional import normalize

from .._files import write_tensors
from ..data.progress import Progress
from ..errors import InputError, suggest
from ..graph import Neighbors
from ..graph.noise_model import pieces
from ..ood import prototype_similarity
from ..ood.model import Judge, Judged, Predictions, RunKind, predict_table
from ..ood.prototypes import SHARPNESS
from .evidence import Standardizer
from .inputs import Array, check_embeddings

KNN_DETECTORS = ("knn", "prototypes")
MODEL, PROTOTYPES = "model.safetensors", "prototypes.safetensors"

NEIGHBORS = 10
"""Training samples that speak for a new one."""
CALIBRATION_FLOOR = 1e-3
"""Shares count as at least this much, so that their logarithms stay within what ten neighbors can tell."""

BORDER = 0.5
"""P(OOD) from which a sample is rejected."""
QUERIES_AT_ONCE = 4096
"""Samples at a time."""
MATRIX_CELLS = 2**26
"""Similarities that are held at once."""
TIE = 1e-5
"""Similarities closer than this may change places by rounding."""
FEW = 10
"""Samples of a kind under which nothing is said of what becomes of their like."""


class Calibration(NamedTuple):
    """Turns the shares of the neighbors into probabilities; fitted on the training samples."""

    temperature: float
    intercept: float
    slope: float

    def __call__(self, shares: Tensor) -> tuple[Tensor, Tensor]:
        """P(class | known) and P(OOD) from the neighbors' shares, whose last column is OOD."""
        known = (self.temperature * shares[:, :-1].clamp(min=CALIBRATION_FLOOR).log()).softmax(1)
        ood = shares[:, -1].clamp(CALIBRATION_FLOOR, 1 - CALIBRATION_FLOOR)
        return known, torch.sigmoid(self.intercept + self.slope * (ood / (1 - ood)).log())


def fit_calibration(shares: Array, posterior: Array) -> Calibration:
    """Fit to the posterior of the training samples, each judged by its neighbors' shares."""
    log_shares = np.log(np.maximum(shares[:, :-1], CALIBRATION_FLOOR))
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

    Each is judged by its neighbors alone, as a new one would be, and counts by its posterior. That is
    cautious: the posterior is less sure than it could be, so that more OOD and fewer known samples are
    rejected in the end. Nothing is said where there are too few known samples, or of `ood` too few of these.
    """
    rejected = (calibration(torch.as_tensor(shares))[1] > BORDER).numpy()
    ood = posterior[:, -1]
    kinds = {"known": 1 - ood, "ood": ood}
    if kinds["known"].sum() < FEW:
        return {}
    return {kind: float(p @ rejected / p.sum()) for kind, p in kinds.items() if p.sum() >= FEW}


def neighbor_shares(found: Neighbors, posterior: Tensor) -> Array:
    """The posterior of the neighbors, averaged with their similarities as weights; rows sum to 1."""
    weights = found.similarities.clamp(min=0).to(posterior.dtype)
    total = weights.sum(1, keepdim=True)
    weights = torch.where(total > 0, weights / torch.where(total > 0, total, 1), 1 / weights.shape[1])
    parts = zip(torch.split(found.indices, 4096), torch.split(weights, 4096), strict=True)
    return torch.cat([torch.einsum("nk,nkc->nc", w, posterior[i]) for i, w in parts]).double().numpy()


class NearestPosterior(nn.Module):
    """The mean posterior of the training samples nearest to unit rows, weighted by cosine."""

    nodes: Tensor
    """As columns."""
    posterior: Tensor

    def __init__(self, nodes: Tensor, posterior: Tensor) -> None:
        super().__init__()
        self.register_buffer("nodes", normalize(nodes, dim=1).T.contiguous())
        self.register_buffer("posterior", posterior)
        self.k = min(NEIGHBORS, len(nodes))

    def forward(self, unit: Tensor) -> Tensor:
        """The shares of every class, then of OOD."""
        rows = max(1, MATRIX_CELLS // self.nodes.shape[1])
        if not torch.compiler.is_exporting() and len(unit) > rows:
            return torch.cat([self(part) for part in torch.split(unit, rows)])
        similarity, nearest = (unit @ self.nodes).topk(self.k)
        weights = similarity.clamp(min=0)
        total = weights.sum(1, keepdim=True)
        weights = torch.where(total > 0, weights / torch.where(total > 0, total, 1), 1 / self.k)
        return (weights.unsqueeze(2) * self.posterior[nearest]).sum(1)

    def steady(self, unit: Tensor) -> Tensor:
        """Which rows rounding can't change: those whose last neighbor is no tie with the next one."""
        if self.nodes.shape[1] == self.k:
            return torch.ones(len(unit), dtype=torch.bool)
        last = (unit @ self.nodes).topk(self.k + 1).values[:, -2:]
        return last[:, 0] - last[:, 1] > TIE

    def approach(self, standard: Tensor) -> Tensor:
        """Standardized features with every other row moved near to a training sample."""
        width, n = self.nodes.shape
        some = torch.linspace(0, n - 1, len(standard[::2])).long()
        moved = standard.clone()
        moved[::2] += 2 * width**0.5 * self.nodes.T[some]
        return moved


class KnnJudge(Judge):
    """The nearest training samples as judges."""

    def __init__(self, model: "KnnModel") -> None:
        super().__init__()
        self.standardize = Standardize(model.standardizer)
        self.near = NearestPosterior(model.nodes, model.posterior)
        self.calibration = model.calibration
        self.threshold = model.threshold

    def forward(self, inputs: Tensor) -> Judged:
        """P(class | known), P(OOD), and whether that is above the threshold."""
        known, ood = self.calibration(self.near(self._unit(inputs)))
        return Judged(known, ood, ood > self.threshold)

    def steady(self, inputs: Tensor) -> Tensor:
        """Which inputs rounding can't change."""
        return self.near.steady(self._unit(inputs))

    def examples(self, count: int) -> Tensor:
        """Random features, every other one near a training sample."""
        generator = torch.Generator().manual_seed(0)
        standard = torch.randn(count, len(self.near.nodes), generator=generator)
        return self.standardize.invert(self.near.approach(standard))

    def _unit(self, inputs: Tensor) -> Tensor:
        return normalize(self.standardize(inputs), dim=1)


class PrototypeJudge(KnnJudge):
    """Class prototypes as judges."""

    prototypes: Tensor

    def __init__(self, model: "KnnModel") -> None:
        super().__init__(model)
        self.register_buffer("prototypes", model.prototypes)

    def forward(self, inputs: Tensor) -> Judged:
        """Probabilities from the cosines with the prototypes, and 1 − s(x)."""
        cosine = prototype_similarity(self._unit(inputs), self.prototypes)
        score = 1 - cosine.amax(1)
        return Judged((SHARPNESS * cosine).softmax(1), score, score > self.threshold)

    def steady(self, inputs: Tensor) -> Tensor:
        """All: cosines are continuous."""
        return torch.ones(len(inputs), dtype=torch.bool)


@dataclass(frozen=True)
class KnnModel:
    """The training nodes with what they are believed to be, and the class prototypes."""

    classes: list[int] | list[str]
    standardizer: Standardizer
    nodes: Tensor
    """Standardized unit embeddings, one a distinct training sample."""
    posterior: Tensor
    """P(class) for each class, then P(OOD), of the nodes."""
    calibration: Calibration
    prototypes: Tensor
    prototype_threshold: float
    """1 − s(x) above which prototypes reject: as many training samples lie above it as are probably OOD."""
    detector: str = KNN_DETECTORS[0]
    kind: ClassVar[RunKind] = "clean"

    @property
    def threshold(self) -> float:
        """The OOD score above which an input is rejected."""
        return BORDER if self.detector == "knn" else self.prototype_threshold

    @property
    def notes(self) -> list[str]:
        """What a user should know of it."""
        return []

    def describe_score(self) -> str:
        """What the OOD score is, in words."""
        return "probability of being OOD" if self.detector == "knn" else "1 − s(x)"

    def module(self) -> Judge:
        """All of it as one graph."""
        return KnnJudge(self) if self.detector == "knn" else PrototypeJudge(self)

    def with_detector(self, name: str) -> "KnnModel":
        """The nearest samples (`knn`) or the class prototypes (`prototypes`) tell what is OOD."""
        if name not in KNN_DETECTORS:
            raise InputError(f"no detector {name}; {suggest(name, KNN_DETECTORS)}")
        return replace(self, detector=name)

    @torch.no_grad()
    def score(self, z: Any, progress: Progress | None = None) -> Predictions:
        """Judge embeddings as they were given in training."""
        array = check_embeddings(z, double=self.standardizer.double)
        width = len(self.standardizer.mean)
        if array.shape[1] != width:
            raise InputError(f"these embeddings have {array.shape[1]} columns, the run was made with {width}")
        judge, done, parts = self.module(), 0, []
        for part in torch.split(torch.as_tensor(array), QUERIES_AT_ONCE):
            parts.append(judge(part))
            done += len(part)
            if progress is not None:
                progress("predicting", done, len(array))
        return Predictions.gather(parts)

    def predict(self, z: Any, ids: list[str] | None = None, progress: Progress | None = None) -> pd.DataFrame:
        """A row a sample: `id`, `predicted_label`, `probability`, `ood_score`, `verdict` (known or ood)."""
        return predict_table(self, z, ids, progress)

    def save(self, folder: Path) -> None:
        """Write the model files of a run folder."""
        tensors = {
            "nodes": self.nodes,
            "posterior": self.posterior,
            "mean": torch.as_tensor(self.standardizer.mean),
            "scale": torch.as_tensor(self.standardizer.scale),
        }
        write_tensors(
            folder / MODEL, tensors, {"classes": self.classes, "calibration": list(self.calibration)}
        )
        facts = {"threshold": self.prototype_threshold}
        write_tensors(folder / PROTOTYPES, {"prototypes": self.prototypes}, facts)


class Standardize(nn.Module):
    """Raw features to mean 0 and deviation 1, as over the training set."""

    mean: Tensor
    scale: Tensor

    def __init__(self, standardizer: Standardizer) -> None:
        super().__init__()
        self.register_buffer("mean", torch.as_tensor(standardizer.mean))
        self.register_buffer("scale", torch.as_tensor(standardizer.scale))

    def forward(self, features: Tensor) -> Tensor:
        """As `Standardizer.rescale`."""
        return ((features - self.mean) * self.scale).float()

    def invert(self, standard: Tensor) -> Tensor:
        """Features that would be rescaled to `standard`; the mean for those that are constant."""
        live = self.scale > 0
        return (self.mean + torch.where(live, standard / torch.where(live, self.scale, 1), 0)).float()


def logit(share: Array) -> Array:
    """Of shares, as far as ten neighbors can tell."""
    p = np.clip(share, CALIBRATION_FLOOR, 1 - CALIBRATION_FLOOR)
    return np.asarray(np.log(p / (1 - p)))
