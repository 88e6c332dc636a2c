"""A training job on arrays in memory: network, detector's threshold, and verdicts on the trained graph."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from .audit import Audit, audit_embeddings
from .audit.embeddings import Progress
from .audit.evidence import Standardiser
from .audit.inputs import Labels, check_embeddings
from .config import Config
from .data.loader import place_inputs
from .errors import InputError
from .graph import Cleaned
from .learn.engine import EpochReport, Trained, Trainer
from .learn.inference import describe_network
from .ood import class_prototypes, find_threshold, measure_closeness
from .trained import Predictions, TrainedModel

Watch = Callable[[EpochReport, Cleaned], None]


@dataclass(frozen=True)
class Prepared:
    """A trainer on checked inputs, not yet started."""

    trainer: Trainer
    labels: Labels
    config: Config
    standardiser: Standardiser | None
    """For features; None for images."""
    ids: Sequence[str] | None
    verdicts: Audit | None
    """Those on the features, where training takes its labels from them; else they are made on z.

    Features without a class signal have no labels to give, and training goes by the graph; z, learned from
    the given labels, would find them right, so that the verdicts stay what they are: undecided.
    """


@dataclass(frozen=True)
class TrainingResult:
    """What training gave."""

    trained: Trained
    model: TrainedModel
    """What judges new data, with ζ from the training set alone."""
    audit: Audit
    """Verdicts on the trained graph, or on the features; `selected` is what the prototypes are made of."""
    similarity: npt.NDArray[np.float64]
    """s(x) of the training set, on which ζ was found; with a panel 1 − P(OOD)."""
    seconds: float

    def predict(self, inputs: npt.NDArray[Any]) -> Predictions:
        """The trained network on new inputs of the same kind."""
        return self.model.score(inputs)


def fit(
    inputs: npt.NDArray[Any],
    labels: Labels,
    config: Config,
    *,
    device: torch.device | None = None,
    checkpoint: Path | None = None,
    resume: bool = False,
    watch: Watch | None = None,
) -> TrainingResult:
    """Train on uint8 images (N, C, H, W) or features (N, d), and judge the labels."""
    started = time.perf_counter()
    prepared = prepare(inputs, labels, config, device=device, checkpoint=checkpoint)
    prepared.trainer.on_epoch = watch
    result = finish(prepared, prepared.trainer.train(resume=resume))
    return replace(result, seconds=time.perf_counter() - started)


def prepare(
    inputs: npt.NDArray[Any],
    labels: Labels,
    config: Config,
    *,
    ids: Sequence[str] | None = None,
    device: torch.device | None = None,
    checkpoint: Path | None = None,
    progress: Progress | None = None,
) -> Prepared:
    """Check inputs and settings against each other, and standardise features; nothing is trained yet."""
    if inputs.ndim == 4 and inputs.dtype == np.uint8:
        standardiser, tensor = None, torch.as_tensor(inputs)
    else:
        array = check_embeddings(inputs, zeros=True)
        standardiser = Standardiser.fit(array)
        tensor = standardiser.rescale(array)
    verdicts = beliefs = None
    if config.learn.labels_from == "features" and config.learn.method == "ngc":
        if standardiser is None:
            raise InputError(
                "learn.labels_from=features takes embeddings, these are images; take a preset for images"
            )
        if config.audit.judges == "panel" and config.learn.predict_by == "both":
            raise InputError(
                "learn.predict_by=both: classifier and panel judge these embeddings already; leave it out"
            )
        verdicts = _judge(array, labels, config, ids, progress)
        if verdicts.beliefs is not None:
            beliefs = torch.as_tensor(verdicts.beliefs, dtype=torch.float32)
    trainer = Trainer(
        place_inputs(tensor, device if device is not None else torch.device("cpu")),
        torch.as_tensor(labels.codes),
        len(labels.classes),
        config.learn,
        config.graph,
        beliefs=beliefs,
        checkpoint=checkpoint,
    )
    return Prepared(trainer, labels, config, standardiser, ids, verdicts)


def _judge(
    z: Any,
    labels: Labels,
    config: Config,
    ids: Sequence[str] | None,
    progress: Progress | None,
    closeness: Any = None,
) -> Audit:
    return audit_embeddings(
        z, labels, ids=ids, settings=config.audit, progress=progress, zeros=True, closeness=closeness
    )


def finish(prepared: Prepared, trained: Trained, *, progress: Progress | None = None) -> TrainingResult:
    """The detector's threshold, the model for new data, and the verdicts."""
    started = time.perf_counter()
    config, labels = prepared.config, prepared.labels
    if prepared.verdicts is not None and prepared.verdicts.beliefs is not None:
        trained = _settle(trained, prepared.verdicts, labels)
    closeness = measure_closeness(trained.z, trained.prototypes)
    audit, auto = prepared.verdicts, None
    if audit is None:
        audit = replace(_judge(trained.z, labels, config, prepared.ids, progress, closeness), panel=None)
    elif audit.panel is not None:
        closeness, auto = 1 - audit.panel.prior.ood, 0.5
    threshold = find_threshold(closeness, audit.verdicts["ood_score"].to_numpy(), config.ood, auto=auto)
    model = TrainedModel(
        network=trained.network,
        description=describe_network(config.learn),
        input_shape=prepared.trainer.inputs.shape,
        classes=labels.classes,
        standardiser=prepared.standardiser,
        prototypes=trained.prototypes.cpu(),
        threshold=threshold,
        by_both=config.learn.predict_by == "both",
        panel=audit.panel.panel if audit.panel is not None else None,
    )
    chosen = trained.cleaned.selected.cpu().numpy()
    shape = prepared.trainer.inputs.shape
    summary = replace(
        audit.summary, selected=int(chosen.sum()), features=shape[0] if len(shape) == 1 else None
    )
    audit = replace(audit, verdicts=audit.verdicts.assign(selected=chosen), summary=summary)
    return TrainingResult(trained, model, audit, closeness, time.perf_counter() - started)


def _settle(trained: Trained, audit: Audit, labels: Labels) -> Trained:
    """With the verdicts' own selection, and prototypes of it, in place of the last draw."""
    assert audit.beliefs is not None
    proposed = torch.as_tensor(audit.beliefs[:, :-1].argmax(1), device=trained.z.device)
    selected = torch.as_tensor(audit.verdicts["selected"].to_numpy(copy=True), device=trained.z.device)
    return replace(
        trained,
        cleaned=replace(trained.cleaned, labels=proposed, selected=selected, confident=selected),
        prototypes=class_prototypes(trained.z, proposed, selected, len(labels.classes)),
    )


def epoch_metrics(report: EpochReport, prepared: Prepared) -> dict[str, Any]:
    """An epoch's report as a line of metrics.jsonl."""
    learn = prepared.config.learn
    weights = {"ce": 1.0, "inst": learn.lambda_inst, "subgraph": learn.lambda_subgraph}
    labelled = int((prepared.labels.codes >= 0).sum())
    return {
        **asdict(report),
        "samples": len(prepared.labels.codes),
        "loss": sum(weights[name] * value for name, value in report.losses.items()),
        # Of the labels that were given, those that did not survive: relabelled, or not selected at all.
        "estimated_noise": 1 - (report.selected - report.relabelled) / labelled,
    }
