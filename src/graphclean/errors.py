"""Errors and warnings for users: unusable input, and runs that end early."""

import difflib
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, get_args

NEAR = 0.66
"""Similarity, of 1, above which a name counts as a misspelling of another."""


def suggest(name: str, known: Iterable[str]) -> str:
    """The nearest valid name for an unknown one, or all names.

    Names that start with it, as a whole or after the dot, come first: `cert` for `cleaning.certainty`.
    """
    names = list(known)
    begun = [other for other in names if name and f".{name}" in f".{other}"]
    close = difflib.get_close_matches(name, begun or names, n=1, cutoff=0 if begun else NEAR)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(names)}"


def check_choice(name: str, value: str, kind: Any) -> None:
    """Refuse a value that is not one of a `Literal`; it would otherwise pass for one silently."""
    if value not in get_args(kind):
        raise ValueError(f"{name} must be one of {', '.join(get_args(kind))}")


def parse_json(text: str | bytes) -> Any:
    """Parse untrusted JSON: whatever is wrong with it, excessive depth included, raises ValueError."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("too deep") from error


ARGUMENT_MARK = "\x1f"
"""Surrounds an argument's name in a message."""


def arg(name: str) -> str:
    """An argument in a message: each front end spells it its own way, as `out` or `--out`."""
    return f"{ARGUMENT_MARK}{name}{ARGUMENT_MARK}"


class UserMessage(Exception):  # noqa: N818 - the base of what a user is told
    """A message that names arguments by `arg`; as text it spells them as in Python."""

    def spelled(self, spell: Callable[[str], str]) -> str:
        """The message with every argument as the front end spells it."""
        return re.sub(
            f"{ARGUMENT_MARK}(\\w+){ARGUMENT_MARK}", lambda match: spell(match[1]), super().__str__()
        )

    def __str__(self) -> str:
        return self.spelled(str)


class InputError(UserMessage, ValueError):
    """Bad input: one line that says what is wrong, where, and what to do. The CLI exits with 2."""


ELSEWHERE = f"choose another {arg('out')}"


def occupied(path: Path, what: str) -> InputError:
    """What exists there may be replaced on request."""
    return InputError(f"{path}: {what}; use {arg('overwrite')} to replace it, or another {arg('out')}")


def extra(name: str) -> str:
    """An extra in a message, with the command that installs it."""
    return f'the extra "{name}": pip install ".[{name}]" in the source folder of graphclean'


class MissingLabels(InputError):  # noqa: N818 – it names the data's state
    """Data without labels: what is missing, and what to do about it, which depends on the purpose."""

    def __init__(self, missing: str, advice: str) -> None:
        super().__init__(f"{missing}; {advice}")
        self.missing = missing


class InUseError(InputError):
    """Another process is using the named resource."""


class WriteError(InputError):
    """A file can't be written."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: can't be written: {reason}")
        self.path, self.reason = path, reason


class RunStopped(UserMessage, RuntimeError):  # noqa: N818 – a signal is no error
    """A run that ended before its results: one line for the user, and the CLI's exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class DataWarning(UserWarning):
    """The data is usable, with a caveat the user should know."""
