"""Run one seed of a cell: train, resume after an interruption, score once, and record the result."""

import gc
import shutil
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .._files import plain
from .._shapes import JsonObject
from ..cleaning.inputs import Labels
from ..config import Config, MethodChoice
from ..data.resize import resampling_control
from ..errors import InputError, RunStopped, arg
from ..graph import Cleaned
from ..methods import build_method, complete_settings, load_method
from ..metrics import auroc, score_verdicts
from ..ood import Threshold
from ..ood.detectors import load_detector
from ..ood.model import Predictions
from ..runs.folder import in_use
from ..runs.interrupts import StopSignals, one_line_errors
from ..training import EpochReport, InterruptedRun, Trained
from ..training.batches import place_inputs
from ..training.fit import Prepared, TrainingResult, finish, prepare
from ..training.method import Selection
from ..training.model import NetworkModel
from .cells import SPEED_ONLY, Cell, Recipe
from .epoch_log import (
    DETECTOR_SCORES,
    EpochLog,
    compare_strategies,
    describe_cleaning,
    describe_scores,
    describe_top,
    mean_degrees,
    sample_kinds,
)
from .inputs import Material, Sources, prepare_material
from .machine import forget_host_peak, host_peak_gib, machine
from .map import choose_mapped, make_map
from .noise import Split
from .results import (
    Arrays,
    find_seeds,
    list_results,
    other_arrays,
    read_record,
    read_result,
    write_result,
)
from .schema import EpochRecord, Result

STRATEGIES_EVERY = 10
"""Epochs between comparisons of the selection strategies."""
DRAW, LOG, CHECKPOINT = "draw.npz", "epochs.jsonl", "checkpoint"
"""Contents of a work folder."""

GO_ON = "the same command continues from there"

Watch = Callable[[EpochRecord], None]


@dataclass(frozen=True)
class Job:
    """One seed of a method on a cell."""

    cell: Cell
    method: Recipe
    seed: int
    split: Split
    detectors: tuple[str, ...] = ()
    """Names of further detectors to score on the same network."""
    also: tuple[str, ...] = ()
    """Cells that this run must score too (`Cell.scored_by`)."""

    @property
    def config(self) -> Config:
        """The method's settings with this seed."""
        return replace(self.method.config, training=replace(self.method.config.training, seed=self.seed))

    @property
    def sections(self) -> dict[str, JsonObject]:
        """The settings as recorded in the result."""
        return dict(plain(self.config.to_dict()))

    @property
    def about(self) -> JsonObject:
        """Everything needed to reproduce the run."""
        return {
            "cell": self.cell.name,
            "split": self.split,
            "method": self.method.name,
            "seed": self.seed,
            "preset": self.method.preset,
            "changes": list(self.method.changes),
        }

    @property
    def title(self) -> str:
        """A human-readable description."""
        return f"{self.cell.name} {self.method.name}, {self.split} split, seed {self.seed}"

    def work_folder(self, base: Path) -> Path:
        """The folder of the checkpoint and records until the result is written."""
        return base / self.cell.name.replace("/", "--") / self.method.name / f"{self.split}-{self.seed}"


def find_done(job: Job, results: Path) -> Path | None:
    """The path of the job's result if it exists.

    Results recorded under the same name with other settings are refused, also those of other seeds, since
    tables average over seeds, and so is the result of another run in this place. A setting missing from a
    result is newer than the result and had its default value then.
    """
    found = find_seeds(results, job.cell.name, job.split, job.method.name)
    if job.seed in found and (job.detectors or job.also):
        data = read_record(found[job.seed], results).data
        there = {**data.get("detectors", {}), **data.get("also", {})}
        missing = [name for name in (*job.detectors, *job.also) if name not in there]
        if missing:
            raise InputError(
                f"{found[job.seed]}: made without scores of {', '.join(missing)}, and its network is gone; "
                f"choose another {arg('name')}, or remove it to run again"
            )
    for path in found.values():
        for name, then, now in _differences(job, read_record(path, results).data["config"]):
            raise InputError(
                f"{path}: made with {name} = {then}, not {now}; "
                f"choose another {arg('name')}, or remove it to run again"
            )
    return found.get(job.seed)


def find_same_settings(job: Job, results: Path) -> str | None:
    """Another name under which the job's settings are recorded on its cell, if its own name has no result
    yet.

    A preset, and another preset changed into it, are the same method, whose seeds belong in one mean.
    """
    if find_seeds(results, job.cell.name, job.split, job.method.name):
        return None
    for path in list_results(results):
        with suppress(InputError):  # tables report damaged results
            result = read_result(path)
            config = result["config"]
            gone = [
                name for key, now in job.sections.items() for name in config.get(key, {}) if name not in now
            ]
            same = (result["cell"], result["split"]) == (job.cell.name, job.split)
            if same and not gone and not _differences(job, config):
                return str(result["method"])
    return None


def _differences(job: Job, recorded: dict[str, JsonObject]) -> list[tuple[str, Any, Any]]:
    """Settings that affect results and differ: name, recorded value, the job's value."""
    found = []
    for section, settings in job.sections.items():
        then = _defaults(job.config, section) | recorded.get(section, {})
        found += [
            (f"{section}.{name}", then[name], now)
            for name, now in settings.items()
            if then[name] != now and f"{section}.{name}" not in (*SPEED_ONLY, "training.seed")
        ]
    return found


def _defaults(config: Config, section: str) -> JsonObject:
    """The default settings of a section, for the same method."""
    chosen = replace(config, method=MethodChoice(config.method.name))
    default = replace(Config(), method=complete_settings(chosen).method)
    return dict(plain(default.to_dict())[section])


def run_job(
    job: Job,
    sources: Sources,
    work: Path,
    path: Path,
    device: torch.device,
    *,
    sharing: int = 1,
    keep: bool = False,
    watch: Watch | None = None,
    say: Callable[[str], None] | None = None,
) -> Result:
    """Train the rest of a job in its work folder, score it, and write the result to `path`.

    `sharing` is the number of runs that share the device, which is recorded. Peak memory counts from the last
    start.
    """
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{work}: can't be written: {error.strerror}") from error
    with _pruned(work), in_use(work, "work"), _kept_to_go_on(work):
        forget_host_peak()
        material = prepare_material(job.cell, job.seed, job.split, sources, work / DRAW)
        if device.type == "cuda":
            # An earlier run's network would count toward the peak, and toward the limit of compiled shapes.
            gc.collect()
            torch.compiler.reset()
            torch.cuda.reset_peak_memory_stats()
        prepared, log = prepare_job(job, material, work, device), EpochLog(work / LOG)

        def ask() -> None:
            prepared.trainer.request_stop()
            if say is not None:
                say("stopping after this step; interrupt again to stop at once")

        with one_line_errors(job.config, work / CHECKPOINT), StopSignals(ask) as asked:
            try:
                trained = train_job(job, material, prepared, log, watch=watch)
                started = time.perf_counter()
                finished = finish(prepared, trained)
                record, found, others = _score(job, material, finished)
                seconds = time.perf_counter() - started
                arrays = _gather_arrays(job, material, finished, found, others)
            except InterruptedRun as stop:
                raise _stopped(job, str(stop), asked.number or signal.SIGINT) from None
        epochs = log.first(job.config.training.epochs)
        steady = [epoch["seconds"] for epoch in epochs if not epoch.get("warmup")][1:]
        record |= {
            "seconds": sum(epoch["seconds"] for epoch in epochs) + seconds,
            "epoch_seconds": statistics.median(steady) if steady else None,
            "sharing": sharing,
            "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else None,
            "peak_host_gib": host_peak_gib(),
            "epochs": epochs,
        }
        result = write_result(path, record, arrays)
        if not keep:
            shutil.rmtree(work, ignore_errors=True)
        if asked.number is not None:
            raise _stopped(job, "interrupted when its result was written", asked.number)
        return result


def _stopped(job: Job, how: str, number: int) -> RunStopped:
    return RunStopped(f"{job.title}: {how}; {GO_ON}", 128 + number)


def prepare_job(job: Job, material: Material, work: Path, device: torch.device) -> Prepared:
    """Prepare the job's images and labels as `graphclean train` would."""
    return prepare(
        material.train_inputs(),
        Labels(material.draw.labels, list(range(job.cell.n_classes))),
        job.config,
        build_method(job.config),
        more=[load_detector(name) for name in job.detectors],
        device=device,
        checkpoint=work / CHECKPOINT,
    )


def train_job(
    job: Job, material: Material, prepared: Prepared, log: EpochLog, *, watch: Watch | None = None
) -> Trained:
    """Train or resume, logging epochs in the work folder."""
    draw, config, trainer = material.draw, job.config, prepared.trainer
    kinds = sample_kinds(draw) if draw.truth_known else None
    known = None
    if job.split == "dev" and _classifies(job):
        known = place_inputs(torch.as_tensor(material.known_scored()), trainer.device)
    known_truth = draw.eval_truth[: len(draw.eval_ind)]

    def after_selection(epoch: int, chosen: Selection) -> None:
        due = epoch % STRATEGIES_EVERY == 0 or epoch == config.training.epochs
        if isinstance(chosen, Cleaned) and due and draw.truth_known:
            found = compare_strategies(chosen, draw.truth, job.cell.n_classes, config.graph.lcc_edges)
            log.add(epoch, strategies=found)

    def after_epoch(report: EpochReport, chosen: Selection) -> None:
        log.first(report.epoch - 1)
        earlier = log.records.get(report.epoch, EpochRecord(epoch=report.epoch))
        accuracy = None
        if known is not None:
            predicted = trainer.embed(inputs=known).logits.argmax(1).cpu().numpy()
            accuracy = float((predicted == known_truth).mean())
        record = log.add(
            **report.to_dict(),
            cleaning=describe_cleaning(chosen.labels, chosen.selected, draw),
            degrees=mean_degrees(chosen, kinds)
            if isinstance(chosen, Cleaned) and kinds is not None
            else None,
            strategies=earlier.get("strategies"),
            accuracy=accuracy,
        )
        if watch is not None:
            watch(record)

    return trainer.train(resume=True, on_epoch=after_epoch, on_selection=after_selection)


def _classifies(job: Job) -> bool:
    """Whether the method trains a classifier, whose accuracy can be reported."""
    return load_method(job.config.method.name).info.kind != "ood"


def _score(
    job: Job, material: Material, result: TrainingResult
) -> tuple[JsonObject, Predictions, dict[str, Predictions]]:
    """Score the evaluation set and others of photos, once, after the last epoch."""
    draw, chosen, model = material.draw, result.trained.selection, result.model
    found = model.score(material.scored_images().numpy())
    threshold, classified = model.found if job.cell.ood is not None else None, _classifies(job)
    scores = describe_scores(
        found.classes,
        found.ood_score,
        draw.eval_truth,
        threshold.threshold if threshold is not None else None,
        classified=classified,
    )
    scores["control_auroc"] = _run_control(material, model, found.ood_score) if threshold else None
    if job.cell.photos is not None:
        scores["top5"] = describe_top(found.probabilities, draw.eval_truth, classified=classified)["top5"]
    others = {name: model.score(material.also_images(name)) for name in material.sources.also}
    more, notes = {}, list(result.model.notes)
    for name, other in result.more.items():
        new = other.score(material.scored_images().numpy())
        notes += [note for note in other.notes if note not in notes]
        values = describe_scores(
            new.classes, new.ood_score, draw.eval_truth, other.threshold, classified=classified
        )
        more[name] = {key: values[key] for key in DETECTOR_SCORES} | {"threshold": other.threshold}
    also = {
        name: describe_top(one.probabilities, material.sources.also[name].labels, classified=classified)
        for name, one in others.items()
    }
    record = {
        **job.about,
        "config": job.sections,
        "draw": draw.digest(),
        "sizes": dict(zip(("train", "test", "pool"), draw.sizes, strict=True)),
        "machine": machine(),
        "threshold": _describe_threshold(threshold) if threshold is not None else None,
        "scores": scores,
        **({"detectors": more} if more else {}),
        **({"also": also} if also else {}),
        "cleaning": describe_cleaning(chosen.labels, chosen.selected, draw),
        "notes": [
            *material.sources.notes, *notes, *result.trained.notes, *result.cleaning.summary.warnings
        ],
    }  # fmt: skip
    if draw.truth_known:
        verdicts = score_verdicts(result.cleaning.verdicts, draw.truth, draw.truth < 0)
        record["verdicts"] = asdict(verdicts)
    return record, found, others


def _gather_arrays(
    job: Job,
    material: Material,
    result: TrainingResult,
    found: Predictions,
    others: Mapping[str, Predictions],
) -> Arrays:
    """The arrays that figures and two-seed ensembles need."""
    draw, z = material.draw, result.trained.z
    mapped = choose_mapped(len(draw.labels))
    arrays: Arrays = {}
    if draw.truth_known:
        points = make_map(z[torch.as_tensor(mapped, device=z.device)].float().cpu().numpy())
        if points is not None:
            arrays |= {"map": points, "kind": sample_kinds(draw)[mapped]}
    if job.split == "test":
        known = found.probabilities[draw.eval_truth >= 0]
        arrays |= {"truth": draw.eval_truth, "logits": np.log(known.clip(1e-30))}
    for name, one in others.items():
        truth, logits = other_arrays(name)
        arrays |= {
            truth: material.sources.also[name].labels,
            logits: np.log(one.probabilities.clip(1e-30)),
        }
    if job.cell.ood is not None:
        arrays |= {"truth": draw.eval_truth, "predicted": found.classes, "similarity": 1 - found.ood_score}
    return arrays


def _describe_threshold(found: Threshold) -> JsonObject:
    """The record of a threshold, including the paper's ζ = 1 − threshold."""
    return {"zeta": 1 - found.threshold, **asdict(found)}


def _run_control(material: Material, model: NetworkModel, score: np.ndarray) -> float:
    """AUROC between known images resampled like the OOD ones and unchanged ones: 0.5 if the resampling is not
    detected.
    """
    half = len(material.draw.eval_ind) // 2
    changed = model.score(resampling_control(material.known_scored(slice(half, None)))).ood_score
    both = np.concatenate([score[:half], changed])
    return auroc(both, np.arange(len(both)) >= half)


@contextmanager
def _kept_to_go_on(work: Path) -> Iterator[None]:
    """Remove a work folder after a failure unless it has a checkpoint: nothing else in it is of use."""
    if not _has_begun(work):  # leftovers of a killed run
        for name in (DRAW, LOG):
            (work / name).unlink(missing_ok=True)
    try:
        yield
    except BaseException:
        if not _has_begun(work):
            shutil.rmtree(work, ignore_errors=True)
        raise


def _has_begun(work: Path) -> bool:
    """Whether a checkpoint exists or is being written, which nobody waits for after a second signal."""
    return any((work / CHECKPOINT).glob("*epoch-*"))


@contextmanager
def _pruned(work: Path) -> Iterator[None]:
    """After a work folder is removed, also remove the folders of its method and cell if empty."""
    try:
        yield
    finally:
        if not work.exists():
            with suppress(OSError):
                work.parent.rmdir()
                work.parent.parent.rmdir()
