"""`graphclean …`: parse the command line, run a command, and display its result."""

import errno
import os
import signal
import sys
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from typing import Annotated, NoReturn

import typer

from .. import __version__
from ..distributed.environment import refuse_several, silence_followers
from ..errors import InputError, RunStopped
from . import bench as bench_cli
from . import catalog, learning, results
from . import data as data_cli
from . import display as screen
from .options import Commands, as_option, flag
from .progress import printable

OF_PLACES = {errno.ENAMETOOLONG, errno.ELOOP, errno.EIO, errno.ESTALE}
"""Errors of the system that say what is wrong with a file or folder that was named."""

FULL = {errno.ENOSPC, errno.EDQUOT}
NO_OUTPUT = "the output can't be written"
"""Where the screen's text goes; a file that can't be written is named by its own error."""

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
COMMANDS: tuple[Callable[..., None], ...] = (
    *(catalog.presets, catalog.methods, catalog.detectors),
    *(learning.clean, learning.train, learning.predict),
    *(results.export, results.apply, results.report, results.review, learning.demo),
)
for command in COMMANDS:
    app.command()(command)

TERMINATED = 128 + signal.SIGTERM


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"graphclean {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    context: typer.Context,
    version: Annotated[
        bool,
        flag("--version", "Show the version.", callback=_show_version, is_eager=True),
    ] = False,
) -> None:
    """Verdicts for labels you can't trust: keep, relabel, or out of distribution."""
    del version
    if context.invoked_subcommand not in (None, "clean", "train", "predict", "demo"):
        refuse_several(str(context.invoked_subcommand))


def _fail(message: str, code: int) -> NoReturn:
    one_line = printable(" ".join(message.split()))
    typer.echo(f"graphclean: {one_line}", err=True)
    sys.exit(code)


def _is_text(name: str) -> bool:
    """Whether a name can be written as text: bytes that are no characters can't."""
    return not any("\udc80" <= character <= "\udcff" for character in name)


def _fail_unexpectedly(error: Exception) -> NoReturn:
    if "GRAPHCLEAN_DEBUG" in os.environ:
        raise error
    kind = f"{type(error).__name__}: {error}"
    _fail(f"unexpected error, please report it: {kind} (GRAPHCLEAN_DEBUG=1 shows where)", 1)


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the command line; bad input ends with one line and exit code 2, an interrupt with 130."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))
    screen.silence_pillow()
    silence_followers()
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as for stderr: few encodings have ζ
    try:
        if "" in (argv if argv is not None else sys.argv[1:]):  # as a path, it would be the current folder
            raise InputError("an argument is empty; has a variable of the shell no value?")
        code = app(args=list(argv) if argv is not None else None, standalone_mode=False)
        if code == 130:  # newer versions of typer turn a KeyboardInterrupt into this
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
    except OSError as error:
        if error.errno in FULL and error.filename is None:
            _fail(f"{NO_OUTPUT}: {error.strerror}", 1)
        if error.errno not in OF_PLACES or error.filename is None or "GRAPHCLEAN_DEBUG" in os.environ:
            _fail_unexpectedly(error)
        _fail(f"{error.filename}: {error.strerror}", 2)
    except UnicodeEncodeError as error:
        odd = [
            name
            for name in (*(argv if argv is not None else sys.argv[1:]), os.getcwd())
            if not _is_text(name)
        ]
        if not odd or "GRAPHCLEAN_DEBUG" in os.environ:
            _fail_unexpectedly(error)
        encoding = sys.getfilesystemencoding()
        name = os.fsencode(odd[0]).decode("ascii", "backslashreplace")
        _fail(f"{name}: a name that is no {encoding}; rename it, or set LC_ALL=C.UTF-8", 2)
    except MemoryError:
        _fail("this machine's memory is too small for the data", 1)
    except Exception as error:
        # Usage errors: typer's exceptions are recognized by their method, since their module has moved.
        describe = getattr(error, "format_message", None)
        if describe is None:
            _fail_unexpectedly(error)
        message = describe()
        if not message:  # no arguments at all: the help was shown
            sys.exit(0)
        _fail(message, 2)
    sys.exit(code if isinstance(code, int) else 0)
