"""Class or OOD for new embeddings by the nearest cleaned training samples."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy.optimize import minimize
from torch import Tensor, nn
from torch.nn.functional import normalize

from .._files import write_tensors
from ..data.progress import Progress
from ..errors import InputError
from ..graph import Neighbors
from ..graph.noise_model import pieces
from ..ood import Threshold
from ..ood.model import Judge, Judged, Predictions, RunKind, predict_table
from .detection import FeatureDetector
from .evidence import Standardizer
from .inputs import Array, Floats, check_embeddings
from .scale import fitted_on, is_large

MODEL, PROTOTYPES = "model.safetensors", "prototypes.safetensors"

NEIGHBORS = 10
"""Training samples that vote on a new one."""
CALIBRATION_FLOOR = 1e-3
"""Lower bound on shares, so that their logarithms stay within what ten neighbors can resolve."""

QUERIES_AT_ONCE = 4096
"""Samples processed at once."""
MATRIX_CELLS = 2**26
"""Similarities held in memory at once."""
TIE = 1e-5
"""Similarities closer than this may swap ranks by rounding."""


def known_probabilities(shares: Tensor, temperature: float) -> Tensor:
    """P(class | known) from the neighbors' shares, whose last column is OOD."""
    return (temperature * shares[:, :-1].clamp(min=CALIBRATION_FLOOR).log()).softmax(1)


def fit_temperature(shares: Array, posterior: Array) -> float:
    """The temperature under which the neighbors' shares best fit the posterior of the training samples."""
    some = fitted_on(len(shares))
    shares, posterior = shares[some], posterior[some]
    log_shares = np.log(np.maximum(shares[:, :-1], CALIBRATION_FLOOR))
    log_shares -= log_shares.max(1, keepdims=True)
    classes = posterior[:, :-1]
    known, agreed = classes.sum(1), float((classes * log_shares).sum())

    def loss(theta: Array) -> tuple[float, Array]:
        """Mean cross-entropy with a penalty, and its derivative in log t."""
        t = np.exp(theta[0])
        log_total, expected = np.empty(len(known)), np.empty(len(known))
        for part in pieces(*log_shares.shape):
            weights = np.exp(t * log_shares[part])
            total = weights.sum(1)
            log_total[part], expected[part] = np.log(total), (weights * log_shares[part]).sum(1) / total
        fit, slope = t * agreed - known @ log_total, t * (agreed - known @ expected)
        return float(-fit / len(known) + 1e-3 * theta[0] ** 2), -slope / len(known) + 2e-3 * theta

    return float(np.exp(minimize(loss, np.zeros(1), jac=True, method="L-BFGS-B").x[0]))


def neighbor_shares(found: Neighbors, posterior: Tensor) -> Array:
    """The posterior of the neighbors, averaged with similarities as weights; rows sum to 1."""
    weights = found.similarities.clamp(min=0).to(posterior.dtype)
    total = weights.sum(1, keepdim=True)
    weights = torch.where(total > 0, weights / torch.where(total > 0, total, 1), 1 / weights.shape[1])
    parts = zip(torch.split(found.indices, 4096), torch.split(weights, 4096), strict=True)
    shares = torch.cat([torch.einsum("nk,nkc->nc", w, posterior[i]) for i, w in parts])
    return (shares if is_large(len(shares)) else shares.double()).numpy()


class Near(NamedTuple):
    """The nearest training samples of some rows, summarized."""

    shares: Tensor
    """Shares of every class, then of OOD."""
    similarity: Tensor
    """Mean cosine."""


class NearestPosterior(nn.Module):
    """The mean posterior of the training samples nearest to unit rows, weighted by cosine."""

    nodes: Tensor
    """The nodes as columns."""
    posterior: Tensor

    def __init__(self, nodes: Tensor, posterior: Tensor) -> None:
        super().__init__()
        self.register_buffer("nodes", normalize(nodes, dim=1).T.contiguous())
        self.register_buffer("posterior", posterior)
        self.k = min(NEIGHBORS, len(nodes))

    def forward(self, unit: Tensor) -> Near:
        """Their mean posterior and mean similarity."""
        rows = max(1, MATRIX_CELLS // self.nodes.shape[1])
        if not torch.compiler.is_exporting() and len(unit) > rows:
            parts = [self(part) for part in torch.split(unit, rows)]
            return Near(*(torch.cat(column) for column in zip(*parts, strict=True)))
        similarity, nearest = (unit @ self.nodes).topk(self.k)
        weights = similarity.clamp(min=0)
        total = weights.sum(1, keepdim=True)
        weights = torch.where(total > 0, weights / torch.where(total > 0, total, 1), 1 / self.k)
        return Near((weights.unsqueeze(2) * self.posterior[nearest]).sum(1), similarity.mean(1))

    def steady(self, unit: Tensor) -> Tensor:
        """Rows that rounding can't change: their last neighbor is not tied with the next one."""
        if self.nodes.shape[1] == self.k:
            return torch.ones(len(unit), dtype=torch.bool)
        last = (unit @ self.nodes).topk(self.k + 1).values[:, -2:]
        return last[:, 0] - last[:, 1] > TIE

    def approach(self, standard: Tensor) -> Tensor:
        """Standardized features with every other row moved close to a training sample."""
        width, n = self.nodes.shape
        some = torch.linspace(0, n - 1, len(standard[::2])).long()
        moved = standard.clone()
        moved[::2] += 2 * width**0.5 * self.nodes.T[some]
        return moved


class KnnJudge(Judge):
    """Judging by the nearest training samples."""

    def __init__(self, model: "KnnModel") -> None:
        super().__init__()
        self.standardize = Standardize(model.standardizer)
        self.near = NearestPosterior(model.nodes, model.posterior)
        self.temperature = model.temperature
        self.detector = model.detector
        self.threshold = model.threshold

    def forward(self, inputs: Tensor) -> Judged:
        """P(class | known), the OOD score, and whether it exceeds the threshold."""
        unit = self._unit(inputs)
        near = self.near(unit)
        score = self.detector(unit, near.shares[:, -1], near.similarity)
        return Judged(known_probabilities(near.shares, self.temperature), score, score > self.threshold)

    def steady(self, inputs: Tensor) -> Tensor:
        """Inputs that rounding can't change."""
        return self.near.steady(self._unit(inputs))

    def examples(self, count: int) -> Tensor:
        """Random features, every other row close to a training sample."""
        generator = torch.Generator().manual_seed(0)
        standard = torch.randn(count, len(self.near.nodes), generator=generator)
        return self.standardize.invert(self.near.approach(standard))

    def _unit(self, inputs: Tensor) -> Tensor:
        return normalize(self.standardize(inputs), dim=1)


@dataclass(frozen=True)
class KnnModel:
    """The training nodes with their posterior."""

    classes: list[int] | list[str]
    standardizer: Standardizer
    nodes: Tensor
    """Standardized unit embeddings of the distinct training samples."""
    posterior: Tensor
    """P(class) for each class, then P(OOD), of the nodes."""
    temperature: float
    """Temperature that turns the neighbors' shares into probabilities."""
    detector: FeatureDetector
    found: Threshold
    """The threshold, and its effect on the training set."""
    kind: ClassVar[RunKind] = "clean"

    @property
    def threshold(self) -> float:
        """The OOD score above which an input is rejected."""
        return self.found.threshold

    @property
    def notes(self) -> list[str]:
        """Caveats that a user should know."""
        return []

    @property
    def obstacle(self) -> str | None:
        """None: it can be exported."""
        return None

    def describe_score(self) -> str:
        """A description of the score."""
        return self.detector.describe_score()

    def module(self) -> Judge:
        """The whole model as one module."""
        return KnnJudge(self)

    def check(self, z: Any) -> Floats:
        """Refuse embeddings that can't be scored; returns them as they are scored."""
        array = check_embeddings(z, double=self.standardizer.double)
        width = len(self.standardizer.mean)
        if array.shape[1] != width:
            raise InputError(f"these embeddings have {array.shape[1]} columns, the run was made with {width}")
        return array

    @torch.no_grad()
    def score(self, z: Any, progress: Progress | None = None) -> Predictions:
        """Score raw embeddings as used in training."""
        array = self.check(z)
        judge, done, parts = self.module(), 0, []
        for part in torch.split(torch.as_tensor(array), QUERIES_AT_ONCE):
            parts.append(judge(part))
            done += len(part)
            if progress is not None:
                progress("predicting", done, len(array))
        return Predictions.gather(parts)

    def predict(self, z: Any, ids: list[str] | None = None, progress: Progress | None = None) -> pd.DataFrame:
        """A row per sample: `id`, `predicted_label`, `probability`, `ood_score`, `verdict`."""
        return predict_table(self, z, ids, progress)

    def save(self, folder: Path) -> None:
        """Write the model files of a run folder."""
        tensors = {
            "nodes": self.nodes,
            "posterior": self.posterior,
            "mean": torch.as_tensor(self.standardizer.mean),
            "scale": torch.as_tensor(self.standardizer.scale),
        }
        tensors |= {f"detector.{name}": value for name, value in self.detector.state_dict().items()}
        facts = {"classes": self.classes, "temperature": self.temperature, "detector": self.detector.facts()}
        write_tensors(folder / MODEL, tensors, facts | {"found": asdict(self.found)})


class Standardize(nn.Module):
    """Standardizes raw features as over the training set."""

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
        """Features that would be rescaled to `standard`; the mean for constant features."""
        live = self.scale > 0
        return (self.mean + torch.where(live, standard / torch.where(live, self.scale, 1), 0)).float()


def logit(share: Array) -> Array:
    """Log-odds of shares, within what ten neighbors can resolve."""
    p = np.clip(share, CALIBRATION_FLOOR, 1 - CALIBRATION_FLOOR)
    return np.asarray(np.log(p / (1 - p)))
