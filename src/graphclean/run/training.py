"""`graphclean train`: from a source to a run folder that can be resumed at any point."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..audit import Audit
from ..audit.embeddings import require_search
from ..audit.inputs import encode_labels
from ..config import Config, apply_settings, load_preset, recorded_settings
from ..data.files import Names
from ..errors import InputError
from ..learn import EpochReport
from ..runfolder import (
    METRICS,
    check_target,
    clear_drafts,
    new_run,
    read_config,
    read_env,
    read_lines,
    write_config,
    write_env,
    write_lines,
)
from ..sources import Source, read_source
from ..training import Prepared, TrainingResult, epoch_metrics, finish, prepare
from .audit import complete, describe_request, write_photos
from .device import choose_device
from .points import gather_points
from .results import sum_up, write_results
from .stopping import has_checkpoint, interruptible, one_line_errors, stoppable
from .trusted import Trusted, read_trusted, trusted_accuracy
from .watcher import Metrics, Watcher

SECTIONS = ("audit", "graph", "learn", "ood")
PRESETS = {"features": "embeddings", "photos": "embeddings", "images": "cifar10-lond"}
"""What is taken where no preset is named."""
CHECKPOINT = "checkpoint"
LARGE_NETWORK = "preact-resnet18"


@dataclass(frozen=True)
class TrainingRun:
    """A finished run, in memory."""

    out: Path
    result: TrainingResult
    audit: Audit
    """The verdicts, with unreadable photos and all notes."""
    summary: dict[str, Any]
    """As in summary.json: an audit's summary, `detector` and `training`."""


def train(
    data: Path,
    out: Path,
    *,
    preset: str | None = None,
    settings: Sequence[str] = (),
    labels: Path | None = None,
    names: Names | None = None,
    embedder: str | None = None,
    trusted: Path | None = None,
    device: str = "auto",
    resume: bool = False,
    overwrite: bool = False,
    watcher: Watcher | None = None,
) -> TrainingRun:
    """Train on image arrays, embeddings or photos, and write the run folder `out`.

    With `resume` an unfinished run in `out` goes on from its checkpoint, with its own settings unless others
    are given (which the checkpoint then refuses). Where there is no checkpoint yet, it starts anew.
    """
    watcher = watcher if watcher is not None else Watcher()
    names = names if names is not None else Names()
    recorded = _check_out(out, resume=resume, overwrite=overwrite)
    goes_on = recorded is not None and has_checkpoint(out / CHECKPOINT)
    if preset is None and recorded is not None:
        preset = recorded.get("preset")
        base = recorded_settings(recorded.get("settings", {}), str(out / "config.json"))
    else:
        base = load_preset(preset) if preset is not None else Config()
    apply_settings(base, settings, SECTIONS)  # what is misspelt is said before anything is read
    source = read_source(
        data, names, labels=labels, embedder=embedder, images=True, cache=out, progress=watcher.stage
    )
    if preset is None:
        preset = PRESETS[source.kind]
        base = load_preset(preset)
    config = apply_settings(base, settings, SECTIONS)
    described = describe_request(data, labels, names) | source.describe()
    extra = None
    if trusted is not None:
        extra = read_trusted(trusted, source, described, names, labels_of=data)
        described["trusted"] = str(trusted)
    return train_source(
        source,
        out,
        config,
        preset=preset,
        described=described,
        trusted=extra,
        device=_same_device(out, device) if goes_on else device,
        resume=goes_on,
        overwrite=overwrite or resume,
        again="the same command with --resume goes on",
        watcher=watcher,
    )


def train_source(
    source: Source,
    out: Path,
    config: Config,
    *,
    preset: str,
    described: dict[str, Any],
    again: str,
    trusted: Trusted | None = None,
    device: str = "auto",
    resume: bool = False,
    overwrite: bool = False,
    watcher: Watcher,
) -> TrainingRun:
    """Train on what was read; `again` tells a user whose run stops how it can go on."""
    require_search(config.audit)
    labels = encode_labels(source.labels, len(source.inputs))
    if len(labels.classes) < 2:
        raise InputError(f"the labels hold {len(labels.classes)} class; at least two are needed")
    place = choose_device(device)
    with one_line_errors(config, out / CHECKPOINT):
        try:
            prepared = prepare(
                source.inputs,
                labels,
                config,
                ids=source.ids,
                device=place,
                checkpoint=out / CHECKPOINT,
                progress=watcher.stage,
            )
        except InputError as error:
            raise InputError(f"{described.get('data')}, preset {preset}: {error}") from error
        if resume:
            _check_data(out, source)
            clear_drafts(out)
        else:
            with new_run(out, overwrite=overwrite) as folder:
                write_config(folder, "train", described, config.to_dict(), preset)
                write_env(folder, source.fingerprint(), place.type)
                write_photos(source, folder)
        watcher.say(
            f"{described.get('data')}: {_describe(source)}, {len(labels.classes)} classes; "
            f"preset {preset}, epochs: {config.learn.epochs}, device: {place.type}"
        )
        if place.type == "cpu" and config.learn.network == LARGE_NETWORK:
            watcher.say(
                f"{LARGE_NETWORK} takes very long without a GPU; --preset demo has a small network, and "
                "`graphclean clean` on embeddings of the images needs none"
            )
        epochs: list[Metrics] = read_lines(out / METRICS) if resume else []

        def watch(report: EpochReport, _: object) -> None:
            metrics = epoch_metrics(report, prepared)
            if trusted is not None:
                metrics["trusted_accuracy"] = trusted_accuracy(prepared, trusted)
            # What an interrupted run logged beyond its last checkpoint is trained again.
            epochs[:] = [*(earlier for earlier in epochs if earlier["epoch"] < report.epoch), metrics]
            write_lines(out / METRICS, epochs)
            watcher.epoch(metrics, config.learn.epochs)

        prepared.trainer.on_epoch = watch
        with stoppable(prepared, again, watcher):
            trained = prepared.trainer.train(resume=resume)
        with interruptible(again):
            result = finish(prepared, trained, progress=watcher.stage)
            return _write_results(result, prepared, source, out, epochs, preset, described, trusted)


def _check_out(out: Path, *, resume: bool, overwrite: bool) -> dict[str, Any] | None:
    """The config of the run to go on with, if any; refuses one that may be neither resumed nor replaced."""
    if resume and overwrite:
        raise InputError("--resume goes on with a run, --overwrite replaces it; give one of them")
    if not resume or not (out / "config.json").is_file():
        check_target(out, overwrite=overwrite)
        return None
    config = read_config(out)
    if config.get("kind") != "train":
        kind = config.get("kind")
        raise InputError(f"{out}: the folder holds a run of `{kind}`, and only training can be resumed")
    return config


def _check_data(out: Path, source: Source) -> None:
    if read_env(out).get("data_sha256") != source.fingerprint():
        raise InputError(
            f"{out}: the data or its labels are not those that the run was started with; give the same DATA, "
            "or start anew with --overwrite"
        )


def _same_device(out: Path, asked: str) -> str:
    used = str(read_env(out).get("device", "cpu"))
    if asked not in ("auto", used):
        raise InputError(f"{out}: the run was started on {used} and can't go on with --device {asked}")
    return used


def _write_results(
    result: TrainingResult,
    prepared: Prepared,
    source: Source,
    out: Path,
    epochs: list[Metrics],
    preset: str,
    described: dict[str, Any],
    trusted: Trusted | None,
) -> TrainingRun:
    audit = complete(result.audit, source)
    notes = trusted.notes if trusted is not None else []
    summary = sum_up(replace(result, audit=audit), prepared, epochs, preset, notes)
    points = gather_points(result.trained.z, result.model.prototypes)
    write_results(out, prepared.config, preset, described, audit.verdicts, result.model, summary, points)
    return TrainingRun(out, result, audit, summary)


def _describe(source: Source) -> str:
    count = f"{len(source.inputs):,}"
    if source.kind == "images":
        return f"{count} images of {' × '.join(map(str, source.inputs.shape[1:]))}"
    what = "photos" if source.kind == "photos" else "samples"
    return f"{count} {what}, {source.inputs.shape[1]:,} features"
