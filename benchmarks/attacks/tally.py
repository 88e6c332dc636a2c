"""Counts of an attack."""

import resource
import time
from collections.abc import Iterator, Sequence
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
    cpu_seconds: float = 0.0
    """Of this process and the commands it waited for."""
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
    begun, used = time.monotonic(), _cpu()
    try:
        yield
    finally:
        tally.seconds += time.monotonic() - begun
        tally.cpu_seconds += _cpu() - used


def _cpu() -> float:
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def merge(tallies: Sequence[Tally]) -> Tally:
    """The tally of one attack that several processes shared."""
    first = tallies[0]
    return Tally(
        first.name,
        sum(tally.cases for tally in tallies),
        sum(tally.failed for tally in tallies),
        max(tally.seconds for tally in tallies),
        sum(tally.cpu_seconds for tally in tallies),
        [failure for tally in tallies for failure in tally.failures][:MOST_KEPT],
        _merge_facts([tally.facts for tally in tallies]),
    )


def _merge_facts(facts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Counts are added; of measurements, the largest is kept, and of texts the first."""
    merged: dict[str, Any] = {}
    for name in dict.fromkeys(name for each in facts for name in each):
        values = [each[name] for each in facts if name in each]
        if isinstance(values[0], dict):
            merged[name] = _merge_facts(values)
        elif isinstance(values[0], int):
            merged[name] = sum(values)
        else:
            merged[name] = max(values) if isinstance(values[0], float) else values[0]
    return merged
