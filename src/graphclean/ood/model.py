"""The seam for models: what predicts, and the one way in which inputs are judged."""

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
from .threshold import Threshold

RunKind = Literal["clean", "train"]


class Judged(NamedTuple):
    """What is said of some inputs."""

    probabilities: Tensor
    """Of every class, by column, as if there were no OOD."""
    ood_score: Tensor
    """Larger is more OOD."""
    rejected: Tensor
    """The score is above the threshold."""


class Judge(nn.Module):
    """From raw inputs to what is said of them: what ONNX traces, and all that prediction runs."""

    threshold: float

    def forward(self, inputs: Tensor) -> Judged:
        """Judge a batch."""
        raise NotImplementedError

    def steady(self, inputs: Tensor) -> Tensor:
        """Which inputs rounding can't change much."""
        return torch.ones(len(inputs), dtype=torch.bool)

    def examples(self, count: int) -> Tensor:
        """Inputs to trace and to check by; the same ones each time."""
        raise NotImplementedError


@dataclass(frozen=True)
class Predictions:
    """Class, its probability and OOD score, for each of some inputs."""

    classes: npt.NDArray[np.int64]
    probability: npt.NDArray[np.float64]
    probabilities: npt.NDArray[np.float64]
    """Of every class, by column."""
    ood_score: npt.NDArray[np.float64]
    rejected: npt.NDArray[np.bool_]

    @classmethod
    def gather(cls, parts: Sequence[Judged]) -> Self:
        """All batches in one."""
        probabilities, score, rejected = (
            torch.cat([part[i].detach().cpu() for part in parts]) for i in range(3)
        )
        probability, classes = probabilities.double().max(1)
        arrays = classes.numpy(), probability.numpy(), probabilities.double().numpy(), score.double().numpy()
        return cls(*arrays, rejected.numpy())


class Model(Protocol):
    """What a run leaves to judge new data with."""

    @property
    def kind(self) -> RunKind:
        """The command whose run it is of."""

    @property
    def classes(self) -> list[int] | list[str]: ...

    @property
    def found(self) -> Threshold:
        """The threshold, and what it does to the training set."""

    @property
    def threshold(self) -> float:
        """The OOD score above which an input is rejected."""

    @property
    def notes(self) -> list[str]:
        """What a user should know of it."""

    @property
    def obstacle(self) -> str | None:
        """Why it can't be exported; None where it can."""

    def describe_score(self) -> str:
        """What the OOD score is, in words."""

    def module(self) -> Judge:
        """All of it as one graph."""

    def score(self, inputs: npt.NDArray[Any], progress: Progress | None = None) -> Predictions:
        """Judge inputs as they were before training: raw features, or uint8 images."""

    def save(self, folder: Path) -> None:
        """Write the model files of a run folder."""


def predict_table(
    model: Model, inputs: npt.NDArray[Any], ids: list[str] | None = None, progress: Progress | None = None
) -> pd.DataFrame:
    """A row an input: `id`, `predicted_label`, `probability`, `ood_score`, `verdict` (known or ood).

    `predicted_label` is always the best known class.
    """
    found = model.score(inputs, progress)
    return pd.DataFrame(
        {
            "id": pd.Series(ids if ids is not None else [str(i) for i in range(len(inputs))], dtype=str),
            "predicted_label": class_names(model.classes, found.classes),
            "probability": found.probability,
            "ood_score": found.ood_score,
            "verdict": pd.Series(np.where(found.rejected, "ood", "known").astype(object), dtype=str),
        }
    )


def class_names(classes: list[int] | list[str], codes: npt.NDArray[np.int64]) -> pd.Series:
    """Class names (or whole numbers, where those were given) for `codes`; missing below 0."""
    kind = "Int64" if classes and isinstance(classes[0], int) else "object"
    lookup = pd.Series([*classes, None], dtype=kind)
    return lookup.iloc[codes].reset_index(drop=True)
