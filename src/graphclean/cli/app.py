"""`graphclean …`: reads the command line, calls `run`, and shows what came of it."""

import json
import os
import signal
import sys
import webbrowser
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, Any, NoReturn, get_args

import typer

from .. import __version__
from ..config.presets import (
    ENOUGH,
    DetectorName,
    DeviceName,
    NeighborSearch,
)
from ..errors import InputError, RunStopped
from . import bench as bench_cli
from . import catalog
from . import data as data_cli
from . import display as screen
from .loading import loading
from .options import (
    Commands,
    Data,
    EmbedderOption,
    FeaturesKey,
    IdColumn,
    ImagesKey,
    Json,
    LabelColumn,
    LabelsFile,
    LabelsKey,
    Overwrite,
    PathColumn,
    Quiet,
    RunFolder,
    Settings,
    as_option,
    flag,
)
from .progress import StageProgress, printable

app = typer.Typer(
    name="graphclean",
    cls=Commands,
    help="Verdicts for labels you can't trust: keep, relabel, or out of distribution.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(data_cli.app, name="data")
app.add_typer(bench_cli.app, name="bench")
for listing in (catalog.presets, catalog.methods, catalog.detectors):
    app.command()(listing)

Device = Annotated[DeviceName, typer.Option(help="auto: CUDA where there is any.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"graphclean {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool,
        flag("--version", "Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Verdicts for labels you can't trust: keep, relabel, or out of distribution."""
    del version


@app.command()
def clean(
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA",
            help="Embeddings (.npz, .npy, .csv, .tsv, .parquet), a folder of photos, a table of their paths, "
            "a parquet file (or a folder of parts) with the photos in it, a folder written by a Hugging Face "
            "data set's save_to_disk, or hf:NAME (extra hf). A split is named after a colon: hf:mnist:train.",
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
        DeviceName, typer.Option(help="Where a network of timm embeds photos; auto: CUDA where there is any.")
    ] = DeviceName.auto,
    search: Annotated[
        NeighborSearch, typer.Option(help="Exact, or approx for very large sets (extra ann).")
    ] = NeighborSearch.exact,
    out: Annotated[Path | None, typer.Option(help="Run folder (default: runs/NAME-clean).")] = None,
    settings: Settings = None,
    as_json: Json = False,
    quiet: Quiet = False,
    overwrite: Overwrite = False,
) -> None:
    """Give every sample a verdict, without training: from embeddings or photos, and their labels."""
    with loading():
        from ..config import Config, apply_settings
        from ..data.tables import Names
        from ..runs import clean as job
        from ..runs.inputs import source_name

    changes = [f"cleaning.search={search.value}", *(settings or [])]
    config = apply_settings(Config(), changes, sections=("cleaning",))
    target = out if out is not None else Path("runs") / f"{source_name(data)}-clean"
    names = Names(None, features_key, labels_key, label_column, id_column, path_column)
    with StageProgress(quiet=quiet or as_json) as progress:
        cleaning = job.clean(
            data,
            target,
            config,
            labels=labels,
            names=names,
            embedder=None if embedder == "auto" else embedder,
            device=device.value,
            overwrite=overwrite,
            progress=progress,
        )
    if as_json:
        _print_json({"run": str(target), **cleaning.summary.to_dict()})
    elif not quiet:
        screen.show_cleaning(cleaning.summary, str(data), target)


@app.command()
def train(
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA", help="Arrays of images (.npz, .npy), or all that `graphclean clean` takes."
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
    settings: Settings = None,
    out: Annotated[Path | None, typer.Option(help="Run folder (default: runs/NAME-train).")] = None,
    resume: Annotated[bool, flag("--resume", "Go on with an unfinished run.")] = False,
    overwrite: Overwrite = False,
    validation: Annotated[
        Path | None, typer.Option(help="Samples with labels known to be right, to watch accuracy by.")
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
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Learn a classifier and a detector from labels that can't be trusted, and judge every label.

    A whole network sees photos as their center square at training.image_size pixels; `--set
    training.network=timm:NAME` takes any network of timm (extra timm), from its published weights unless
    training.pretrained=false.
    """
    with loading():
        from ..data.tables import Names
        from ..runs import train as job
        from ..runs.callbacks import Watcher
        from ..runs.inputs import source_name

    target = out if out is not None else Path("runs") / f"{source_name(data)}-train"
    with StageProgress(quiet=quiet or as_json) as progress:
        done = job.train(
            data,
            target,
            preset=preset,
            settings=settings or [],
            labels=labels,
            names=Names(images_key, features_key, labels_key, label_column, id_column, path_column),
            embedder=None if embedder == "auto" else embedder,
            validation=validation,
            device=device.value,
            resume=resume,
            overwrite=overwrite,
            watcher=Watcher(progress.say, progress.epoch, progress),
        )
    if as_json:
        _print_json({"run": str(target), **done.summary})
    elif not quiet:
        screen.show_training(done.cleaning.summary, done.summary, str(data), target)


@app.command()
def predict(
    folder: RunFolder,
    data: Annotated[Path, typer.Argument(metavar="DATA", help="New data of the kind the run was made from.")],
    images_key: ImagesKey = None,
    features_key: FeaturesKey = None,
    labels_key: LabelsKey = None,
    label_column: Annotated[
        str | None, typer.Option(help="Column to leave aside, or with --evaluate the truth (default: label).")
    ] = None,
    id_column: IdColumn = None,
    path_column: PathColumn = None,
    detector: Annotated[
        DetectorName | None,
        typer.Option(
            help="Of a run of `clean`: judge OOD by the nearest training samples, or by class prototypes."
        ),
    ] = None,
    evaluate: Annotated[
        bool, flag("--evaluate", "DATA has labels, and they are true: say how many are met.")
    ] = False,
    device: Device = DeviceName.auto,
    out: Annotated[
        Path | None, typer.Option(help=".csv or .parquet (default: RUN/predictions/NAME.csv).")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    overwrite: Overwrite = False,
) -> None:
    """Class or OOD for new data, from what a run learned."""
    with loading():
        from ..data.tables import Names
        from ..runs import predict as job

    names = Names(images_key, features_key, labels_key, label_column, id_column, path_column)
    with StageProgress(quiet=quiet or as_json) as progress:
        table, target = job.predict(
            folder,
            data,
            out=out,
            names=names,
            detector=detector.value if detector is not None else None,
            evaluate=evaluate,
            device=device.value,
            overwrite=overwrite,
            progress=progress,
        )
    if as_json:
        counts = screen.prediction_counts(table)
        scores = {"scores": table.attrs["scores"]} if evaluate else {}
        _print_json({"out": str(target), **counts, **scores, "warnings": table.attrs["warnings"]})
    elif not quiet:
        screen.show_predictions(table, str(data), target)


@app.command()
def export(
    folder: RunFolder,
    out: Annotated[Path | None, typer.Option(help="File to write (default: RUN/model.onnx).")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    overwrite: Overwrite = False,
) -> None:
    """The model of a run as an ONNX file, pre-processing and OOD score inside (extra onnx)."""
    with loading():
        from ..runs import export as job

    with StageProgress(quiet=quiet or as_json) as progress:
        done = job.export(folder, out=out, overwrite=overwrite, say=progress.say)
    if as_json:
        _print_json(done.to_dict())
    elif not quiet:
        screen.show_export(done.to_dict())


@app.command()
def apply(
    folder: RunFolder,
    out: Annotated[
        Path | None, typer.Option(help="Manifest (.csv, .parquet), or folder (default: RUN/cleaned…).")
    ] = None,
    link: Annotated[bool, flag("--link", "A folder of links to the photos.")] = False,
    hardlink: Annotated[bool, flag("--hardlink", "A folder of hard links to them.")] = False,
    copy: Annotated[
        bool,
        flag(
            "--copy",
            "A folder of copies of them; of a table with photos in it, a cleaned .parquet.",
        ),
    ] = False,
    data: Data = None,
    drop_uncertain: Annotated[
        bool,
        flag("--drop-uncertain", "Remove what is uncertain (default: its label stays)."),
    ] = False,
    dry_run: Annotated[bool, flag("--dry-run", "Show what would be done, and write nothing.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    overwrite: Overwrite = False,
) -> None:
    """Carry out the verdicts: a manifest with label, action and reason of every sample, or a cleaned folder.

    What people decided in `graphclean review` goes before the verdicts.
    `keep` and `uncertain` keep their label, `relabel` takes the proposed one, `ood` and `unreadable` are
    removed; what had no label takes the proposed one where that is sure, and is removed otherwise.
    The originals are never touched, and a second time nothing changes. Of a table with photos in it, such as
    a Hugging Face data set, `--copy` writes the rows that stay, with their labels put right, as one .parquet.
    """
    with loading():
        from ..runs import apply as job
        from ..runs.cleaned_folder import Placing

    asked = {"link": link, "hardlink": hardlink, "copy": copy}
    forms: list[Placing] = [form for form in get_args(Placing) if asked[form]]
    if len(forms) > 1:
        raise InputError("--link, --hardlink and --copy are different folders; give one of them")
    with StageProgress(quiet=quiet or as_json) as progress:
        done = job.apply(
            folder,
            out=out,
            form=forms[0] if forms else None,
            data=data,
            drop_uncertain=drop_uncertain,
            dry_run=dry_run,
            overwrite=overwrite,
            progress=progress,
        )
    if as_json:
        facts = {"out": str(done.out), "dry_run": dry_run, "changed": done.changed, "warnings": done.notes}
        _print_json({**facts, **done.counts})
    elif not quiet:
        screen.show_applied(done.table, done.counts, done.out, done.changed, done.notes, dry_run=dry_run)


@app.command()
def report(
    folder: RunFolder,
    out: Annotated[Path | None, typer.Option(help="File to write (default: RUN/report.html).")] = None,
    data: Data = None,
    as_json: Json = False,
    quiet: Quiet = False,
    overwrite: Overwrite = False,
) -> None:
    """Show a run as one HTML file that opens offline: suspects, map, table, classes, thresholds."""
    with loading():
        from ..report import write_report

    with StageProgress(quiet=quiet or as_json) as progress:
        done = write_report(folder, out=out, data=data, overwrite=overwrite, progress=progress)
    if as_json:
        _print_json({"out": str(done.out), "bytes": done.size, "warnings": done.notes})
    elif not quiet:
        screen.show_report(done.out, done.size, done.notes)


@app.command()
def review(
    folder: RunFolder,
    merge: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Take over another reviewer's decisions.jsonl, and end."),
    ] = None,
    reviewer: Annotated[str | None, typer.Option(help="Your name, to stand beside your decisions.")] = None,
    data: Data = None,
    port: Annotated[
        int, typer.Option(help="Port to listen on (default: any).", show_default=False, min=0, max=65535)
    ] = 0,
    browse: Annotated[bool, flag("--open", "Open it in your browser.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Go through the suspects in a browser: accept, reject, or name another label; `apply` honors it.

    The page is served to this machine alone, at an address with a secret in it. Decisions are saved in
    RUN/decisions.jsonl as they are made. With --merge, of two decisions that differ the later one holds.
    """
    with loading():
        from ..report.review import open_review
        from ..runs.decisions import DecisionLog, merge_decisions, settle

    if merge is not None:
        merged = merge_decisions(folder, merge)
        if as_json:
            _print_json(asdict(merged))
        elif not quiet:
            screen.show_merged(merged.added, merged.agreed, merged.conflicts, merged.gone)
        return
    with DecisionLog(folder) as log:
        with StageProgress(quiet=quiet or as_json) as progress:
            server = open_review(folder, log, data=data, port=port, by=reviewer, progress=progress)
        with server:
            if as_json:
                _print_json({"address": server.address, "decisions": str(log.path)})
            else:
                screen.show_review(server.address, log.path)
            if browse:
                webbrowser.open(server.address)
            with suppress(KeyboardInterrupt):
                server.serve_forever()
        if not quiet and not as_json:
            screen.show_reviewed(len(settle(log.decisions)), folder)


@app.command()
def demo(
    seed: Annotated[
        int, typer.Option(help="Which labels are made wrong, and how training starts.", min=0)
    ] = 0,
    out: Annotated[Path, typer.Option(help="Run folder.")] = Path("runs/demo"),
    settings: Settings = None,
    as_json: Json = False,
    quiet: Quiet = False,
    overwrite: Overwrite = False,
) -> None:
    """Learn handwritten digits from labels of which half are drawn at random, and compare with the truth."""
    with loading():
        from ..report import write_report
        from ..runs import demo as job
        from ..runs.callbacks import Watcher

    with StageProgress(quiet=quiet or as_json) as progress:
        watcher = Watcher(progress.say, progress.epoch, progress)
        done = job.demo(out, settings=settings or [], seed=seed, overwrite=overwrite, watcher=watcher)
        page = write_report(out, progress=progress).out
    if as_json:
        found = {"run": str(out), "report": str(page), "facts": done.facts, "scores": done.scores}
        _print_json({**found, **done.run.summary})
    elif not quiet:
        screen.show_demo(done.run.cleaning.summary, done.run.summary, done.scores, done.facts, out, page)


def _print_json(value: dict[str, Any]) -> None:
    from .._files import plain

    typer.echo(json.dumps(plain(value), indent=2))


TERMINATED = 128 + signal.SIGTERM


def _fail(message: str, code: int) -> NoReturn:
    one_line = printable(" ".join(message.split()))
    typer.echo(f"graphclean: {one_line}", err=True)
    sys.exit(code)


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command line; bad input ends in one line and 2, an interrupt in 130."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    screen.silence_pillow()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr has it: ζ is in few encodings
    try:
        if "" in (argv if argv is not None else sys.argv[1:]):  # as a path, the folder one is in
            raise InputError("an argument is empty; has a variable of the shell no value?")
        code = app(args=list(argv) if argv is not None else None, standalone_mode=False)
        if code == 130:  # newer versions of typer make this of a KeyboardInterrupt
            raise KeyboardInterrupt
    except InputError as error:
        _fail(error.spelled(as_option), 2)
    except RunStopped as error:
        _fail(error.spelled(as_option), error.code)
    except (KeyboardInterrupt, typer.Abort):
        _fail("interrupted; nothing was written", 130)
    except SystemExit as stop:
        if stop.code == TERMINATED:
            _fail("terminated", TERMINATED)
        raise
    except BrokenPipeError:
        sys.exit(1)
    except PermissionError as error:
        _fail(f"{error.filename}: permission denied; ask for access to it, or choose another place", 2)
    except MemoryError:
        _fail("this machine's memory is too small for the data", 1)
    except Exception as error:
        # Wrong usage: typer's own exceptions are recognized by their method, as their home has moved.
        describe = getattr(error, "format_message", None)
        if describe is None and "GRAPHCLEAN_DEBUG" in os.environ:
            raise
        if describe is None:
            kind = f"{type(error).__name__}: {error}"
            _fail(f"unexpected error, please report it: {kind} (GRAPHCLEAN_DEBUG=1 shows where)", 1)
        message = describe()
        if not message:  # no arguments at all: the help was shown
            sys.exit(0)
        _fail(message, 2)
    sys.exit(code if isinstance(code, int) else 0)
