"""`graphclean data …`: the named data sets, and the user's cache."""

import json
from datetime import datetime
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
    help="Data sets of the paper's benchmarks by name, and the cache.",
    no_args_is_help=True,
)


@app.command("list")
def list_sets(root: DataRoot = None, as_json: Json = False) -> None:
    """List the named data sets: which are available, in which form, and how large the others are."""
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
    """Download a data set from its authors' server; an interrupted download resumes."""
    named, where = get_set(name), data_root(root)
    found = locate_set(named, where)
    if found is not None and not found.is_archive:
        message = f"{found.path}: {name} is already there, as {found.form}; nothing was fetched"
    else:
        try:
            with StageProgress(quiet=quiet) as progress:
                path, fetched = fetch_set(named, where, progress)
        except KeyboardInterrupt as error:
            raise RunStopped(f"interrupted; fetch {name} again to continue from there", 130) from error
        message = f"{path}: {'fetched' if fetched else 'already there'}, MD5 as published"
    if not quiet:
        open_console().print(escape(message), soft_wrap=True)


@app.command()
def verify(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="One set (default: all available ones).")
    ] = None,
    root: DataRoot = None,
    quiet: Quiet = False,
) -> None:
    """Verify data sets: by published checksums where they exist, else by counts and pixels."""
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
    clear: Annotated[bool, flag("--clear", "Empty the cache.")] = False,
    as_json: Json = False,
) -> None:
    """Show the cache: embeddings of photos, pixels of streamed photos, and compiled training code."""
    with loading():
        from ..data import photo_cache
        from ..embed import cache as kept
        from ..training import code_cache
    folder, limit, entries = kept.cache_folder(), kept.size_limit(), kept.list_entries()
    code, packed = code_cache.list_code(), photo_cache.list_packed()
    freed = kept.clear() if clear else None
    freed_pixels = photo_cache.clear_packed() if clear else None
    freed_code = code_cache.clear_code() if clear else None
    entries, code, packed = ([], [], []) if clear else (entries, code, packed)
    if as_json:
        rows = [
            {**vars(entry.key), "photos": entry.photos, "bytes": entry.size, "used": entry.used.isoformat()}
            for entry in entries
        ]
        compiled = [
            {"name": entry.name, "bytes": entry.size, "used": entry.used.isoformat()} for entry in code
        ]
        found = {"folder": str(folder), "limit": limit, "freed": freed, "entries": rows}
        found["code"] = {"folder": str(code_cache.cache_folder()), "freed": freed_code, "entries": compiled}
        found["photos"] = {
            "folder": str(photo_cache.cache_folder()),
            "freed": freed_pixels,
            "entries": [
                {**vars(one.key), "kept": one.kept, "bytes": one.size, "used": one.used.isoformat()}
                for one in packed
            ],
        }
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
            cells = (entry.key.embedder, f"{entry.photos:,}", _megabytes(entry.size), _time(entry.used))
            table.add_row(*map(escape, (*cells, entry.key.data)))
        console.print(table)
    if freed_pixels is not None:
        what = f"{_megabytes(freed_pixels)} of pixels removed"
    else:
        what = f"{_megabytes(sum(one.size for one in packed))} of pixels kept"
    console.print(f"{escape(str(photo_cache.cache_folder()))}: {what}", soft_wrap=True)
    if packed:
        table = plain_table("photos", "size in px", "size", "last used", "data")
        for one in packed:
            count = f"{one.kept:,} of {one.key.photos:,}"
            size = (str(one.key.size), _megabytes(one.size))
            table.add_row(*map(escape, (count, *size, _time(one.used), one.key.data)))
        console.print(table)
    if freed_code is not None:
        what = f"{_megabytes(freed_code)} of compiled code removed"
    else:
        what = f"{_megabytes(sum(made.size for made in code))} of compiled code kept"
    console.print(f"{escape(str(code_cache.cache_folder()))}: {what}", soft_wrap=True)
    if code:
        table = plain_table("for", "size", "last used")
        for made in code:
            table.add_row(escape(made.name), _megabytes(made.size), _time(made.used))
        console.print(table)


def _time(used: datetime) -> str:
    return used.astimezone().strftime("%Y-%m-%d %H:%M")


def _megabytes(size: float) -> str:
    return f"{size / 1e6:,.1f} MB"


def _is_there(named: NamedSet, root: Path) -> bool:
    try:
        return locate_set(named, root) is not None
    except InputError:
        return True  # it exists, and its problem is reported later
