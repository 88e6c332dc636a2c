"""One cleaning step per epoch: the state that the graph keeps between epochs, independent of networks and
images.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ..config import GraphSettings
from ..config.settings import ESTIMATED
from ..distributed.group import ALONE, Group
from .acceptance import PROBABLE, find_sure
from .csr import Graph, as_csr
from .knn import divide_neighbors, knn_graph
from .noise_model import find_class_dependent_noise
from .propagation import gather_evidence, normalize_graph, weight_graph
from .selection import (
    Confident,
    confident_edges,
    confident_labels,
    select_components,
)
from .votes import choose_k, estimate_votes, most_neighbors


@dataclass(frozen=True)
class Cleaned:
    """The decisions of one step, one row per sample."""

    selected: Tensor
    """The clean set: confident, and in the largest component of the sample's class."""
    labels: Tensor
    """Hard pseudo-labels ŷ."""
    soft_labels: Tensor
    """Ỹ; rows sum to 1."""
    confident: Tensor
    """Passed Eq. 3."""
    degrees: Tensor
    """Edges to other confident nodes, counted in both directions; 0 for nodes that are not confident."""
    graph: Tensor | None = None
    """The k-NN graph of this step in CSR form, if one was built."""


class GraphCleaner:
    """Noise correction and subgraph selection, one call per epoch.

    Tensors stay on the device of `labels`; a label below 0 means unlabeled.

    Examples
    --------
    >>> cleaner = GraphCleaner(labels, n_classes=10)
    >>> for epoch in range(epochs):
    ...     cleaned = cleaner.step(z, logits)          # whole training set, evaluation mode
    ...     train_one_epoch(cleaned.selected, cleaned.labels)
    """

    def __init__(
        self,
        labels: Tensor,
        n_classes: int,
        settings: GraphSettings | None = None,
        *,
        decided: Tensor | None = None,
        group: Group = ALONE,
    ) -> None:
        """`decided` holds human decisions, which no step changes: a class, or OOD (`n_classes`); −1
        elsewhere. A `group` of processes, each of which calls every step with the same z and logits, divides
        the work.
        """
        _require_tensor("labels", labels)
        if settings is not None and not isinstance(settings, GraphSettings):
            raise TypeError(f"settings are GraphSettings(k=20, …), not {type(settings).__name__}")
        if labels.ndim != 1 or labels.is_floating_point():
            kind = f"{labels.dtype} of shape {tuple(labels.shape)}"
            raise ValueError(f"labels are one whole number a sample, not {kind}")
        if len(labels) == 0:
            raise ValueError("there are no labels to clean")
        if int(labels.max()) >= n_classes:
            raise ValueError(f"label {int(labels.max())} is outside the {n_classes} classes")
        self.settings = settings if settings is not None else GraphSettings()
        self.n_classes = n_classes
        self.given = labels.long().clone()  # a loop may write what was cleaned into its own
        self.decided = decided
        self.group = group
        self.epoch = 0
        s = self.settings
        self.k = most_neighbors(len(labels), n_classes) if s.k == "auto" else s.k
        """Neighbors used by the next step; with `auto`, the maximum until the noise has been estimated."""
        self.votes = math.inf
        """With `auto`, the number of votes needed to tell a class, estimated in the last step."""
        self._logits = torch.zeros(len(labels), n_classes, device=labels.device)
        self.labels = self.given.clamp(min=0)
        """ŷ of the last step; before the first step, the given labels."""
        self.selected = self.given >= 0
        """The selection of the last step."""

    @property
    def suffices(self) -> bool:
        """With `auto`, whether the maximum number of neighbors is enough to tell the classes apart."""
        most = most_neighbors(len(self.given), self.n_classes)
        return self.votes * (1 - self.settings.alpha) ** 2 <= most

    @torch.no_grad()
    def step(
        self, z: Tensor | None, logits: Tensor, *, graph: Graph | None = None, excluded: Tensor | None = None
    ) -> Cleaned:
        """Clean once, given `z` (N, d) and `logits` (N, K) of the whole set, or a k-NN `graph` in place of
        `z`.

        `excluded` marks samples that are never confident, whatever their neighbors say. Runs outside of the
        caller's autocast.
        """
        self._check(z, logits)
        with torch.autocast(self.given.device.type, enabled=False):
            return self._clean(z, logits, graph, excluded)

    def _check(self, z: Tensor | None, logits: Tensor) -> None:
        """Refuse inputs whose errors would spread unnoticed: mismatched shapes and NaN."""
        for name, values in (("z", z), ("logits", logits)):
            if values is not None:
                _require_tensor(name, values)
        wanted = (len(self.given), self.n_classes)
        if logits.shape != wanted:
            raise ValueError(f"logits are of shape {tuple(logits.shape)}, not {wanted}: samples, classes")
        for name, values in (("z", z), ("logits", logits)):
            if values is not None and not bool(values.isfinite().all()):
                raise ValueError(f"{name} holds NaN or infinite values")

    def _clean(
        self, z: Tensor | None, logits: Tensor, graph: Graph | None, excluded: Tensor | None
    ) -> Cleaned:
        s = self.settings
        if graph is not None:
            neighbors = as_csr(graph, device=self.given.device)
        elif z is not None:
            exact = z if z.dtype == torch.float64 else z.float()
            neighbors = knn_graph(divide_neighbors(exact, self.k, self.group))
        else:
            raise ValueError("a step needs embeddings z or a graph")
        if neighbors.shape[0] != len(self.given):
            raise ValueError(f"the graph has {neighbors.shape[0]} nodes for {len(self.given)} labels")
        soft, (labels, confident) = self._judge(neighbors, self._start(logits))
        if not s.confidence:
            confident = torch.ones_like(confident)
        if excluded is not None:
            confident = confident & ~excluded
        sure = None
        if self.decided is not None:
            sure = (self.decided >= 0) & (self.decided < self.n_classes)
            labels = torch.where(sure, self.decided, labels)
            confident = torch.where(self.decided >= 0, sure, confident)
        rows, cols = confident_edges(neighbors, confident)
        degrees = torch.bincount(torch.cat([rows, cols]), minlength=len(labels))
        selected = confident
        if s.geometry:
            selected = select_components(rows, cols, labels, confident, self.n_classes, s.lcc_edges)
        if sure is not None:
            selected = selected | sure
        self.labels, self.selected = labels.clone(), selected.clone()
        self.epoch += 1
        return Cleaned(selected, labels, soft, confident, degrees, neighbors)

    def _judge(self, neighbors: Tensor, Y: Tensor) -> tuple[Tensor, Confident]:
        """Soft labels and Eq. 3 on them: Ỹ of Eq. 2, or evidence corrected for class-dependent noise."""
        s = self.settings
        eta = 1.0 if s.eta == "auto" else s.eta
        if not s.correct:
            soft = _rows_to_one(Y)
            return soft, confident_labels(soft, self.given, eta=eta, accept=s.accept)
        S = normalize_graph(weight_graph(neighbors, gamma=s.gamma, symmetrize=s.symmetrize))
        believed = self._correct_class_dependent_noise(S) if s.class_dependent_noise else None
        if believed is not None:
            eta = PROBABLE if s.eta == "auto" else s.eta
            return believed, confident_labels(believed, self.given, eta=eta, accept="argmax")
        soft = gather_evidence(
            S,
            Y.to(S.dtype),
            alpha=s.alpha,
            class_balance=s.class_balance,
            leave_one_out=s.leave_one_out or any(getattr(s, name) == "auto" for name in ESTIMATED),
            tolerance=s.tolerance,
            group=self.group,
        )
        if s.k == "auto":
            self.votes = estimate_votes(soft, self.given, neighbors)
            self.k = choose_k(self.votes, len(soft), self.n_classes, s.alpha)
        labels, confident = confident_labels(soft, self.given, eta=eta, accept=s.accept)
        if s.eta == "auto":
            confident = confident | find_sure(soft, self.given, labels)
        return soft, Confident(labels, confident)

    def _correct_class_dependent_noise(self, S: Tensor) -> Tensor | None:
        """P(class) corrected for class-dependent noise; None if there is none.

        It starts from the given labels at every step, not from the previous ŷ: applying the correction to
        corrected labels would make one of two confused classes absorb the other.
        """
        s = self.settings
        Y = self._given_rows(S.dtype)
        propagated = gather_evidence(
            S, Y, alpha=s.alpha, leave_one_out=True, tolerance=s.tolerance, group=self.group
        )
        propagated = propagated if propagated.dtype == torch.float64 else propagated.float()
        model = find_class_dependent_noise(propagated, self.given)
        if model is None:
            return None
        silent = (propagated == propagated[:, :1]).all(1, keepdim=True)
        return torch.where(silent, propagated, model.posterior(propagated, self.given).classes)

    def _start(self, logits: Tensor) -> Tensor:
        """Y of Eq. 2: the given labels in the first step; later, the last ŷ where selected and the ensemble's
        p elsewhere.
        """
        decay = self.settings.ensemble
        self._logits = decay * self._logits + (1 - decay) * logits.to(self._logits)
        if self.epoch == 0 or self.settings.start == "given":
            return self._given_rows(self._logits.dtype)
        hard = one_hot(self.labels, self.n_classes).to(self._logits.dtype)
        p = (self._logits / (1 - decay ** (self.epoch + 1))).softmax(1)
        return torch.where(self.selected.unsqueeze(1), hard, p)

    def _given_rows(self, dtype: torch.dtype) -> Tensor:
        """The given labels as one-hot rows; zeros where unlabeled."""
        labeled = (self.given >= 0).unsqueeze(1)
        return one_hot(self.given.clamp(min=0), self.n_classes).to(dtype) * labeled

    def state_dict(self) -> dict[str, Any]:
        """All state that the next step depends on."""
        chosen = {"k": torch.tensor(self.k)} if self.settings.k == "auto" else {}
        return {
            **chosen,
            "settings": asdict(self.settings),
            "epoch": self.epoch,
            "given": self.given,
            "logits": self._logits,
            "labels": self.labels,
            "selected": self.selected,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned; state of other labels or settings is refused."""
        missing = sorted(self.state_dict().keys() - state.keys())
        if missing:
            raise ValueError(f"not the state of a GraphCleaner: there is no {missing[0]} in it")
        mine = asdict(self.settings)
        differing = sorted(name for name in mine if mine[name] != state["settings"].get(name))
        if differing:
            raise ValueError(f"the saved state was made with other settings: {', '.join(differing)}")
        device, classes = self.given.device, state["logits"].shape[1]
        if classes != self.n_classes:
            raise ValueError(f"the saved state was made with {classes} classes, not {self.n_classes}")
        if not torch.equal(state["given"].to(device), self.given):
            raise ValueError("the saved state was made with other labels")
        self.epoch = int(state["epoch"])
        self.k = int(state.get("k", self.k))
        self._logits = state["logits"].to(device)
        self.labels = state["labels"].to(device)
        self.selected = state["selected"].to(device)


def _require_tensor(name: str, value: Any) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name}: a tensor is needed, not {type(value).__name__}; use torch.as_tensor")


def _rows_to_one(Y: Tensor) -> Tensor:
    """Rows of Y unchanged (they sum to 1), and uniform rows for samples without a label."""
    return torch.where(Y.any(1, keepdim=True), Y, 1 / Y.shape[1])
