"""What an attack counted."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

MOST_KEPT = 50
"""Failures that are written down in full."""


@dataclass
class Tally:
    """Cases of one kind, and what went wrong in them."""

    name: str
    cases: int = 0
    failed: int = 0
    seconds: float = 0.0
    failures: list[dict[str, str]] = field(default_factory=list)
    """The first of them: `case` and `why`."""
    facts: dict[str, Any] = field(default_factory=dict)

    def count(self, case: str, *wrong: str | None) -> None:
        """A case, and all that was wrong with it."""
        self.cases += 1
        reasons = [why for why in wrong if why is not None]
        if reasons:
            self.failed += 1
            if len(self.failures) < MOST_KEPT:
                self.failures.append({"case": case, "why": "; ".join(reasons)})

    def over(self, clock: "Clock") -> bool:
        """Whether there is no time for more cases; of each kind there is one at least."""
        return self.cases > 0 and clock.left < 0


class Clock:
    """How long there is."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds."""
        return self.end - time.monotonic()


@contextmanager
def timed(tally: Tally) -> Iterator[None]:
    """Adds the seconds of a block."""
    begun = time.monotonic()
    try:
        yield
    finally:
        tally.seconds += time.monotonic() - begun
