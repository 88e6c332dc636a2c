"""The commands that produce verdicts and predictions: `clean`, `train`, `predict`, `demo`."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ..config.presets import ENOUGH, DeviceName, NeighborSearch
from ..errors import InputError
from . import display as screen
from .loading import loading
from .options import (
    EmbedderOption,
    FeaturesKey,
    IdColumn,
    ImagesKey,
    Json,
    LabelColumn,
    LabelsFile,
    LabelsKey,
    MethodOption,
    Overwrite,
    PathColumn,
    Quiet,
    RunFolder,
    Settings,
    Show,
    Threads,
    flag,
)
from .progress import StageProgress

Device = Annotated[DeviceName, typer.Option(help="Where to compute (auto: CUDA if available).")]


def clean(
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA",
            help="Embeddings (.npz, .npy, .csv, .tsv, .parquet), a folder of photos, a table of their paths, "
            "a parquet file (or a folder of parts) with the photos in it, a folder written by a Hugging Face "
            "data set's save_to_disk, or hf:NAME (extra hf). A split is named after a colon: hf:mnist:train. "
            "Or a run: its data is cleaned again, with the decisions of its review held fixed.",
        ),
    ],
    labels: LabelsFile = None,
    features_key: FeaturesKey = None,
    labels_key: LabelsKey = None,
    label_column: LabelColumn = None,
    id_column: IdColumn = None,
    path_column: PathColumn = None,
    embedder: EmbedderOption = "auto",
    device: Annotated[
        DeviceName, typer.Option(help="Device for a timm embedder (auto: CUDA if available).")
    ] = DeviceName.auto,
    search: Annotated[
        NeighborSearch | None,
        typer.Option(help="Exact (the default), or approx for very large sets."),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(help="Other data, such as a test set: list the samples that DATA shares with it."),
    ] = None,
    threads: Threads = None,
    out: Annotated[Path | None, typer.Option(help="Run folder (default: runs/NAME-clean).")] = None,
    settings: Settings = None,
    show: Show = None,
    as_json: Json = False,
    quiet: Quiet = False,
    overwrite: Overwrite = False,
) -> None:
    """Give every sample a verdict, without training, from embeddings or photos and their labels."""
    with loading():
        from ..config import apply_settings
        from ..data.tables import Names
        from ..distributed.launch import joined
        from ..runs import clean as job
        from ..runs.device import limited_threads
        from ..runs.rerun import default_run, read_changes, usual_settings

    changes = [f"cleaning.search={search.value}"] if search is not None else []
    config = apply_settings(usual_settings(data, "clean"), [*changes, *(settings or [])], ("cleaning", "ood"))
    target = out if out is not None else default_run(data, "clean")
    names = Names(None, features_key, labels_key, label_column, id_column, path_column)
    with joined(), limited_threads(threads), StageProgress(quiet=quiet or as_json) as progress:
        cleaning = job.clean(
            data,
            target,
            config,
            labels=labels,
            names=names,
            embedder=None if embedder == "auto" else embedder,
            device=device.value,
            against=against,
            show=show or [],
            overwrite=overwrite,
            progress=progress,
        )
    if as_json:
        screen.print_json({"run": str(target), **cleaning.summary.to_dict(), "rerun": read_changes(target)})
    elif not quiet:
        screen.show_cleaning(cleaning.summary, str(data), target, read_changes(target))


def train(
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA", help="Arrays of images (.npz, .npy), or any data that `graphclean clean` takes."
        ),
    ],
    preset: Annotated[
        str | None,
        typer.Option(
            help="See `graphclean presets`. By default heads are trained on embeddings, and on pretrained "
            f"features of photos without a GPU or under {ENOUGH:,} photos (embeddings); the whole "
            "network on more photos (photos) and on arrays of images (cifar10-lond, or in fewer epochs "
            f"from {ENOUGH:,} images on cifar10-lond-fast), a small one without a GPU (small-images)."
        ),
    ] = None,
    method: MethodOption = None,
    detector: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A detector other than the method's (see `graphclean detectors`)."),
    ] = None,
    settings: Settings = None,
    out: Annotated[Path | None, typer.Option(help="Run folder (default: runs/NAME-train).")] = None,
    resume: Annotated[bool, flag("--resume", "Continue an unfinished run.")] = False,
    overwrite: Overwrite = False,
    validation: Annotated[
        Path | None,
        typer.Option(
            help="Samples with trusted labels, to report accuracy on; some methods learn from them."
        ),
    ] = None,
    labels: LabelsFile = None,
    images_key: ImagesKey = None,
    features_key: FeaturesKey = None,
    labels_key: LabelsKey = None,
    label_column: LabelColumn = None,
    id_column: IdColumn = None,
    path_column: PathColumn = None,
    embedder: EmbedderOption = "auto",
    device: Device = DeviceName.auto,
    threads: Threads = None,
    show: Show = None,
    log_to: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TRACKER",
            help="Also log the metrics of every epoch to tensorboard or mlflow (extras of these names).",
        ),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Train a classifier and an OOD detector on labels that can't be trusted, and judge every label.

    A whole network takes the center square of each photo at training.image_size pixels. `--set
    training.network=timm:NAME` takes any network of timm (extra timm), from its published weights unless
    training.pretrained=false.
    """
    with loading():
        from ..config.overrides import DETECTOR, METHOD, with_choice
        from ..data.tables import Names
        from ..distributed.launch import joined
        from ..runs import train as job
        from ..runs.callbacks import Watcher
        from ..runs.device import limited_threads
        from ..runs.rerun import default_run
        from ..runs.trackers import open_callbacks

    chosen = with_choice(METHOD, "method", method, settings or [])
    chosen = with_choice(DETECTOR, "detector", detector, chosen)
    target = out if out is not None else default_run(data, "train", resume=resume)
    with (
        joined() as group,
        limited_threads(threads),
        StageProgress(quiet=quiet or as_json) as progress,
        open_callbacks([progress.epoch, *(log_to or [])] if group.leads else [], target) as epoch,
    ):
        done = job.train(
            data,
            target,
            preset=preset,
            settings=chosen,
            labels=labels,
            names=Names(images_key, features_key, labels_key, label_column, id_column, path_column),
            embedder=None if embedder == "auto" else embedder,
            validation=validation,
            device=device.value,
            show=show or [],
            resume=resume,
            overwrite=overwrite,
            watcher=Watcher(progress.say, epoch, progress),
        )
    if as_json:
        screen.print_json({"run": str(target), **done.summary})
    elif not quiet:
        screen.show_training(done.cleaning.summary, done.summary, str(data), target)


def predict(
    folder: RunFolder,
    data: Annotated[Path, typer.Argument(metavar="DATA", help="New data, of the same kind as the run's.")],
    images_key: ImagesKey = None,
    features_key: FeaturesKey = None,
    labels_key: LabelsKey = None,
    label_column: Annotated[
        str | None,
        typer.Option(help="Column to ignore, or with --evaluate the true labels (default: label)."),
    ] = None,
    id_column: IdColumn = None,
    path_column: PathColumn = None,
    evaluate: Annotated[bool, flag("--evaluate", "DATA has correct labels: score the predictions.")] = False,
    device: Device = DeviceName.auto,
    threads: Threads = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help=".csv or .parquet (default: RUN/predictions/NAME.csv); - is CSV on standard output, and the "
            "summary on standard error."
        ),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    overwrite: Overwrite = False,
) -> None:
    """Predict a class or OOD for new data with a run's model."""
    with loading():
        from ..data.tables import Names
        from ..distributed.launch import joined
        from ..runs import predict as job
        from ..runs.device import limited_threads

    printed = str(out) == "-"
    if printed and as_json:
        raise InputError("--out - prints the predictions, --json what came of them; give one of them")
    options: dict[str, Any] = {
        "names": Names(images_key, features_key, labels_key, label_column, id_column, path_column),
        "evaluate": evaluate,
        "device": device.value,
    }
    place: Any = sys.stdout if printed else out
    with joined(), limited_threads(threads), StageProgress(quiet=quiet or as_json) as progress:
        found = job.predict(folder, data, out=place, overwrite=overwrite, progress=progress, **options)
    if as_json:
        scores = {"scores": found.scores} if evaluate else {}
        screen.print_json({"out": str(found.out), **found.counts(), **scores, "warnings": found.warnings})
    elif not quiet:
        screen.show_predictions(found, str(data))


def demo(
    seed: Annotated[int, typer.Option(help="Seed of the noise and of training.", min=0)] = 0,
    out: Annotated[Path, typer.Option(help="Run folder.")] = Path("runs/demo"),
    settings: Settings = None,
    as_json: Json = False,
    quiet: Quiet = False,
    overwrite: Overwrite = False,
) -> None:
    """Train on handwritten digits, half of whose labels are random, and compare with the ground truth."""
    with loading():
        from ..distributed.launch import joined
        from ..report import write_report
        from ..runs import demo as job
        from ..runs.callbacks import Watcher

    with joined(), StageProgress(quiet=quiet or as_json) as progress:
        watcher = Watcher(progress.say, progress.epoch, progress)
        done = job.demo(out, settings=settings or [], seed=seed, overwrite=overwrite, watcher=watcher)
        page = write_report(out, progress=progress).out
    if as_json:
        found = {"run": str(out), "report": str(page), "facts": done.facts, "scores": done.scores}
        screen.print_json({**found, **done.run.summary})
    elif not quiet:
        screen.show_demo(done.run.cleaning.summary, done.run.summary, done.scores, done.facts, out, page)
