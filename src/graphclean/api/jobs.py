"""`graphclean.clean` and `graphclean.train`: the jobs of the commands of that name."""

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from ..cli.progress import StageProgress
from ..config import apply_settings
from ..config.overrides import DETECTOR, METHOD, with_choice
from ..embed import Embedder, EmbeddingFunction, as_embedder
from ..errors import DataWarning, InputError, arg
from ..runs import clean as cleaning
from ..runs import train as training
from ..runs.callbacks import Watcher
from ..runs.device import limited_threads
from ..runs.inputs import Source
from ..runs.memory import hold_arrays
from ..runs.rerun import default_run, usual_settings
from ..runs.trackers import Callback, open_callbacks
from .names import NameOptions, to_names
from .run import Run


def clean(
    data: Any,
    labels: Any = None,
    *,
    ids: Sequence[Any] | None = None,
    out: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    embedder: str | Embedder | EmbeddingFunction | None = None,
    device: str = "auto",
    against: str | Path | None = None,
    show: Sequence[str] | Mapping[str, Any] | None = None,
    threads: int | None = None,
    overwrite: bool = False,
    quiet: bool = False,
    **names: Unpack[NameOptions],
) -> Run:
    """Give every sample a verdict, without training, as `graphclean clean` does, and return the run.

    Parameters
    ----------
    data
        A path to anything that the command accepts: a folder of photos, a table, a file of embeddings, or a
        reviewed run, which is made again with every decision held fixed. Or embeddings in memory: an array or
        a DataFrame of shape (N, d).
    labels
        A file of labels, if `data` is a path without labels. For embeddings in memory, the labels themselves.
    ids
        Names of the samples in memory. The default is the pandas index, or else the row number.
    out
        The run folder. The default is `runs/NAME-clean`.
    settings
        Changes to settings by name, such as `{"cleaning.k": 20}`.
    embedder
        For photos: a name, an `Embedder`, or a function from uint8 images (n, 224, 224, 3) to features
        (n, d). `embed.FunctionEmbedder` gives a function another image size, and a name under which its
        features are cached.
    device
        The device for embedding photos with timm: `auto`, `cpu` or `cuda`.
    threads
        Maximum number of threads. The default is the number of cores.
    against
        Other data, such as a test set. Its samples that are also in `data` are listed in leakage.csv.
    show
        What the report shows with each sample: names of columns of the table that `data` (or `labels`) is.
        For data in memory, a dict or a DataFrame with one value per sample.
    overwrite
        Replace an existing run.
    quiet
        Show no progress.
    **names
        The names of arrays or columns in a file: `features_key`, `labels_key`, `label_column`, `id_column`,
        `path_column`.

    Examples
    --------
    >>> run = graphclean.clean("photos/train")
    >>> run.verdicts.query("verdict == 'relabel'")
    >>> run.apply(out="cleaned", form="link")
    """
    source = _find_source(data, labels, ids, show)
    if isinstance(source, Source):
        _refuse_for_arrays(embedder=embedder, **names)
    target = Path(out) if out is not None else default_run(source, "clean")
    config = apply_settings(
        usual_settings(source, "clean"), _as_assignments(settings), sections=("cleaning", "ood")
    )
    with limited_threads(threads), StageProgress(quiet=quiet) as progress:
        cleaning.clean(
            source,
            target,
            config,
            labels=_labels_file(source, labels),
            names=to_names(names),
            embedder=_embedder(embedder),
            device=device,
            against=Path(against) if against is not None else None,
            show=_columns(source, show),
            overwrite=overwrite,
            progress=progress,
        )
    return _finish(target)


def train(
    data: Any,
    labels: Any = None,
    *,
    ids: Sequence[Any] | None = None,
    out: str | Path | None = None,
    preset: str | None = None,
    method: str | None = None,
    detector: str | None = None,
    settings: Mapping[str, Any] | None = None,
    embedder: str | Embedder | EmbeddingFunction | None = None,
    validation: str | Path | None = None,
    device: str = "auto",
    show: Sequence[str] | Mapping[str, Any] | None = None,
    threads: int | None = None,
    resume: bool = False,
    log_to: Sequence[str | Callback] = (),
    overwrite: bool = False,
    quiet: bool = False,
    **names: Unpack[NameOptions],
) -> Run:
    """Train a classifier and an OOD detector on untrusted labels, as `graphclean train` does.

    The parameters are those of `clean` without `against`, and the following. `data` in memory may also be
    images (N, H, W), (N, H, W, C) or (N, C, H, W); `images_key` names the array of images in a file.

    Parameters
    ----------
    preset, method, detector
        Names from `graphclean presets`, `graphclean methods` and `graphclean detectors`.
    validation
        A path to samples with trusted labels, to monitor accuracy. Some methods also learn from them.
    resume
        Continue an unfinished run.
    log_to
        `tensorboard` or `mlflow` (extras of these names), or your own functions, which are called after every
        epoch with its metrics and the number of epochs.

    Examples
    --------
    >>> run = graphclean.train("photos/train", settings={"training.epochs": 30})
    >>> run.predict("photos/new")
    >>> run.export()
    """
    source = _find_source(data, labels, ids, show)
    target = Path(out) if out is not None else default_run(source, "train", resume=resume)
    assignments = with_choice(METHOD, "method", method, _as_assignments(settings))
    assignments = with_choice(DETECTOR, "detector", detector, assignments)
    if isinstance(log_to, str):
        log_to = (log_to,)
    with (
        limited_threads(threads),
        StageProgress(quiet=quiet) as progress,
        open_callbacks([progress.epoch, *log_to], target) as epoch,
    ):
        watcher = Watcher(progress.say, epoch, progress)
        if isinstance(source, Source):
            _refuse_for_arrays(embedder=embedder, validation=validation, resume=resume or None, **names)
            training.train_arrays(
                source,
                target,
                preset=preset,
                settings=assignments,
                device=device,
                overwrite=overwrite,
                watcher=watcher,
            )
        else:
            training.train(
                source,
                target,
                preset=preset,
                settings=assignments,
                labels=_labels_file(source, labels),
                names=to_names(names),
                embedder=_embedder(embedder),
                validation=Path(validation) if validation is not None else None,
                device=device,
                show=_columns(source, show),
                resume=resume,
                overwrite=overwrite,
                watcher=watcher,
            )
    return _finish(target)


def _find_source(data: Any, labels: Any, ids: Sequence[Any] | None, show: Any) -> Path | Source:
    if not isinstance(data, str | Path):
        if show is not None and not hasattr(show, "items"):
            raise InputError(
                f"{arg('show')} of arrays is a dict or a table: names, and a value for each sample"
            )
        return hold_arrays(data, labels, ids, dict(show.items()) if show is not None else None)
    if ids is not None:
        raise InputError(f"{data}: {arg('ids')} are for arrays in memory; a table has {arg('id_column')}")
    return Path(data)


def _embedder(given: str | Embedder | EmbeddingFunction | None) -> str | Embedder | None:
    return as_embedder(given) if given is not None else None


def _columns(source: Path | Source, show: Any) -> list[str]:
    """The columns to show for a path; for arrays, the values are part of the source."""
    if isinstance(source, Source) or show is None:
        return []
    if isinstance(show, str):
        return [show]
    if hasattr(show, "items"):
        raise InputError(f"{source}: {arg('show')} of a path are names of columns; values go with arrays")
    return [str(name) for name in show]


def _labels_file(source: Path | Source, labels: Any) -> Path | None:
    if isinstance(source, Source) or labels is None:
        return None
    if not isinstance(labels, str | Path):
        raise InputError(f"{source}: {arg('labels')} of a path are a path, too; arrays go with arrays")
    return Path(labels)


def _as_assignments(settings: Mapping[str, Any] | None) -> list[str]:
    if settings is not None and not isinstance(settings, Mapping):
        raise TypeError(f'settings are a dict such as {{"cleaning.k": 20}}, not {type(settings).__name__}')
    return [f"{name}={value}" for name, value in (settings or {}).items()]


def _refuse_for_arrays(**given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            raise InputError(f"{arg(name)} is for data that is given as a path, not for arrays in memory")


def _finish(target: Path) -> Run:
    run = Run(target)
    for message in run.warnings:
        warnings.warn(message, DataWarning, stacklevel=3)
    return run
