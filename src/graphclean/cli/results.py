"""The commands for finished runs: `report`, `review`, `apply`, `export`."""

import time
import webbrowser
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from ..config.presets import FormatName
from ..errors import InputError
from . import display as screen
from .loading import loading
from .options import Data, Json, Overwrite, Quiet, RunFolder, Show, flag
from .progress import StageProgress


def report(
    folder: RunFolder,
    out: Annotated[Path | None, typer.Option(help="File to write (default: RUN/report.html).")] = None,
    data: Data = None,
    show: Show = None,
    as_json: Json = False,
    quiet: Quiet = False,
    overwrite: Overwrite = False,
) -> None:
    """Write a run as one HTML file that opens offline: suspects, map, table, classes, thresholds."""
    with loading():
        from ..report import write_report

    with StageProgress(quiet=quiet or as_json) as progress:
        done = write_report(
            folder, out=out, data=data, show=show or [], overwrite=overwrite, progress=progress
        )
    if as_json:
        screen.print_json({"out": str(done.out), "bytes": done.size, "warnings": done.notes})
    elif not quiet:
        screen.show_report(done.out, done.size, done.notes)


def review(
    folder: RunFolder,
    merge: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Merge another reviewer's decisions.jsonl, and exit."),
    ] = None,
    reviewer: Annotated[str | None, typer.Option(help="Your name, recorded with your decisions.")] = None,
    data: Data = None,
    show: Show = None,
    port: Annotated[
        int, typer.Option(help="Port to listen on (default: any).", show_default=False, min=0, max=65535)
    ] = 0,
    browse: Annotated[bool, flag("--open", "Open the page in your browser.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Review the suspects in a browser: accept, reject, or choose another label; `apply` uses the decisions.

    The page is served to this machine only, at an address that contains a secret. Decisions are saved in
    RUN/decisions.jsonl as they are made. With --merge, the later of two different decisions wins.
    """
    with loading():
        from ..report.review import answering, open_review, prepare
        from ..runs.decisions import DecisionLog, merge_decisions
        from ..runs.interrupts import StopSignals, interrupt

    if merge is not None:
        merged = merge_decisions(folder, merge)
        if as_json:
            screen.print_json(asdict(merged))
        elif not quiet:
            screen.show_merged(merged.added, merged.agreed, merged.conflicts, merged.gone, merged.notes)
        return
    with DecisionLog(folder) as log:
        with open_review(log, port=port, by=reviewer) as server:
            if as_json:
                screen.print_json({"address": server.address, "decisions": str(log.path)})
            else:
                screen.show_review(server.address, log.path)
            with suppress(KeyboardInterrupt), StopSignals(interrupt) as stop, answering(server):
                if browse:
                    webbrowser.open(server.address)
                with StageProgress(quiet=quiet or as_json) as progress:
                    prepare(server, folder, data=data, show=show or [], progress=progress)
                while stop.number is None:  # an indefinite wait would miss a signal that arrives as it begins
                    time.sleep(0.1)
        if not quiet and not as_json:
            screen.show_reviewed(len(log.settled.all()), folder)


def apply(
    folder: RunFolder,
    out: Annotated[
        Path | None, typer.Option(help="Table (.csv, .parquet) or folder to write (default: RUN/cleaned…).")
    ] = None,
    link: Annotated[bool, flag("--link", "Write a folder of symbolic links to the photos.")] = False,
    hardlink: Annotated[bool, flag("--hardlink", "Write a folder of hard links to the photos.")] = False,
    copy: Annotated[
        bool,
        flag(
            "--copy",
            "Write a folder of copies of the photos; for a table with photos in it, a cleaned .parquet.",
        ),
    ] = False,
    form: Annotated[
        FormatName | None,
        typer.Option("--format", help="Write for another tool; hf is a .parquet as on the Hugging Face hub."),
    ] = None,
    data: Data = None,
    drop_uncertain: Annotated[
        bool,
        flag("--drop-uncertain", "Remove uncertain samples (default: keep their label)."),
    ] = False,
    drop_duplicates: Annotated[
        bool,
        flag("--drop-duplicates", "Keep one of each duplicate group: the largest photo, then the first."),
    ] = False,
    min_confidence: Annotated[
        float,
        typer.Option(
            help="Apply verdicts of at least this confidence; others count as uncertain.",
            show_default=False,
        ),
    ] = 0.0,
    reviewed_only: Annotated[
        bool,
        flag("--reviewed-only", "Apply only decisions of the review; all others count as uncertain."),
    ] = False,
    dry_run: Annotated[bool, flag("--dry-run", "Show what would be done, and write nothing.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    overwrite: Overwrite = False,
) -> None:
    """Apply the verdicts: write a table with label, action and reason of every sample, or a cleaned folder.

    Decisions made in `graphclean review` take precedence over the verdicts.
    `keep` and `uncertain` samples keep their label, `relabel` samples get the proposed one, `ood` and
    `unreadable` ones are removed. An unlabeled sample gets the proposed label if it was selected, and is
    removed otherwise. With --drop-uncertain and --reviewed-only, only decided samples remain.
    The originals are never touched, and applying twice changes nothing. For a table with photos in it, such
    as a Hugging Face data set, `--copy` writes the kept rows with corrected labels as one .parquet.
    """
    with loading():
        from ..runs import apply as job
        from ..runs.cleaned_folder import Placing

    asked = {"link": link, "hardlink": hardlink, "copy": copy}
    forms: list[Any] = [name for name in get_args(Placing) if asked[name]]
    if form is not None:
        forms.append(form.value)
    if len(forms) > 1:
        raise InputError("--link, --hardlink, --copy and --format are different things; give one of them")
    with StageProgress(quiet=quiet or as_json) as progress:
        done = job.apply(
            folder,
            out=out,
            form=forms[0] if forms else None,
            data=data,
            drop_uncertain=drop_uncertain,
            drop_duplicates=drop_duplicates,
            min_confidence=min_confidence,
            reviewed_only=reviewed_only,
            dry_run=dry_run,
            overwrite=overwrite,
            progress=progress,
        )
    if as_json:
        facts = {"out": str(done.out), "dry_run": dry_run, "changed": done.changed, "warnings": done.notes}
        screen.print_json({**facts, **done.counts})
    elif not quiet:
        screen.show_applied(done.table, done.counts, done.out, done.changed, done.notes, dry_run=dry_run)


def export(
    folder: RunFolder,
    out: Annotated[Path | None, typer.Option(help="File to write (default: RUN/model.onnx).")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    overwrite: Overwrite = False,
) -> None:
    """Export a run's model as an ONNX file, with preprocessing and OOD score (extra onnx)."""
    with loading():
        from ..runs import export as job

    with StageProgress(quiet=quiet or as_json) as progress:
        done = job.export(folder, out=out, overwrite=overwrite, say=progress.say)
    if as_json:
        screen.print_json(done.to_dict())
    elif not quiet:
        screen.show_export(done.to_dict())
