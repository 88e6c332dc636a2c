"""What a user is told when something they gave can't be used."""

import difflib
from collections.abc import Iterable


def suggest(name: str, known: Iterable[str]) -> str:
    """For a message about an unknown name: the nearest right one, or all there are."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(names)}"


class InputError(ValueError):
    """Bad input: one line that says what is wrong, where, and what to do. The CLI exits with 2."""


class DataWarning(UserWarning):
    """The data is usable, with a reservation the user should know."""
