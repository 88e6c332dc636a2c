"""A training job on arrays in memory: network, detector's threshold, and verdicts on the trained graph."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..cleaning import Audit, audit_embeddings
from ..cleaning.evidence import Standardiser
from ..cleaning.inputs import Labels, check_embeddings
from ..config import Config
from ..data.progress import Progress
from ..errors import InputError
from ..ood import find_threshold, measure_closeness
from ..ood.detector import Detector
from ..ood.detectors import check_needs, load_detector
from ..ood.model import Predictions
from .batches import place_inputs
from .inference import describe_network
from .method import Method, Prior
from .model import BATCH, NetworkModel
from .trainer import EpochReport, OnEpoch, Trained, Trainer


@dataclass(frozen=True)
class Prepared:
    """A trainer on checked inputs, not yet started."""

    trainer: Trainer
    labels: Labels
    config: Config
    standardiser: Standardiser | None
    """For features; None for images."""
    ids: Sequence[str] | None
    detector: type[Detector]
    verdicts: Audit | None
    """Those on the features, where training takes its labels from them; else they are made on z.

    Features without a class signal have no labels to give, and training goes by the graph; z, learned from
    the given labels, would find them right, so that the verdicts stay what they are: undecided.
    """


@dataclass(frozen=True)
class TrainingResult:
    """What training gave."""

    trained: Trained
    model: NetworkModel
    """What judges new data, with a threshold from the training set alone."""
    audit: Audit
    """Verdicts on the trained graph, or on the features; `selected` is what the prototypes are made of."""
    ood_score: npt.NDArray[np.float64]
    """Of the training set by the model's detector, on which its threshold was found."""
    seconds: float

    def predict(self, inputs: npt.NDArray[Any]) -> Predictions:
        """The trained network on new inputs of the same kind."""
        return self.model.score(inputs)


def fit(
    inputs: npt.NDArray[Any],
    labels: Labels,
    config: Config,
    method: Method,
    *,
    detector: type[Detector] | None = None,
    device: torch.device | None = None,
    on_epoch: OnEpoch | None = None,
) -> TrainingResult:
    """Train by a method on uint8 images (N, C, H, W) or features (N, d), and judge the labels."""
    started = time.perf_counter()
    prepared = prepare(inputs, labels, config, method, detector=detector, device=device)
    result = finish(prepared, prepared.trainer.train(on_epoch=on_epoch))
    return replace(result, seconds=time.perf_counter() - started)


def prepare(
    inputs: npt.NDArray[Any],
    labels: Labels,
    config: Config,
    method: Method,
    *,
    detector: type[Detector] | None = None,
    ids: Sequence[str] | None = None,
    device: torch.device | None = None,
    checkpoint: Path | None = None,
    progress: Progress | None = None,
) -> Prepared:
    """Check inputs and settings against each other, and standardise features; nothing is trained yet.

    `detector` goes before `ood.detector`.
    """
    chosen = check_needs(detector) if detector is not None else choose_detector(config, method)
    place = device if device is not None else torch.device("cpu")
    if inputs.ndim == 4 and inputs.dtype == np.uint8:
        standardiser, tensor = None, torch.as_tensor(inputs)
    else:
        array = check_embeddings(inputs, zeros=True)
        standardiser = Standardiser.fit(array)
        tensor = standardiser.rescale(array)
    verdicts = prior = None
    if "verdicts" in method.info.needs:
        if standardiser is None:
            raise InputError(
                f"method.name={method.info.name} takes embeddings, these are images; take a preset for images"
            )
        if config.audit.judges == "panel" and config.learn.predict_by == "both":
            raise InputError(
                "learn.predict_by=both: classifier and panel judge these embeddings already; leave it out"
            )
        if config.audit.judges == "panel" and (detector is not None or config.ood.detector != "auto"):
            raise InputError(
                f"ood.detector={chosen.name}: the panel, which judges these embeddings, says itself what is "
                "OOD; take auto, or audit.judges=neighbours"
            )
        verdicts = _judge(array, labels, config, ids, progress)
        prior = _make_prior(verdicts, place)
    trainer = Trainer(
        place_inputs(tensor, place),
        torch.as_tensor(labels.codes),
        len(labels.classes),
        config.learn,
        method,
        prior=prior,
        checkpoint=checkpoint,
    )
    return Prepared(trainer, labels, config, standardiser, ids, chosen, verdicts)


def _make_prior(audit: Audit, device: torch.device) -> Prior | None:
    """What a method samples labels from; None where the features have no class signal."""
    if audit.beliefs is None:
        return None
    selected = audit.verdicts["selected"].to_numpy(copy=True)
    return Prior(
        torch.as_tensor(audit.beliefs, dtype=torch.float32, device=device),
        torch.as_tensor(selected, device=device),
    )


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
    """The detector and its threshold, the model for new data, and the verdicts."""
    started = time.perf_counter()
    config, labels = prepared.config, prepared.labels
    audit = prepared.verdicts
    if audit is None:
        closeness = measure_closeness(trained.z, trained.prototypes)
        audit = replace(_judge(trained.z, labels, config, prepared.ids, progress, closeness), panel=None)
    detector, score = _fit_detector(prepared, trained)
    auto = None
    if audit.panel is not None:
        score, auto = audit.panel.prior.ood, 0.5
    model = NetworkModel(
        network=trained.network,
        description=describe_network(config.learn),
        input_shape=prepared.trainer.inputs.shape,
        classes=labels.classes,
        standardiser=prepared.standardiser,
        prototypes=trained.prototypes.cpu(),
        detector=detector.cpu(),
        found=find_threshold(score, audit.verdicts["ood_score"].to_numpy(), config.ood, auto=auto),
        by_both=config.learn.predict_by == "both",
        panel=audit.panel.panel if audit.panel is not None else None,
    )
    chosen = trained.selection.selected.cpu().numpy()
    shape = prepared.trainer.inputs.shape
    summary = replace(
        audit.summary, selected=int(chosen.sum()), features=shape[0] if len(shape) == 1 else None
    )
    audit = replace(audit, verdicts=audit.verdicts.assign(selected=chosen), summary=summary)
    return TrainingResult(trained, model, audit, score, time.perf_counter() - started)


def choose_detector(config: Config, method: Method) -> type[Detector]:
    """The one that is asked for, or that suits the method."""
    name = config.ood.detector
    return load_detector(method.detector if name == "auto" else name)


@torch.no_grad()
def _fit_detector(prepared: Prepared, trained: Trained) -> tuple[Detector, npt.NDArray[np.float64]]:
    """The detector on the samples selected as clean, and the scores of all, in pieces as for new data."""
    chosen = trained.selection
    detector = prepared.detector(len(prepared.labels.classes), trained.z.shape[1]).to(trained.z.device)
    detector.fit(trained.z, trained.logits, torch.where(chosen.selected, chosen.labels, -1))
    parts = zip(torch.split(trained.z, BATCH), torch.split(trained.logits, BATCH), strict=True)
    return detector, torch.cat([detector(*part) for part in parts]).double().cpu().numpy()


def epoch_metrics(report: EpochReport, prepared: Prepared) -> dict[str, Any]:
    """An epoch's report as a line of metrics.jsonl."""
    labelled = int((prepared.labels.codes >= 0).sum())
    return {
        **report.to_dict(),
        "samples": len(prepared.labels.codes),
        # Of the labels that were given, those that did not survive: relabelled, or not selected at all.
        "estimated_noise": 1 - (report.selected - report.relabelled) / labelled,
    }
