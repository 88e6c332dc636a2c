"""Counts of an attack."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

MOST_KEPT = 50
"""Maximum number of failures recorded in full."""


@dataclass
class Tally:
    """The cases of one kind, and their failures."""

    name: str
    cases: int = 0
    failed: int = 0
    seconds: float = 0.0
    failures: list[dict[str, str]] = field(default_factory=list)
    """The first failures: `case` and `why`."""
    facts: dict[str, Any] = field(default_factory=dict)

    def count(self, case: str, *wrong: str | None) -> None:
        """Count a case with all its problems."""
        self.cases += 1
        reasons = [why for why in wrong if why is not None]
        if reasons:
            self.failed += 1
            if len(self.failures) < MOST_KEPT:
                self.failures.append({"case": case, "why": "; ".join(reasons)})

    def over(self, clock: "Clock") -> bool:
        """Whether time is up; at least one case of each kind is run."""
        return self.cases > 0 and clock.left < 0


class Clock:
    """The time limit."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Remaining seconds."""
        return self.end - time.monotonic()


@contextmanager
def timed(tally: Tally) -> Iterator[None]:
    """Add the time of a block to the tally."""
    begun = time.monotonic()
    try:
        yield
    finally:
        tally.seconds += time.monotonic() - begun
