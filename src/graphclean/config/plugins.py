"""Lookup by name: built-in implementations, and those that other packages register as entry points."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from ..errors import InputError, suggest


@dataclass(frozen=True)
class Plugins:
    """Methods, detectors or embedders; each is loaded on demand."""

    group: str
    """The entry point group for other packages."""
    own: Mapping[str, str]
    """Name -> `module:class`."""
    missing: str
    """Message for an unknown `{name}`."""

    def names(self) -> list[str]:
        """All names: built-in ones, then those of other packages."""
        return [*self.own, *sorted(entry_points(group=self.group).names - self.own.keys())]

    def version(self, name: str) -> str | None:
        """A version of the code behind a name: `version` for built-in names, else that of its package."""
        if name in self.own:
            return getattr(EntryPoint(name, self.own[name], self.group).load(), "version", None)
        theirs = [entry.dist for entry in entry_points(group=self.group, name=name)]
        return f"{theirs[0].name} {theirs[0].version}" if theirs and theirs[0] is not None else None

    def load(self, name: str, kind: type, others: tuple[str, ...] = ()) -> Any:
        """The class of that name, a subclass of `kind`; `others` are names that are valid elsewhere."""
        if name in self.own:
            return EntryPoint(name, self.own[name], self.group).load()
        theirs = list(entry_points(group=self.group, name=name))
        if not theirs:
            unknown = self.missing.format(name=name)
            raise InputError(f"{unknown}; {suggest(name, [*self.names(), *others])}")
        where = f"{self.group}: {name} = {theirs[0].value}"
        try:
            found = theirs[0].load()
        except Exception as error:
            raise InputError(f"{where}: can't be loaded: {error}") from error
        if not (isinstance(found, type) and issubclass(found, kind)):
            raise InputError(f"{where}: is no subclass of {kind.__module__}.{kind.__qualname__}")
        called = getattr(getattr(found, "info", found), "name", None)
        if called != name:
            raise InputError(f"{where}: calls itself {called}; register it under that name")
        return found
