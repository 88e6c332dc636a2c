"""`graphclean train`: from a source to a run folder that can be resumed at any point."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from .._files import check_unlocked, write_lines
from ..cleaning import CleaningResult
from ..config import Config, apply_settings, left_open, load_preset, recorded_settings
from ..data.photo_stream import PhotoStream
from ..data.tables import Names
from ..distributed.environment import job_id, started_again
from ..distributed.group import ALONE, current, use
from ..embed import Embedder, EmbeddingCache
from ..errors import InputError, arg
from ..methods import build_method, complete_settings
from ..training import EpochReport
from ..training.detection import choose_detector
from ..training.fit import Prepared, TrainingResult, epoch_metrics, finish, prepare
from ..training.method import Selection
from ..training.networks import require_network, takes_features
from .callbacks import Metrics, Watcher
from .cells import write_cells
from .clean import complete, describe_request, write_unreadable
from .device import choose_device
from .folder import (
    CHECKPOINT,
    METRICS,
    bring_back,
    busy,
    check_origin,
    check_target,
    in_use,
    is_run,
    is_unfinished,
    locked_run,
    read_config,
    read_env,
    read_metrics,
    write_config,
    write_env,
)
from .inputs import (
    InputKind,
    Source,
    complete_names,
    embedding,
    is_there,
    path_or,
    read_source,
    recorded_options,
    refuse_sources,
    usual_embedder,
)
from .interrupts import (
    has_checkpoint,
    interruptible,
    one_line_errors,
    stoppable,
    telling_what_is_kept,
)
from .leakage import from_cleaning, write_samples
from .photos import Cropping, Reading
from .projection import gather_points
from .rerun import EarlierRun, read_earlier
from .results import sum_up, write_results
from .route import Route, choose_route
from .schema import ConfigFile, SourceRecord
from .validation import ValidationSet, read_validation, validation_accuracy

TRAIN_SECTIONS = ("cleaning", "graph", "training", "method", "ood")
LARGE_NETWORK = "preact-resnet18"


@dataclass(frozen=True)
class TrainingRun:
    """A finished run in memory."""

    out: Path
    result: TrainingResult
    cleaning: CleaningResult
    """The verdicts, including unreadable photos and all notes."""
    summary: dict[str, Any]
    """As in summary.json: the summary of cleaning, `detector` and `training`."""


def train(
    data: Path,
    out: Path,
    *,
    preset: str | None = None,
    settings: Sequence[str] = (),
    labels: Path | None = None,
    names: Names | None = None,
    embedder: str | Embedder | None = None,
    validation: Path | None = None,
    device: str = "auto",
    show: Sequence[str] = (),
    resume: bool = False,
    overwrite: bool = False,
    watcher: Watcher | None = None,
) -> TrainingRun:
    """Train on image arrays, embeddings or photos, and write the run folder `out`.

    With `resume`, an unfinished run in `out` continues from its checkpoint, with the recorded options about
    its data, and with its own settings unless others are given (which the checkpoint then refuses). Without a
    checkpoint, it starts over.
    """
    watcher = watcher if watcher is not None else Watcher()
    group = current()
    rerun = read_earlier(data)
    if rerun is not None:
        refuse_sources(out, [data])
        data = rerun.data
    found = _check_out(out, resume, overwrite, device) if group.leads else None
    recorded, goes_on, device = group.leader_says(found) or (None, False, device)
    made = recorded if recorded is not None or rerun is None else rerun.config
    earlier = made.get("source", SourceRecord()) if made is not None else SourceRecord()
    before = recorded_options(earlier)
    names = complete_names(names, earlier)
    for name, given in {"labels": labels, "validation": validation}.items():
        if given is None and name in before and group.leads:
            check_origin(out, earlier, f"name the file with {arg(name)}")
    labels, validation = (
        path_or(labels, before.get("labels")),
        path_or(validation, before.get("validation")),
    )
    refuse_sources(out, [data, labels, validation])
    if preset is None and made is not None and made.get("kind") == "train":
        preset = made.get("preset")
        base = recorded_settings(made.get("settings", {}), str(out / "config.json"))
    else:
        base = load_preset(preset) if preset is not None else Config()
    # Misspellings are reported before anything is read.
    if validation is not None and not is_there(validation):
        raise InputError(f"{validation}: no such file or folder")
    asked = complete_settings(apply_settings(base, settings, TRAIN_SECTIONS))
    require_network(asked.training.network)
    choose_detector(asked, build_method(asked))
    place = choose_device(device)
    route = Route(preset, earlier.get("route")) if preset is not None else None
    usual = usual_embedder(earlier)
    way = _Way(settings, embedder, usual, place, base, route, earlier if goes_on else SourceRecord())
    cache = EmbeddingCache()
    with telling_what_is_kept(cache):
        used = embedder if embedder is not None else usual
        source = read_source(
            data,
            names,
            labels=labels,
            embedder=used,
            choose=way.read_photos,
            images=True,
            cache=cache,
            show=show or (rerun.shown if rerun is not None else ()),
            progress=watcher.stage,
        )
        if rerun is not None:
            source = rerun.hold(source)
        route = way.settle(source.kind, len(source.inputs))
        described = describe_request(data, labels, names) | source.describe()
        extra = None
        if validation is not None:
            extra = read_validation(
                validation, source, described, names, labels_of=data, device=place, embedder=used
            )
            described["validation"] = str(validation)
        if route.why is not None:
            described["route"] = route.why
        if not goes_on:
            _say_what_is_open(route.preset, settings, way.config, watcher)
        return train_source(
            source,
            out,
            way.config,
            route=route,
            described=described,
            validation=extra,
            device=device,
            resume=goes_on,
            overwrite=overwrite or resume or recorded is not None,
            again=f"continue with {arg('resume')}",
            watcher=watcher,
            rerun=rerun,
        )


def train_arrays(
    source: Source,
    out: Path,
    *,
    preset: str | None = None,
    settings: Sequence[str] = (),
    device: str = "auto",
    overwrite: bool = False,
    watcher: Watcher | None = None,
) -> TrainingRun:
    """`train` for arrays in memory."""
    check_target(out, overwrite=overwrite)
    base = load_preset(preset) if preset is not None else Config()
    route = Route(preset) if preset is not None else None
    way = _Way(settings, None, None, choose_device(device), base, route, SourceRecord())
    route = way.settle(source.kind, len(source.inputs))
    return train_source(
        source,
        out,
        way.config,
        route=route,
        described=describe_request(source, None, Names()) | source.describe(),
        device=device,
        overwrite=overwrite,
        again=f"start again with {arg('overwrite')}",
        watcher=watcher if watcher is not None else Watcher(),
    )


def train_source(
    source: Source,
    out: Path,
    config: Config,
    *,
    route: Route,
    described: SourceRecord,
    again: str,
    validation: ValidationSet | None = None,
    device: str = "auto",
    resume: bool = False,
    overwrite: bool = False,
    watcher: Watcher,
    rerun: EarlierRun | None = None,
) -> TrainingRun:
    """Train on a source; `again` is the advice on how to continue a stopped run.

    `rerun` is the run whose decisions the source holds.
    """
    preset = route.preset
    labels = source.encode()
    place, group = choose_device(device), current()
    if group.several and len(set(group.all_say(source.fingerprint()))) > 1:
        raise InputError(f"{described.get('data')}: the data is not the same on all machines")
    with one_line_errors(config, out / CHECKPOINT, again=f" and {arg('overwrite')}"), ExitStack() as alone:
        try:
            prepared = prepare(
                source.inputs,
                labels,
                config,
                build_method(config),
                ids=source.ids,
                device=place,
                checkpoint=out / CHECKPOINT,
                trusted=(validation.inputs, validation.codes) if validation is not None else None,
                progress=watcher.stage,
            )
        except InputError as error:
            raise InputError(f"{described.get('data')}, preset {preset}: {error.spelled(arg)}") from error
        if group.leads:
            alone.enter_context(in_use(out))
        if resume and group.leads:
            _check_data(out, source)
        elif group.leads:
            with locked_run(out, overwrite=overwrite) as folder:
                write_config(folder, "train", described, config.to_dict(), preset)
                write_env(folder, source.fingerprint(), place.type, source.decisions_fingerprint())
                write_unreadable(source, folder)
                write_cells(source.cells, folder)
        watcher.say(
            f"{described.get('data')}: {_describe(source)}, {len(labels.classes)} classes; "
            f"preset {preset}, epochs: {config.training.epochs}, device: {place.type}"
            + (f", processes: {group.size}" if group.several else "")
        )
        if route.why is not None:
            watcher.say(route.why)
        if isinstance(source.inputs, PhotoStream):
            watcher.say(source.inputs.note)
            alone.callback(source.close)
        if place.type == "cpu" and config.training.network == LARGE_NETWORK:
            watcher.say(
                f"{LARGE_NETWORK} takes very long without a GPU; preset small-images has a small network, "
                "and `graphclean clean` on embeddings of the images needs none"
            )
        epochs: list[Metrics] = read_metrics(out) if resume and group.leads else []

        def watch(report: EpochReport, _: Selection) -> None:
            metrics = epoch_metrics(report, prepared)
            if validation is not None:
                metrics["validation_accuracy"] = validation_accuracy(prepared, validation)
            # Epochs that an interrupted run logged after its last checkpoint are trained again.
            epochs[:] = [*(earlier for earlier in epochs if earlier["epoch"] < report.epoch), metrics]
            write_lines(out / METRICS, epochs)
            watcher.epoch(metrics, config.training.epochs)

        with stoppable(prepared, again, watcher):
            trained = prepared.trainer.train(
                resume=resume,
                on_epoch=watch if group.leads else None,
                on_start=lambda done, total: watcher.stage("training without labels", done, total),
            )
        group.follow_only()
        with interruptible(again), use(ALONE):
            good = validation.inputs if validation is not None else None
            result = finish(prepared, trained, good=good, progress=watcher.stage)
            return _write_results(result, prepared, source, out, epochs, route, described, validation, rerun)


def _say_what_is_open(preset: str, settings: Sequence[str], config: Config, watcher: Watcher) -> None:
    """Report settings that the preset leaves to the user and that are not set, if the method has them."""
    chosen = {setting.partition("=")[0].strip() for setting in settings}
    values = {
        f"{part}.{key}": value for part, keys in config.to_dict().items() for key, value in keys.items()
    }
    missing = [name for name in left_open(preset) if name not in chosen]
    if missing and all(name in values for name in missing):
        shown = ", ".join(f"{name}={values[name]}" for name in missing)
        watcher.say(
            f"preset {preset} leaves to you what the paper chose for each data set; not set, it is {shown}"
        )


@dataclass
class _Way:
    """The preset, settings and embedder, as requested or as chosen once the data is known."""

    settings: Sequence[str]
    embedder: str | Embedder | None
    usual: str | None
    """The embedder of an earlier run, used if no other is requested."""
    device: torch.device
    base: Config
    route: Route | None
    before: SourceRecord
    """What the run that is continued was made from."""

    @property
    def config(self) -> Config:
        """All settings, with those of the user applied last."""
        return complete_settings(apply_settings(self.base, self.settings, TRAIN_SECTIONS))

    def settle(self, kind: InputKind, count: int) -> Route:
        """The requested route, or the one for this number of samples of a kind."""
        if self.route is None:
            named = "embedding-head" if self.embedder is not None else None
            parts = (setting.partition("=") for setting in self.settings)
            asked = [value.strip() for name, _, value in parts if name.strip() == "training.network"]
            self.route = choose_route(kind, count, self.device, asked[-1] if asked else named)
            self.base = load_preset(self.route.preset)
        return self.route

    def read_photos(self, count: int) -> Reading:
        """How the network takes photos; which network that is may depend on their number."""
        route, training = self.settle("photos", count), self.config.training
        if takes_features(training.network):
            return embedding(self.embedder if self.embedder is not None else self.usual, self.device)
        if self.embedder is not None:
            name = getattr(self.embedder, "name", self.embedder)
            raise InputError(
                f"{arg('embedder')} {name} makes features of photos, but {training.network} "
                f"(preset {route.preset}) takes the photos themselves; leave one of them out"
            )
        return Cropping.choose(training.image_size, count, training.photo_storage, self.before)


def _check_out(out: Path, resume: bool, overwrite: bool, device: str) -> tuple[ConfigFile | None, bool, str]:
    """The config of the run to continue, if any, whether it has a checkpoint, and the device to use.

    A run that can be neither continued nor replaced is refused. One that this job began is continued: its
    processes were restarted, after a failure or because machines joined or left.
    """
    job = job_id()
    ours = job is not None and is_run(out) and read_env(out).get("job") == job and is_unfinished(out)
    if (ours or started_again()) and not (resume and overwrite):
        resume, overwrite = resume or ours or not overwrite, overwrite and not ours
    recorded = _read_recorded(out, resume=resume, overwrite=overwrite)
    goes_on = recorded is not None and has_checkpoint(out / CHECKPOINT)
    if recorded is not None and not goes_on and not is_unfinished(out):
        raise InputError(
            f"{out}: the run is finished, and has no checkpoint; start again with {arg('overwrite')}"
        )
    return recorded, goes_on, _same_device(out, device) if goes_on else device


def _read_recorded(out: Path, *, resume: bool, overwrite: bool) -> ConfigFile | None:
    """The config of the run to resume, if any."""
    if resume and overwrite:
        raise InputError(f"{arg('resume')} continues a run, {arg('overwrite')} replaces it; give one of them")
    if not resume or not (out / "config.json").is_file():
        check_target(out, overwrite=overwrite)
        return None
    bring_back(out)
    check_unlocked(out, busy(out, "out"))
    config = read_config(out)
    if config.get("kind") != "train":
        kind = config.get("kind")
        raise InputError(f"{out}: the folder holds a run of `{kind}`, and only training can be resumed")
    return config


def _check_data(out: Path, source: Source) -> None:
    env, decided = read_env(out), source.decisions_fingerprint()
    if env.get("data_sha256") != source.fingerprint() or env.get("decisions_sha256") != decided:
        raise InputError(
            f"{out}: the data, its labels or what was decided on them are not those that the run was started "
            f"with; give the same DATA, or start again with {arg('overwrite')}"
        )


def _same_device(out: Path, asked: str) -> str:
    used = str(read_env(out).get("device", "cpu"))
    if asked not in ("auto", used):
        raise InputError(
            f"{out}: the run was started on {used} and can't be continued with {arg('device')} {asked}"
        )
    return used


def _write_results(
    result: TrainingResult,
    prepared: Prepared,
    source: Source,
    out: Path,
    epochs: list[Metrics],
    route: Route,
    described: SourceRecord,
    validation: ValidationSet | None,
    rerun: EarlierRun | None,
) -> TrainingRun:
    cleaning = complete(result.cleaning, source)
    notes = validation.notes + validation.leaks(cleaning, source) if validation is not None else []
    # Accuracy of the final model, which may combine prototypes or class means with the network.
    right = validation.accuracy(result.model) if validation is not None else None
    summary = sum_up(replace(result, cleaning=cleaning), prepared, epochs, route, notes, right)
    if rerun is not None:
        changes = rerun.compare(cleaning, source)
        changes.write(out)
        summary["rerun"] = changes.record
    points = gather_points(result.trained.z, torch.as_tensor(result.ood_score))
    model, verdicts = result.model, cleaning.verdicts
    if model.class_means is not None:
        write_samples(from_cleaning(cleaning, source), out)
    write_results(out, prepared.config, route.preset, described, verdicts, model, summary, points)
    return TrainingRun(out, result, cleaning, summary)


def _describe(source: Source) -> str:
    count = f"{len(source.inputs):,}"
    if source.inputs.ndim == 4:
        what = "photos" if source.kind == "photos" else "images"
        return f"{count} {what} of {' × '.join(map(str, source.inputs.shape[1:]))}"
    what = "photos" if source.kind == "photos" else "samples"
    return f"{count} {what}, {source.inputs.shape[1]:,} features"
