"""Options shared by several commands."""

from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup


def flag(name: str, help: str, **options: Any) -> Any:
    """An option without a value; typer by itself would show one: --json <bool>."""
    return typer.Option(name, metavar="", help=help, **options)


class Commands(TyperGroup):
    """A group that shows --help as such a flag, also for its commands."""

    def get_help_option(self, ctx: Any) -> Any:
        """The group's help option."""
        option: Any = super().get_help_option(ctx)
        option.metavar = ""
        return option

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command of the group, with its help option changed likewise."""
        command: Any = super().get_command(ctx, cmd_name)
        if command is not None:
            command.get_help_option(ctx).metavar = ""
        return command


Json = Annotated[bool, flag("--json", "Print the result as JSON, and nothing else.")]
Quiet = Annotated[bool, flag("--quiet", "Print nothing but errors.")]
Threads = Annotated[
    int | None,
    typer.Option(help="Maximum number of threads (default: the number of cores).", show_default=False, min=1),
]
DataRoot = Annotated[
    Path | None,
    typer.Option("--data-root", help="Folder of data sets (default: GRAPHCLEAN_DATA, or the user's cache)."),
]
Overwrite = Annotated[bool, flag("--overwrite", "Replace the results of an earlier run.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.NAME=VALUE",
        help="Change a setting, e.g. cleaning.certainty=0.7 (repeatable).",
    ),
]
MethodOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="A method other than the preset's (see `graphclean methods`)."),
]
FeaturesKey = Annotated[str | None, typer.Option(help="Array of a .npz that holds the features.")]
ImagesKey = Annotated[str | None, typer.Option(help="Array of a .npz that holds the images.")]
LabelsKey = Annotated[str | None, typer.Option(help="Array of a .npz that holds the labels.")]
LabelsFile = Annotated[Path | None, typer.Option(help="File of labels, if DATA holds none.")]
EmbedderOption = Annotated[
    str,
    typer.Option(
        help="For photos: efficientnet-lite0, which auto takes (extra photos), the larger efficientnet-lite2 "
        "(extra lite2), or any network of timm as timm:NAME (extra timm), with your own weights as "
        "timm:NAME@FILE.safetensors; none: DATA is embeddings."
    ),
]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder of `clean` or `train`.")]
Data = Annotated[Path | None, typer.Option(help="Where the run's data is now, if it has moved.")]
IdColumn = Annotated[
    str | None, typer.Option(help="Column that holds the ids (default: id, if there is one).")
]
PathColumn = Annotated[
    str | None, typer.Option(help="Column that holds the paths of photos, or the photos themselves.")
]
LabelColumn = Annotated[str | None, typer.Option(help="Column that holds the labels (default: label).")]


OTHER_OPTIONS = {"form": "format"}
"""Arguments whose option has another name: in Python, `format` is a function."""


def as_option(argument: str) -> str:
    """An argument named in a message, as spelled on the command line."""
    return f"--{OTHER_OPTIONS.get(argument, argument).replace('_', '-')}"


Show = Annotated[
    list[str] | None,
    typer.Option(
        "--show",
        metavar="COLUMN",
        help="Column of the source's table, such as its text, to show with each sample (repeatable).",
    ),
]
