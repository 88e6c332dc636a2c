"""Options that several commands of the command line have."""

from pathlib import Path
from typing import Annotated, Any

import typer


def flag(name: str, help: str, **options: Any) -> Any:
    """An option without a value; typer itself would show one: --json <bool>."""
    return typer.Option(name, metavar="", help=help, **options)


Json = Annotated[bool, flag("--json", "Print the result as JSON and nothing else.")]
Quiet = Annotated[bool, flag("--quiet", "Print nothing but errors.")]
DataRoot = Annotated[
    Path | None,
    typer.Option("--data-root", help="Folder of data sets (default: GRAPHCLEAN_DATA, or the user's cache)."),
]
