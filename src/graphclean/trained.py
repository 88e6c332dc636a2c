"""A trained network with its detector: what judges new data, in memory and from a run folder."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from .audit import Panel
from .audit.evidence import Standardiser
from .audit.inputs import Labels, check_embeddings
from .errors import InputError
from .learn.inference import embed_new, rebuild_network
from .learn.state import seeded
from .ood import Threshold, judge_by_both, prototype_similarity
from .runfolder import MODEL, PROTOTYPES, read_tensors, write_tensors
from .shapes import Border, Trained

Told = Callable[[int, int], None]

NO_DETECTOR = "not one sample was selected as clean: there is no detector, and nothing is rejected"


@dataclass(frozen=True)
class Predictions:
    """Class, its probability, and s(x), for each of some inputs."""

    classes: npt.NDArray[np.int64]
    probability: npt.NDArray[np.float64]
    probabilities: npt.NDArray[np.float64]
    """Of every class, by column."""
    similarity: npt.NDArray[np.float64]
    """s(x) of Eq. 9; where there is a panel, 1 − P(OOD) in its place."""


@dataclass(frozen=True)
class TrainedModel:
    """The last epoch's network, the prototypes, and the border on s(x).

    With a panel, a class is as likely as the geometric mean of what network and panel say, and the panel
    alone says what is OOD.
    """

    network: nn.Module
    description: dict[str, Any]
    """Name and options of the network."""
    input_shape: tuple[int, ...]
    classes: list[int] | list[str]
    standardiser: Standardiser | None
    """For features, with the training set's mean and deviation; None for images."""
    prototypes: Tensor
    """Of z."""
    threshold: Threshold
    by_both: bool = False
    """Classes are judged by classifier and prototypes (`learn.predict_by`); not beside a panel."""
    panel: Panel | None = None
    """For features that were judged before training."""

    @property
    def notes(self) -> list[str]:
        """What a user should know of it."""
        detects = self.panel is not None or bool(self.prototypes.any())
        return [] if detects else [NO_DETECTOR]

    def score(self, inputs: npt.NDArray[Any], progress: Told | None = None) -> Predictions:
        """The network on inputs as they were before training: raw features, or uint8 images."""
        prepared = self._prepare(inputs)
        z, logits = embed_new(self.network, prepared, progress)
        if self.panel is not None:
            known, ood = self.panel(normalize(prepared, dim=1), progress)
            logits = (logits.double().log_softmax(1) + known) / 2
            similarity = 1 - ood
        else:
            cosines = prototype_similarity(z, self.prototypes)
            logits = judge_by_both(logits, cosines) if self.by_both else logits
            similarity = cosines.amax(1).double()
        probabilities = logits.double().softmax(1)
        probability, classes = probabilities.max(1)
        return Predictions(classes.numpy(), probability.numpy(), probabilities.numpy(), similarity.numpy())

    def predict(
        self, inputs: npt.NDArray[Any], ids: list[str] | None = None, progress: Told | None = None
    ) -> pd.DataFrame:
        """A row an input: `id`, `predicted_label`, `probability`, `ood_score`, `verdict` (known or ood).

        `predicted_label` is always the best known class; `ood_score` is 1 − s(x), with a panel P(OOD).
        """
        found = self.score(inputs, progress)
        rejected = found.similarity < self.threshold.zeta
        return pd.DataFrame(
            {
                "id": pd.Series(ids if ids is not None else [str(i) for i in range(len(inputs))], dtype=str),
                "predicted_label": Labels(found.classes, self.classes).names(found.classes),
                "probability": found.probability,
                "ood_score": 1 - found.similarity,
                "verdict": pd.Series(np.where(rejected, "ood", "known").astype(object), dtype=str),
            }
        )

    def _prepare(self, inputs: npt.NDArray[Any]) -> Tensor:
        if self.standardiser is None:
            if inputs.shape[1:] != self.input_shape:
                theirs, ours = (" × ".join(map(str, shape)) for shape in (inputs.shape[1:], self.input_shape))
                raise InputError(f"these images are {theirs} (channels first), the run was trained on {ours}")
            return torch.as_tensor(inputs)
        array = check_embeddings(inputs, zeros=True)
        if array.shape[1:] != self.input_shape:
            raise InputError(
                f"these embeddings have {array.shape[1]} columns, the run was made with {self.input_shape[0]}"
            )
        return self.standardiser.rescale(array)

    def save(self, folder: Path) -> None:
        """Write the model files of a run folder."""
        tensors = {f"network.{name}": value.cpu() for name, value in self.network.state_dict().items()}
        if self.standardiser is not None:
            tensors["mean"] = torch.as_tensor(self.standardiser.mean)
            tensors["scale"] = torch.as_tensor(self.standardiser.scale)
        facts: dict[str, Any] = {"network": self.description, "input_shape": list(self.input_shape)}
        facts |= {"classes": self.classes, "by_both": self.by_both}
        if self.panel is not None:
            tensors |= {f"panel.{name}": value for name, value in self.panel.tensors().items()}
            facts["panel"] = list(self.panel.weights)
        write_tensors(folder / MODEL, tensors, facts)
        write_tensors(folder / PROTOTYPES, {"prototypes": self.prototypes}, asdict(self.threshold))


def load_trained(run: Path, device: torch.device) -> TrainedModel:
    """The model of a finished training run."""
    tensors, facts = read_tensors(run / MODEL, Trained)
    prototypes, border = read_tensors(run / PROTOTYPES, Border)
    try:
        check_classes(facts["classes"])
        weights, of_panel = _named(tensors, "network."), _named(tensors, "panel.")
        classes, shape = facts["classes"], tuple(facts["input_shape"])
        standardiser = None
        if len(shape) == 1:
            standardiser = Standardiser(tensors["mean"].numpy(), tensors["scale"].numpy())
        with seeded(0, torch.device("cpu")):  # first weights are drawn, which the caller need not notice
            network = rebuild_network(facts["network"], weights, len(classes), shape)
        return TrainedModel(
            network=network.to(device),
            description=facts["network"],
            input_shape=shape,
            classes=classes,
            standardiser=standardiser,
            prototypes=prototypes["prototypes"],
            threshold=Threshold(**border),
            by_both=facts.get("by_both", False),
            panel=Panel.restore(of_panel, facts["panel"]) if "panel" in facts else None,
        )
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{run}: the model files are not those of a training run: {reason}") from error


def check_classes(classes: Any) -> None:
    """Refuse what is no list of names, or of whole numbers, each of them once."""
    kinds = {type(name) for name in classes} if isinstance(classes, list) else set()
    if kinds not in ({int}, {str}) or len(set(classes)) < len(classes):
        raise ValueError("the classes are not names or numbers, each of them once")


def _named(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
