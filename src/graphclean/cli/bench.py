"""`graphclean bench …`: run the paper's cells, list results, and show tables and figures."""

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..bench.ablations import ABLATIONS
from ..config.presets import DeviceName
from ..errors import InputError, InUseError, RunStopped, arg, suggest
from .loading import loading
from .options import Commands, DataRoot, MethodOption, Quiet, as_option, flag
from .progress import StageProgress

if TYPE_CHECKING:
    from ..bench.cells import Cell
    from ..bench.runner import Job, Watch
    from ..bench.schema import EpochRecord, Result

app = typer.Typer(
    cls=Commands, help="The paper's benchmarks: cells, ablations, tables and figures.", no_args_is_help=True
)

SHOWN_EVERY = 10
"""Epochs between printed lines; the first two and the last are always shown."""


class SplitName(StrEnum):
    """The split that a run is scored on."""

    test = "test"
    dev = "dev"


Results = Annotated[Path, typer.Option("--results", help="Folder of results.")]


@app.command()
def run(
    cells: Annotated[
        list[str],
        typer.Argument(
            metavar="CELL…", help="E.g. cifar10/tinyimagenet/20k or cifar10/sym50; `bench cells` shows all."
        ),
    ],
    seeds: Annotated[
        list[str] | None, typer.Option(metavar="SEED…", help="One or more, e.g. 0 1 2 (default: 0).")
    ] = None,
    split: Annotated[
        SplitName, typer.Option(help="dev: train on nine tenths and score on the rest, to choose settings.")
    ] = SplitName.test,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.NAME=VALUE", help="Change a setting, e.g. graph.eta=0.7."),
    ] = None,
    method: MethodOption = None,
    detectors: Annotated[
        list[str] | None,
        typer.Option(
            "--detector",
            metavar="NAME…",
            help="Also score these OOD detectors on the same network (see `graphclean detectors`).",
        ),
    ] = None,
    ablate: Annotated[
        list[str] | None,
        typer.Option(metavar="PART", help=f"Leave out a part: {', '.join(ABLATIONS)}."),
    ] = None,
    preset: Annotated[str | None, typer.Option(help="A preset other than the cell's own.")] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the results (default: method, preset and changes).")
    ] = None,
    device: Annotated[DeviceName, typer.Option(help="Where to compute.")] = DeviceName.auto,
    results: Results = Path("results"),
    work: Annotated[Path, typer.Option(help="Folder of unfinished runs.")] = Path("runs/bench"),
    sharing: Annotated[
        int, typer.Option(metavar="N", min=1, help="Runs that share the device now; recorded with the time.")
    ] = 1,
    keep: Annotated[bool, flag("--keep", "Keep a run's work folder when it is done.")] = False,
    root: DataRoot = None,
    quiet: Quiet = False,
) -> None:
    """Run cells, one result per seed; recorded runs are skipped, interrupted ones continue."""
    with loading():
        from ..bench.cells import Cell, get_cell, make_method
        from ..bench.inputs import Sources, check_sources, load_sources
        from ..bench.results import result_path
        from ..bench.runner import GO_ON, Job, find_done, find_same_settings, run_job
        from ..data.decode import may_write
        from ..runs.device import choose_device

    cells, scored = _split_detectors(cells, detectors or [])
    names, numbers = _split_seeds(cells, seeds or [])
    named = [get_cell(cell) for cell in names]
    chosen = list(dict.fromkeys(get_cell(cell.scored_by or cell.name) for cell in named))
    others = tuple(cell.name for cell in named if cell.scored_by is not None)
    methods = {
        cell.name: make_method(
            cell, settings or [], method=method, ablate=ablate or [], preset=preset, name=name
        )
        for cell in chosen
    }
    where = choose_device(device.value)
    if not may_write(results) or not may_write(work):
        raise InputError(f"{results if may_write(work) else work}: can't be written; choose another folder")
    without = [cell.name for cell in chosen if cell.ood is None]
    if scored and without:
        raise InputError(f"--detector {scored[0]}: {without[0]} has no OOD samples to tell; leave it out")
    if others and split is SplitName.dev:
        raise InputError(f"{others[0]}: a validation set, which the development split never opens")
    jobs = [
        Job(cell, methods[cell.name], seed, split.value, scored, _of_cell(others, cell))
        for cell in chosen
        for seed in numbers
    ]
    to_run = [job.cell for job in jobs if find_done(job, results) is None]
    for partial in check_sources(to_run, split.value, root, others):
        _say(f"warning: {partial}", quiet)
    for job in {job.cell: job for job in jobs}.values() if name is None else ():
        twin = find_same_settings(job, results)
        if twin is not None:
            message = f"{job.method.name} has the settings of {twin}, which is recorded"
            _say(f"warning: {message}; --name {twin} adds seeds to it", quiet)

    def load(job: Job) -> Sources:
        with StageProgress(quiet=quiet) as progress:
            return load_sources(job.cell, job.split, root, progress, settings=job.config.training)

    loaded: Cell | None = None
    elsewhere: list[InUseError] = []
    with ExitStack() as opened:
        for job in jobs:
            done = find_done(job, results)  # again, since another process may have finished first
            if done is not None:
                _say(f"{job.title}: already in {done}", quiet)
                continue
            path = result_path(results, job.cell.name, job.split, job.method.name, job.seed)
            try:
                if loaded != job.cell:
                    opened.close()
                    sources = opened.enter_context(closing(load(job)))
                    loaded = job.cell
                    for note in sources.notes:
                        _say(f"warning: {note}", quiet)
                _say(f"{job.title} on {where.type}", quiet)
                folder = job.work_folder(work)
                watch = None if quiet else _follow(job)
                result = run_job(
                    job,
                    sources,
                    folder,
                    path,
                    where,
                    sharing=sharing,
                    keep=keep,
                    watch=watch,
                    say=lambda text: _say(text, quiet),
                )
            except KeyboardInterrupt:
                raise RunStopped(f"interrupted; {GO_ON}", 130) from None
            except InUseError as error:
                _say(f"{job.title}: another process is working on it", quiet)
                elsewhere.append(error)
                continue
            if not quiet:
                _show_result(result, path)
    if elsewhere:
        raise elsewhere[0]


@app.command()
def rerun(
    result: Annotated[
        Path, typer.Argument(metavar="RESULT", help="A recorded result, e.g. results/CELL/METHOD/0.json.")
    ],
    device: Annotated[DeviceName, typer.Option(help="Where to compute.")] = DeviceName.auto,
    out: Annotated[Path, typer.Option(help="Folder of the new results.")] = Path("reruns"),
    work: Annotated[Path, typer.Option(help="Folder of unfinished runs.")] = Path("runs/rerun"),
    root: DataRoot = None,
    quiet: Quiet = False,
) -> None:
    """Run a recorded result again, with the same cell, settings, seed and split, and compare the scores.

    For a record made by a script in `benchmarks/`, the command that made it is shown.
    """
    with loading():
        from ..bench.inputs import check_sources, load_sources
        from ..bench.rerun import check_made_by_run, compare, differences, job_of
        from ..bench.results import read_result, result_path
        from ..bench.runner import GO_ON, find_done, run_job
        from ..runs.device import choose_device

    check_made_by_run(result)
    old = read_result(result)
    job, where = job_of(old, result), choose_device(device.value)
    path = result_path(out, job.cell.name, job.split, job.method.name, job.seed)
    if path.resolve() == result.resolve():
        raise InputError(f"{result}: it would be replaced; choose another {arg('out')}")
    done = find_done(job, out)
    if done is not None:
        _say(f"{job.title}: already in {done}", quiet)
        new = read_result(done)
    else:
        for partial in check_sources([job.cell], job.split, root):
            _say(f"warning: {partial}", quiet)
        with StageProgress(quiet=quiet) as progress:
            sources = load_sources(job.cell, job.split, root, progress, settings=job.config.training)
        _say(f"{job.title} on {where.type}", quiet)
        try:
            with closing(sources):
                new = run_job(
                    job,
                    sources,
                    job.work_folder(work),
                    path,
                    where,
                    watch=None if quiet else _follow(job),
                    say=lambda text: _say(text, quiet),
                )
        except KeyboardInterrupt:
            raise RunStopped(f"interrupted; {GO_ON}", 130) from None
    rows: list[tuple[str, ...]] = [("", "recorded", "now", "difference")]
    for name, then, now in compare(old, new):
        shown = [f"{value:,.1f}" if name == "seconds" else f"{value:.4f}" for value in (then, now)]
        rows.append((name, *shown, f"{now - then:+,.1f}" if name == "seconds" else f"{now - then:+.4f}"))
    _print_rows(rows)
    for line in differences(old, new):
        typer.echo(line)


@app.command("cells")
def list_cells() -> None:
    """List the cells, the paper's first, with their noise and preset."""
    with loading():
        from ..bench.cells import CELLS

    rows = [("cell", "noise", "OOD in training", "preset")]
    for cell in CELLS.values():
        ood = f"{cell.n_ood:,} of {cell.ood}" if cell.ood is not None else "none"
        rate = "" if cell.noise in ("human", "web") else f" {100 * cell.rate:.0f} %"
        rows.append((cell.name, f"{cell.noise}{rate}", ood, cell.preset))
    _print_rows(rows)


@app.command("list")
def list_done(results: Results = Path("results")) -> None:
    """List recorded results, one per line."""
    with loading():
        from ..bench.results import list_results, read_record

    rows = [("cell", "split", "method", "seed", "accuracy", "AUROC", "F", "epochs")]
    problems = []
    for path in list_results(results):
        try:
            record = read_record(path, results)
            scores = {key: record.number("scores", key) for key in ("accuracy", "auroc", "f_auto")}
        except InputError as error:
            problems.append(error.spelled(as_option))
            continue
        rows.append(
            (
                record.cell,
                record.split,
                record.method,
                str(record.seed),
                _percent(scores["accuracy"]),
                _percent(scores["auroc"]),
                _decimals(scores["f_auto"]),
                str(len(record.epochs)),
            )
        )
        for name, values in record.data.get("also", {}).items():
            shown = (_percent(values.get("accuracy")), _percent(None), _decimals(None))
            rows.append((name, record.split, record.method, str(record.seed), *shown, rows[-1][-1]))
    if len(rows) == 1:
        typer.echo(f"No results in {results}.")
    else:
        _print_rows(rows)
    if problems:
        raise InputError("; ".join(problems))


@app.command()
def table(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of the table (default: list the names).")
    ] = None,
    latex: Annotated[bool, flag("--latex", "LaTeX instead of Markdown.")] = False,
    results: Results = Path("results"),
) -> None:
    """Print one of the paper's tables with our results."""
    with loading():
        from ..bench.tables import render_table, table_names

    if name is None:
        typer.echo("\n".join(table_names()))
        return
    _check_name("table", name, table_names())
    typer.echo(render_table(name, results, "latex" if latex else "markdown"))


@app.command()
def figure(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name of the figure (default: list the names).")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder to write to.")] = Path("figures"),
    method: Annotated[
        str | None, typer.Option(help="Only this method, as named by `bench list` (default: all).")
    ] = None,
    cell: Annotated[
        str | None, typer.Option(help="Only this cell, e.g. cifar10/sym50 (default: all).")
    ] = None,
    results: Results = Path("results"),
) -> None:
    """Draw one of the paper's figures from recorded runs, as SVG and PNG."""
    with loading():
        from ..bench.figures import draw_figure, figure_names

    if name is None:
        typer.echo("\n".join(figure_names()))
        return
    _check_name("figure", name, figure_names())
    for path in draw_figure(name, results, out, method, cell):
        typer.echo(str(path))


def _print_rows(rows: Sequence[Sequence[str]]) -> None:
    """Print aligned columns without wrapping: names are long, and meant for grep."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        texts = (text.ljust(width) for text, width in zip(row, widths, strict=True))
        typer.echo("  ".join(texts).rstrip())


def _check_name(kind: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        raise InputError(f"no {kind} is called {name}; {suggest(name, known)}")


def _split_detectors(cells: Sequence[str], named: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """`--detector A B C` is parsed as A and two more cells; no cell has the name of a detector."""
    if not named:
        return list(cells), ()
    from ..ood.detectors import detector_names, load_detector

    words = [word for text in named for word in re.split(r"[\s,]+", text.strip(" ,"))]
    known = detector_names()
    words += [cell for cell in cells if cell in known]
    for word in words:
        load_detector(word)
    return [cell for cell in cells if cell not in known], tuple(dict.fromkeys(words))


def _split_seeds(cells: Sequence[str], seeds: Sequence[str]) -> tuple[list[str], list[int]]:
    """`--seeds 0 1 2` is parsed as one seed and two more cells; the name of a cell is never a number."""
    from ..bench.cells import parse_seed

    words = [word for text in seeds or ["0"] for word in re.split(r"[\s,]+", text.strip(" ,"))]
    more = [cell for cell in cells if cell.isdecimal()]
    names = [cell for cell in cells if not cell.isdecimal()]
    numbers = [parse_seed(word) for word in [*words, *more]]
    if not names:
        raise InputError("no cell is named; `graphclean bench cells` shows them")
    if more and not seeds:
        raise InputError(f"{more[0]} is no cell; a seed is named with --seeds {more[0]}")
    return list(dict.fromkeys(names)), list(dict.fromkeys(numbers))


def _follow(job: "Job") -> "Watch":
    """Print a line for some of the epochs."""
    last = job.config.training.epochs

    def show(record: "EpochRecord") -> None:
        epoch = record["epoch"]
        if epoch > 2 and epoch % SHOWN_EVERY and epoch != last:
            return
        losses = "  ".join(f"{term} {value:.3f}" for term, value in record["losses"].items())
        cleaning = record["cleaning"]
        known = "" if record["accuracy"] is None else f"  accuracy {_percent(record['accuracy'])}"
        typer.echo(
            f"  epoch {epoch}/{last}  {record['seconds']:.1f} s  {losses}  selected {cleaning['selected']:,} "
            f"({_percent(cleaning['noise_rate'])} noise)  label accuracy "
            f"{_percent(cleaning['label_accuracy'])}"
            f"{known}",
            err=True,
        )

    return show


def _show_result(result: "Result", path: Path) -> None:
    from ..bench.epoch_log import CONTROL_LIMIT

    scores = result["scores"]
    line = f"accuracy {_percent(scores['accuracy'])}{_top5(scores)}"
    if scores["auroc"] is not None:
        line += f", AUROC {_percent(scores['auroc'])}, F {_decimals(scores['f_auto'])}"
    typer.echo(f"{line}, {result['seconds']:,.0f} s: {path}")
    for name, values in result.get("also", {}).items():
        typer.echo(f"  {name}: accuracy {_percent(values['accuracy'])}{_top5(values)}")
    for name, values in result.get("detectors", {}).items():
        typer.echo(f"  {name}: AUROC {_percent(values['auroc'])}, F {_decimals(values['f_auto'])}")
    control = scores["control_auroc"]
    if control is not None and control > CONTROL_LIMIT:
        typer.echo(
            f"control: known images resized like OOD images are separated from the others with an AUROC of "
            f"{control:.3f}, over {CONTROL_LIMIT}: part of what is detected may be the resizing"
        )


def _top5(scores: "Mapping[str, float | None]") -> str:
    """Top-5 accuracy, where it was recorded."""
    return f", top-5 {_percent(scores['top5'])}" if "top5" in scores else ""


def _of_cell(others: "Sequence[str]", cell: "Cell") -> tuple[str, ...]:
    """Those of the cells that are scored by runs of this one."""
    from ..bench.cells import get_cell

    return tuple(name for name in others if get_cell(name).scored_by == cell.name)


def _say(text: str, quiet: bool) -> None:
    if not quiet:
        typer.echo(text, err=True)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.2f} %"


def _decimals(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
