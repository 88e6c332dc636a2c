"""Training on arrays in memory: network, detector with its threshold, and verdicts on the trained graph."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..cleaning import CleaningResult, infer_verdicts
from ..cleaning.evidence import Standardizer
from ..cleaning.inputs import Labels, check_embeddings
from ..config import Config
from ..data.photo_stream import PhotoStream
from ..data.progress import Progress
from ..errors import InputError
from ..ood import find_threshold, holds_ood, max_prototype_similarity
from ..ood.detector import Detector
from ..ood.model import Predictions
from .batches import place_inputs
from .detection import check_usable, choose_detector, fit_detector, gather_outputs
from .inference import describe_network
from .method import Method, Prior, Trusted
from .model import NetworkModel
from .outcome import EpochReport, OnEpoch, Trained
from .trainer import Trainer


@dataclass(frozen=True)
class Prepared:
    """A trainer with checked inputs, ready to start."""

    trainer: Trainer
    labels: Labels
    config: Config
    standardizer: Standardizer | None
    """For features; None for images."""
    ids: Sequence[str] | None
    detector: type[Detector]
    verdicts: CleaningResult | None
    """Verdicts on the features, if training takes its labels from them; otherwise they are inferred from z.

    Features without a class signal provide no labels, and training uses the graph. The verdicts then remain
    undecided: z, learned from the given labels, would confirm them.
    """
    more: tuple[type[Detector], ...] = ()
    """Further detectors to fit."""


@dataclass(frozen=True)
class TrainingResult:
    """The result of a training job."""

    trained: Trained
    model: NetworkModel
    """Predicts for new data, with a threshold from the training set alone."""
    cleaning: CleaningResult
    """Verdicts on the trained graph, or on the features; prototypes are computed from `selected` samples."""
    ood_score: npt.NDArray[np.float64]
    """Scores of the training set by the model's detector, from which its threshold was found."""
    seconds: float
    more: Mapping[str, NetworkModel] = field(default_factory=dict)
    """The same network with each of the further detectors, by name."""

    def predict(self, inputs: npt.NDArray[Any]) -> Predictions:
        """Predict for new inputs of the same kind with the trained network."""
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
    """Train with a method on uint8 images (N, C, H, W) or features (N, d), and infer verdicts."""
    started = time.perf_counter()
    prepared = prepare(inputs, labels, config, method, detector=detector, device=device)
    result = finish(prepared, prepared.trainer.train(on_epoch=on_epoch))
    return replace(result, seconds=time.perf_counter() - started)


def prepare(
    inputs: npt.NDArray[Any] | PhotoStream,
    labels: Labels,
    config: Config,
    method: Method,
    *,
    detector: type[Detector] | None = None,
    more: Sequence[type[Detector]] = (),
    ids: Sequence[str] | None = None,
    device: torch.device | None = None,
    checkpoint: Path | None = None,
    trusted: tuple[npt.NDArray[Any], npt.NDArray[np.int64]] | None = None,
    progress: Progress | None = None,
) -> Prepared:
    """Check inputs against settings and standardize features, without training.

    `detector` overrides `ood.detector`; `more` detectors are fitted in addition. `trusted` holds inputs with
    labels known to be correct, for methods that need them.
    """
    chosen = detector if detector is not None else choose_detector(config, method)
    place = device if device is not None else torch.device("cpu")
    tensor: Tensor | PhotoStream
    if isinstance(inputs, PhotoStream):
        standardizer, tensor = None, inputs
    elif inputs.ndim == 4 and inputs.dtype == np.uint8:
        standardizer, tensor = None, torch.as_tensor(inputs)
    else:
        array = check_embeddings(inputs, zeros=True)
        standardizer = Standardizer.fit(array)
    if "images" in method.info.needs and standardizer is not None:
        raise InputError(f"method.name={method.info.name} takes images, these are embeddings")
    verdicts = prior = None
    if "verdicts" in method.info.needs:
        if standardizer is None:
            raise InputError(
                f"method.name={method.info.name} takes embeddings, these are images; take a preset for images"
            )
        if config.cleaning.classifier != "knn" and config.training.prototype_ensemble:
            raise InputError(
                "training.prototype_ensemble=true: heads on these embeddings are combined with class means "
                "already; leave it out"
            )
        if config.cleaning.classifier != "knn" and (detector is not None or config.ood.detector != "auto"):
            raise InputError(
                f"ood.detector={chosen.name}: embeddings scored by neighbors and class means have their own "
                "detector; use auto, or cleaning.classifier=knn"
            )
        verdicts = _judge(array, labels, config, ids, progress)
        standardizer = verdicts.standardizer
        prior = _make_prior(verdicts, place)
    if standardizer is not None:
        tensor = standardizer.rescale(array)
    trainer = Trainer(
        place_inputs(tensor, place),
        torch.as_tensor(labels.reviewed),
        len(labels.classes),
        config.training,
        method,
        prior=prior,
        trusted=_lend(trusted, standardizer, place) if "trusted samples" in method.info.needs else None,
        decided=torch.as_tensor(labels.decided) if labels.decided is not None else None,
        checkpoint=checkpoint,
    )
    for made in (chosen, *more):
        check_usable(made, method, trainer.inputs)
    return Prepared(trainer, labels, config, standardizer, ids, chosen, verdicts, tuple(more))


def _lend(
    trusted: tuple[npt.NDArray[Any], npt.NDArray[np.int64]] | None,
    standardizer: Standardizer | None,
    device: torch.device,
) -> Trusted | None:
    """Trusted samples, prepared in the same way as the training set."""
    if trusted is None:
        return None
    inputs, codes = trusted
    tensor = standardizer.rescale(inputs) if standardizer is not None else torch.as_tensor(inputs)
    return Trusted(place_inputs(tensor, device), torch.as_tensor(codes, device=device))


def _make_prior(cleaning: CleaningResult, device: torch.device) -> Prior | None:
    """The prior for methods that sample labels; None if the features have no class signal."""
    if cleaning.posterior is None:
        return None
    selected = cleaning.verdicts["selected"].to_numpy(copy=True)
    return Prior(
        torch.as_tensor(cleaning.posterior, dtype=torch.float32, device=device),
        torch.as_tensor(selected, device=device),
    )


def _judge(
    z: Any,
    labels: Labels,
    config: Config,
    ids: Sequence[str] | None,
    progress: Progress | None,
    similarity: Any = None,
) -> CleaningResult:
    return infer_verdicts(
        z,
        labels,
        ids=ids,
        settings=config.cleaning,
        ood=config.ood,
        progress=progress,
        zeros=True,
        similarity=similarity,
    )


def finish(
    prepared: Prepared,
    trained: Trained,
    *,
    good: npt.NDArray[Any] | None = None,
    progress: Progress | None = None,
) -> TrainingResult:
    """Fit the detectors with their thresholds, and return the model for new data and the verdicts.

    `good` are inputs of the known classes that were not trained on, so that a network's threshold can
    guarantee `ood.reject`. Features need none, because each is scored as if it were not trained on.
    """
    started = time.perf_counter()
    config, labels = prepared.config, prepared.labels
    cleaning = prepared.verdicts
    if cleaning is None:
        similarity = max_prototype_similarity(trained.z, trained.prototypes)
        cleaning = replace(
            _judge(trained.z, labels, config, prepared.ids, progress, similarity), class_means=None
        )
    made = (prepared.detector, *prepared.more)
    source = gather_outputs(trained, prepared.trainer.inputs, made, len(labels.classes))
    ood = np.nan_to_num(cleaning.verdicts["ood_score"].to_numpy(dtype=np.float64, na_value=np.nan))
    features = cleaning.detection if cleaning.class_means is not None else None

    def judge_by(made: type[Detector]) -> tuple[NetworkModel, npt.NDArray[np.float64]]:
        detector, score = fit_detector(made, prepared.trainer.method, source)
        learned, selected = holds_ood(score, ood), score[(source.labels >= 0).cpu().numpy()]
        found = find_threshold(score, ood, config.ood, learned=learned, selected=selected)
        model = NetworkModel(
            network=trained.network,
            description=describe_network(config.training, trained.network),
            input_shape=prepared.trainer.inputs.shape,
            classes=labels.classes,
            standardizer=prepared.standardizer,
            prototypes=trained.prototypes.cpu(),
            detector=detector if detector.needs == "inputs" else detector.cpu(),
            found=found,
            prototype_ensemble=config.training.prototype_ensemble,
        )
        if features is not None or good is None:
            return model, score
        new = model.score(good).ood_score
        return replace(model, found=find_threshold(score, ood, config.ood, learned=learned, good=new)), score

    model, score = judge_by(prepared.detector)
    if features is not None:
        assert cleaning.class_means is not None
        model, score = (
            replace(
                model,
                found=features.found,
                class_means=cleaning.class_means.model,
                feature_detector=features.detector,
            ),
            features.score,
        )
    more = {one.name: judge_by(one)[0] for one in prepared.more}
    chosen = trained.selection.selected.cpu().numpy()
    shape = prepared.trainer.inputs.shape
    summary = replace(
        cleaning.summary, selected=int(chosen.sum()), features=shape[0] if len(shape) == 1 else None
    )
    cleaning = replace(cleaning, verdicts=cleaning.verdicts.assign(selected=chosen), summary=summary)
    return TrainingResult(trained, model, cleaning, score, time.perf_counter() - started, more)


def epoch_metrics(report: EpochReport, prepared: Prepared) -> dict[str, Any]:
    """The report of an epoch as a line of metrics.jsonl."""
    labeled = int((prepared.labels.codes >= 0).sum())
    return {
        **report.to_dict(),
        "samples": len(prepared.labels.codes),
        # The fraction of given labels that were either changed or not selected.
        "estimated_noise": 1 - (report.selected - report.relabeled) / labeled,
    }
