"""The interface of models, which predict for new data, and their predictions."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor, nn

from ..data.progress import Progress
from ..distributed.group import current
from .threshold import Threshold

RunKind = Literal["clean", "train"]


class Judged(NamedTuple):
    """Predictions for a batch as tensors."""

    probabilities: Tensor
    """P(class) for each class, by column, disregarding OOD."""
    ood_score: Tensor
    """Larger is more OOD."""
    rejected: Tensor
    """Whether the score exceeds the threshold."""


class Judge(nn.Module):
    """A model as one module on raw inputs: what ONNX traces and all predictions use."""

    threshold: float

    def forward(self, inputs: Tensor) -> Judged:
        """Predict for a batch."""
        raise NotImplementedError

    def steady(self, inputs: Tensor) -> Tensor:
        """A mask of inputs whose predictions rounding can't change much."""
        return torch.ones(len(inputs), dtype=torch.bool)

    def examples(self, count: int) -> Tensor:
        """Deterministic inputs for tracing and for checking the trace."""
        raise NotImplementedError


@dataclass(frozen=True)
class Predictions:
    """Class, probability and OOD score of each input."""

    classes: npt.NDArray[np.int64]
    probability: npt.NDArray[np.float64]
    probabilities: npt.NDArray[np.float64]
    """P(class) for each class, by column."""
    ood_score: npt.NDArray[np.float64]
    rejected: npt.NDArray[np.bool_]

    @classmethod
    def gather(cls, parts: Sequence[Judged]) -> Self:
        """Concatenate batches."""
        probabilities, score, rejected = (
            torch.cat([part[i].detach().cpu() for part in parts]) for i in range(3)
        )
        probability, classes = probabilities.double().max(1)
        arrays = classes.numpy(), probability.numpy(), probabilities.double().numpy(), score.double().numpy()
        return cls(*arrays, rejected.numpy())


class Model(Protocol):
    """A trained model that predicts for new data."""

    @property
    def kind(self) -> RunKind:
        """The command that produced the model."""

    @property
    def classes(self) -> list[int] | list[str]: ...

    @property
    def found(self) -> Threshold:
        """The threshold, and its effect on the training set."""

    @property
    def threshold(self) -> float:
        """The OOD score above which an input is rejected."""

    @property
    def notes(self) -> list[str]:
        """Caveats that a user should know."""

    @property
    def obstacle(self) -> str | None:
        """Why it can't be exported; None if it can."""

    def describe_score(self) -> str:
        """A description of the score."""

    def module(self) -> Judge:
        """The whole model as one module."""

    def check(self, inputs: npt.NDArray[Any]) -> Any:
        """Refuse inputs that can't be scored, without scoring them."""

    def score(self, inputs: npt.NDArray[Any], progress: Progress | None = None) -> Predictions:
        """Predict for inputs as given before training: raw features, or uint8 images."""

    def save(self, folder: Path) -> None:
        """Write the model files of a run folder."""


def predict_table(
    model: Model, inputs: npt.NDArray[Any], ids: list[str] | None = None, progress: Progress | None = None
) -> pd.DataFrame:
    """A row per input: `id`, `predicted_label`, `probability`, `ood_score`, `verdict` (known or ood).

    `predicted_label` is always the most probable known class.
    """
    found = _divide_score(model, inputs, progress)
    return pd.DataFrame(
        {
            "id": pd.Series(ids if ids is not None else [str(i) for i in range(len(inputs))], dtype=str),
            "predicted_label": class_names(model.classes, found.classes),
            "probability": found.probability,
            "ood_score": found.ood_score,
            "verdict": pd.Series(np.where(found.rejected, "ood", "known").astype(object), dtype=str),
        }
    )


def _divide_score(model: Model, inputs: npt.NDArray[Any], progress: Progress | None) -> Predictions:
    """`model.score`, for which each process of a group takes some rows."""
    group = current()
    if not group.several:
        return model.score(inputs, progress)
    own = inputs[group.part(len(inputs))]
    found = group.all_say(model.score(own, progress) if len(own) else None)
    parts = [vars(part) for part in found if part is not None]
    return Predictions(**{name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


def class_names(classes: list[int] | list[str], codes: npt.NDArray[np.int64]) -> pd.Series:
    """Class names (or whole numbers, if given as such) of `codes`; missing below 0."""
    kind = "Int64" if classes and isinstance(classes[0], int) else "object"
    lookup = pd.Series([*classes, None], dtype=kind)
    return lookup.iloc[codes].reset_index(drop=True)
