"""`graphclean data …`: the named data sets, and the embeddings of photos that are kept."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from ..bench.datasets import count_images, data_root, locate_set
from ..bench.download import fetch_set
from ..bench.registry import SETS, NamedSet, get_set
from ..bench.verify import verify_set
from ..errors import InputError, RunStopped
from .display import plain_table
from .loading import loading
from .options import Commands, DataRoot, Json, Quiet, as_option, flag
from .progress import StageProgress, open_console

app = typer.Typer(
    cls=Commands,
    help="The data sets of the paper's benchmarks, by name; and the embeddings that are kept.",
    no_args_is_help=True,
)


@app.command("list")
def list_sets(root: DataRoot = None, as_json: Json = False) -> None:
    """Show the named sets: which are there, in which form, and how large the others are to fetch."""
    where = data_root(root)
    rows = [_describe(named, where) for named in SETS.values()]
    if as_json:
        typer.echo(json.dumps({"root": str(where), "sets": rows}, indent=2))
        return
    console = open_console()
    console.print(f"Data root: {escape(str(where))}\n", soft_wrap=True)
    table = plain_table("name", "found as", "images", "to fetch", "terms")
    for row in rows:
        images = ", ".join(f"{count:,} {split}" for split, count in row["images"].items())
        fetch = "–" if row["form"] else f"{row['fetch_bytes'] / 1e6:.0f} MB"
        form = "damaged" if row["problem"] else row["form"] or "not found"
        table.add_row(row["name"], form, escape(row["problem"] or images), fetch, row["terms"])
    console.print(table)
    console.print()
    for row in rows:
        place = f" {escape(row['path'])}." if row["path"] else ""
        console.print(f"{row['name']}:{place} Cite: {escape(row['citation'])}", soft_wrap=True)


def _describe(named: NamedSet, root: Path) -> dict[str, Any]:
    problem = None
    images = dict(named.splits)
    try:
        found = locate_set(named, root)
        images = count_images(named, found) if found is not None else images
    except InputError as error:
        found, problem = None, error.spelled(as_option)
    return {
        "name": named.name,
        "form": found.form if found is not None else None,
        "path": str(found.path) if found is not None else None,
        "images": images,
        "problem": problem,
        "fetch_bytes": named.archive.size,
        "url": named.archive.url,
        "terms": named.terms,
        "citation": named.citation,
    }


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name that `graphclean data list` shows.")],
    root: DataRoot = None,
    quiet: Quiet = False,
) -> None:
    """Download a set from its makers' server; an interrupted download goes on where it stopped."""
    named, where = get_set(name), data_root(root)
    found = locate_set(named, where)
    if found is not None and not found.is_archive:
        message = f"{found.path}: {name} is already there, as {found.form}; nothing was fetched"
    else:
        try:
            with StageProgress(quiet=quiet) as progress:
                path, fetched = fetch_set(named, where, progress)
        except KeyboardInterrupt as error:
            raise RunStopped(f"interrupted; fetch {name} again to go on from there", 130) from error
        message = f"{path}: {'fetched' if fetched else 'already there'}, MD5 as published"
    if not quiet:
        open_console().print(escape(message), soft_wrap=True)


@app.command()
def verify(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="One set (default: all that are there).")
    ] = None,
    root: DataRoot = None,
    quiet: Quiet = False,
) -> None:
    """Check that what is there is whole: published checksums where there are any, else counts and pixels."""
    where = data_root(root)
    chosen = [get_set(name)] if name is not None else [s for s in SETS.values() if _is_there(s, where)]
    if not chosen:
        raise InputError(f"no named data set under {where}; `graphclean data list` shows what there could be")
    problems: list[str] = []
    table = plain_table("name", "", "checked")
    for named in chosen:
        with StageProgress(quiet=quiet) as progress:
            try:
                table.add_row(named.name, "right", escape(verify_set(named, where, progress)))
            except InputError as error:
                problems.append(error.spelled(as_option))
                table.add_row(named.name, "wrong", escape(error.spelled(as_option)))
    if not quiet and len(problems) < len(chosen):
        open_console().print(table)
    if problems:
        raise InputError("; ".join(problems))


@app.command()
def cache(
    clear: Annotated[bool, flag("--clear", "Remove them all; photos are then embedded again.")] = False,
    as_json: Json = False,
) -> None:
    """Show the embeddings of photos that are kept, by which no photo is embedded twice."""
    with loading():
        from ..embed import cache as kept
    folder, limit, entries = kept.cache_folder(), kept.size_limit(), kept.list_entries()
    freed = kept.clear() if clear else None
    entries = [] if clear else entries
    if as_json:
        rows = [
            {**vars(entry.key), "photos": entry.photos, "bytes": entry.size, "used": entry.used.isoformat()}
            for entry in entries
        ]
        found = {"folder": str(folder), "limit": limit, "freed": freed, "entries": rows}
        typer.echo(json.dumps(found, indent=2))
        return
    console = open_console()
    if freed is not None:
        what = f"{_megabytes(freed)} of embeddings removed"
    else:
        total = _megabytes(sum(entry.size for entry in entries))
        what = f"{total} of embeddings kept, of at most {_megabytes(limit)}"
    console.print(f"{escape(str(folder))}: {what}", soft_wrap=True)
    if entries:
        table = plain_table("embedder", "photos", "size", "last used", "data")
        for entry in entries:
            used = entry.used.astimezone().strftime("%Y-%m-%d %H:%M")
            cells = (entry.key.embedder, f"{entry.photos:,}", _megabytes(entry.size), used, entry.key.data)
            table.add_row(*map(escape, cells))
        console.print(table)


def _megabytes(size: float) -> str:
    return f"{size / 1e6:,.1f} MB"


def _is_there(named: NamedSet, root: Path) -> bool:
    try:
        return locate_set(named, root) is not None
    except InputError:
        return True  # there, and to be complained of
