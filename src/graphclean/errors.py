"""What a user is told when something they gave can't be used, or a run ends early."""

import difflib
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, get_args

NEAR = 0.66
"""How alike two names have to be, of 1, for one to be a slip of the other."""


def suggest(name: str, known: Iterable[str]) -> str:
    """For a message about an unknown name: the nearest right one, or all there are.

    Names that begin with it go first, as whole or after the dot: `cert` for `cleaning.certainty`.
    """
    names = list(known)
    begun = [other for other in names if name and f".{name}" in f".{other}"]
    close = difflib.get_close_matches(name, begun or names, n=1, cutoff=0 if begun else NEAR)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(names)}"


def check_choice(name: str, value: str, kind: Any) -> None:
    """Refuse a word that is none of those a `Literal` names: it would pass for one of them in silence."""
    if value not in get_args(kind):
        raise ValueError(f"{name} must be one of {', '.join(get_args(kind))}")


def parse_json(text: str | bytes) -> Any:
    """JSON from outside: whatever is wrong with it is a ValueError, also that it is too deep."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("too deep") from error


ARGUMENT_MARK = "\x1f"
"""On both sides of an argument's name in a message."""


def arg(name: str) -> str:
    """An argument in a message: each front door spells it its own way, as `out` or `--out`."""
    return f"{ARGUMENT_MARK}{name}{ARGUMENT_MARK}"


class UserMessage(Exception):  # noqa: N818 - the base of what a user is told
    """A message that names arguments by `arg`; as text it spells them as in Python."""

    def spelled(self, spell: Callable[[str], str]) -> str:
        """The message with every argument as the front door has it."""
        return re.sub(
            f"{ARGUMENT_MARK}(\\w+){ARGUMENT_MARK}", lambda match: spell(match[1]), super().__str__()
        )

    def __str__(self) -> str:
        return self.spelled(str)


class InputError(UserMessage, ValueError):
    """Bad input: one line that says what is wrong, where, and what to do. The CLI exits with 2."""


ELSEWHERE = f"choose another {arg('out')}"


def occupied(path: Path, what: str) -> InputError:
    """What is there may be replaced, if asked for."""
    return InputError(f"{path}: {what}; use {arg('overwrite')} to replace it, or another {arg('out')}")


def extra(name: str) -> str:
    """An extra in a message, and how its packages are installed."""
    return f'the extra "{name}": pip install ".[{name}]" in the source folder of graphclean'


class MissingLabels(InputError):  # noqa: N818 – it names the data's state
    """Data without labels: what is missing, and what to do about it, which may differ by what it is for."""

    def __init__(self, missing: str, advice: str) -> None:
        super().__init__(f"{missing}; {advice}")
        self.missing = missing


class InUseError(InputError):
    """Another process works with what was named."""


class RunStopped(UserMessage, RuntimeError):  # noqa: N818 – a signal is no error
    """A run that ended before its results: one line for the user, and the exit code of the CLI."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class DataWarning(UserWarning):
    """The data is usable, with a reservation the user should know."""
