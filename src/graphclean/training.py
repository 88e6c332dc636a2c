"""A training job on arrays in memory: network, detector's threshold, and verdicts on the trained graph."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .audit import Audit, audit_embeddings
from .audit.inputs import Labels
from .config import Config
from .data.loader import ResidentInputs
from .graph import Cleaned
from .learn.engine import EpochReport, Trained, Trainer
from .ood import prototype_similarity
from .ood.thresholds import Threshold, auto_threshold

Watch = Callable[[EpochReport, Cleaned], None]


@dataclass(frozen=True)
class TrainingResult:
    """What training gave."""

    trainer: Trainer
    trained: Trained
    threshold: Threshold
    """ζ from the training set alone."""
    audit: Audit
    """Verdicts on the trained graph; `selected` is what training used last."""
    seconds: float

    def predict(self, inputs: Tensor) -> "Predictions":
        """The trained network on new inputs of the same kind."""
        z, logits = self.trainer.embed(ResidentInputs(inputs.to(self.trainer.device)))
        probability, classes = logits.double().softmax(1).max(1)
        similarity = prototype_similarity(z, self.trained.prototypes).amax(1).double()
        return Predictions(classes.cpu().numpy(), probability.cpu().numpy(), similarity.cpu().numpy())


@dataclass(frozen=True)
class Predictions:
    """Class, its probability, and s(x) of Eq. 9, for each of some inputs."""

    classes: npt.NDArray[np.int64]
    probability: npt.NDArray[np.float64]
    similarity: npt.NDArray[np.float64]


def fit(
    inputs: Tensor,
    labels: Labels,
    config: Config,
    *,
    checkpoint: Path | None = None,
    resume: bool = False,
    watch: Watch | None = None,
) -> TrainingResult:
    """Train on uint8 images or float features, then judge every given label by the trained graph."""
    started = time.perf_counter()
    trainer = Trainer(
        ResidentInputs(inputs),
        torch.as_tensor(labels.codes),
        len(labels.classes),
        config.learn,
        config.graph,
        checkpoint=checkpoint,
        on_epoch=watch,
    )
    trained = trainer.train(resume=resume)
    closeness = prototype_similarity(trained.z, trained.prototypes).amax(1)
    audit = audit_embeddings(trained.z, labels.names(labels.codes), settings=config.audit)
    chosen = trained.cleaned.selected.cpu().numpy()
    audit = replace(
        audit,
        verdicts=audit.verdicts.assign(selected=chosen),
        summary=replace(audit.summary, selected=int(chosen.sum())),
    )
    threshold = auto_threshold(closeness.double().cpu().numpy())
    return TrainingResult(trainer, trained, threshold, audit, time.perf_counter() - started)
