"""Kills and full disks: check what a command leaves, and that the next one repairs it, to the bit."""

import os
import random
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from graphclean._files import sweep
from graphclean.errors import InputError
from graphclean.runs.folder import read_config, read_verdicts

from . import children
from .children import Counter, Ended
from .jobs import JOBS, Job, data_of
from .tally import Clock, Tally, timed

ROOM = (0, 1, 100, 700, 2000, 5000, 12_000, 40_000, 100_000)
"""Maximum file sizes in bytes on a disk that is nearly full."""


class Bench:
    """The folders in which commands are attacked, and the results of undisturbed commands."""

    def __init__(self, base: Path, work: Path, jobs: Sequence[Job] = JOBS) -> None:
        self.base, self.work, self.jobs = base, work, jobs
        self.expected: dict[str, Any] = {}
        self.seconds: dict[str, float] = {}
        self.changes: dict[str, int] = {}
        self.part, self.parts = 0, 1
        """Which of the processes that share the cases this is, and of how many."""
        self._number = 0

    def fresh(self) -> Path:
        """A copy of everything for one case."""
        return Path(shutil.copytree(self.base, self.place(), symlinks=True))

    def place(self) -> Path:
        """Where the next case can work."""
        self._number += 1
        return self.work / f"case-{self.part}-{self._number}"

    def clear(self, folder: Path) -> None:
        """Remove the folder of a case."""
        shutil.rmtree(folder, ignore_errors=True)

    def measure(self, job: Job) -> None:
        """Record the results, time and number of changes of an undisturbed job.

        Before that, it runs once for its imports: they take longer than most commands, and every child forked
        from now on starts with them.
        """
        if job.name in self.expected:
            return
        folder, noted = self.fresh(), self.work / "imports.txt"
        children.run(job.words, folder, children.note_imports(noted))
        self.clear(folder)
        children.import_noted(noted)
        noted.unlink()
        folder, counter = self.fresh(), Counter()
        done = children.run(job.words, folder, lambda: counter.watch(folder))
        if done.code != 0:
            raise RuntimeError(f"{job.name}: {done.err}")
        self.expected[job.name] = job.results(folder)
        self.seconds[job.name], self.changes[job.name] = done.seconds, counter.count
        self.clear(folder)

    def check(self, job: Job, folder: Path, before: dict[str, str]) -> list[str | None]:
        """The problems after a job was interrupted and repeated."""
        lost = self._lost(job, folder)
        done = children.run(job.again, folder)
        if done.wrong is not None or done.code != 0:
            return [lost, f"made again: {done.wrong or done.err}"]
        try:
            same = job.results(folder) == self.expected[job.name]
        except (OSError, ValueError) as error:
            return [lost, f"results are missing: {error}"]
        left = children.left_over(folder)
        return [
            lost,
            None if same else "the results differ",
            None if not left else f"left: {', '.join(left)}",
            None if data_of(folder) == before else "an original was touched",
        ]

    def _lost(self, job: Job, folder: Path) -> str | None:
        """The problem if neither the old nor the new version of a replaced run is complete."""
        if job.replaced is None:
            return None
        run = folder / job.replaced
        try:
            sweep(folder)
            read_config(run)
            read_verdicts(run)
        except (InputError, OSError) as error:
            return f"a run is lost: {error}"
        return None


Place = TypeVar("Place")


def share_out(
    bench: Bench, chosen: random.Random, places_of: Callable[[Job], Sequence[Place]]
) -> list[tuple[Job, Place]]:
    """The cases of this process: all places of every job, in random order.

    Whenever time runs out, about the same fraction of the places of every job has been tried.
    """
    found = []
    for job in bench.jobs:
        bench.measure(job)
        places = list(places_of(job))
        chosen.shuffle(places)
        found += [((at + 0.5) / len(places), job, place) for at, place in enumerate(places)]
    found.sort(key=lambda one: one[0])
    return [(job, place) for _, job, place in found][bench.part :: bench.parts]


def try_places(
    tally: Tally, clock: Clock, cases: Sequence[tuple[Job, Place]], attack: Callable[[Job, Place], None]
) -> None:
    """Attack until time runs out, and record for each command how many of its places were tried."""
    names = sorted({job.name for job, _ in cases})
    places = {name: {"tried": 0, "of": sum(job.name == name for job, _ in cases)} for name in names}
    with timed(tally):
        for job, place in cases:
            if tally.over(clock):
                break
            attack(job, place)
            places[job.name]["tried"] += 1
    tally.facts["places"] = places


def kill_at_changes(bench: Bench, seed: int, clock: Clock) -> Tally:
    """SIGKILL before the n-th change of a command to its folder."""
    tally = Tally("kills at changes to the file system")
    return _at_changes(tally, bench, seed, clock, children.die, _broken_off)


def fill_disk_at_changes(bench: Bench, seed: int, clock: Clock) -> Tally:
    """No space left at the n-th change, as reported by the system."""
    tally = Tally("a full disk at a change")
    return _at_changes(tally, bench, seed, clock, children.fill_up, _on_full_disk)


def _at_changes(
    tally: Tally,
    bench: Bench,
    seed: int,
    clock: Clock,
    act: Callable[[], None],
    attack: Callable[[Tally, Bench, Job, str, Callable[[Path], None]], None],
) -> Tally:
    cases = share_out(bench, random.Random(seed), lambda job: range(bench.changes[job.name]))
    try_places(
        tally,
        clock,
        cases,
        lambda job, at: attack(tally, bench, job, f"{job.name}, change {at}", lambda f: _watch(f, at, act)),
    )
    return tally


def _watch(folder: Path, at: int, act: Callable[[], None]) -> None:
    Counter().watch(folder, at, act)


def kill_at_times(bench: Bench, seed: int, clock: Clock) -> Tally:
    """SIGKILL at random times."""
    tally, chosen = Tally("kills at random times"), random.Random(f"{seed} {bench.part}")
    with timed(tally):
        while not tally.over(clock):
            job = chosen.choice(bench.jobs)
            bench.measure(job)
            after = chosen.uniform(0, bench.seconds[job.name])
            _broken_off(tally, bench, job, f"{job.name}, {after:.3f} s", kill_after=after)
    return tally


def _broken_off(
    tally: Tally,
    bench: Bench,
    job: Job,
    case: str,
    prepare: Callable[[Path], None] = lambda _: None,
    *,
    kill_after: float | None = None,
) -> None:
    folder = bench.fresh()
    before = data_of(folder)
    done = children.run(job.words, folder, lambda: prepare(folder), kill_after=kill_after)
    wrong = done.wrong_unless(0, -9)
    tally.count(case, wrong, *bench.check(job, folder, before))
    bench.clear(folder)


def limit_files(bench: Bench, seed: int, clock: Clock) -> Tally:
    """Limited file sizes, which also affect files not written by Python."""
    tally = Tally("files that can't grow")
    try_places(
        tally,
        clock,
        share_out(bench, random.Random(seed), lambda _: ROOM),
        lambda job, room: _on_full_disk(
            tally, bench, job, f"{job.name}, {room} bytes", lambda _: children.small_files(room)()
        ),
    )
    return tally


def _on_full_disk(tally: Tally, bench: Bench, job: Job, case: str, prepare: Callable[[Path], None]) -> None:
    folder = bench.fresh()
    before = data_of(folder)
    done = piped(job, folder, prepare)
    tally.count(case, done.wrong, *bench.check(job, folder, before))
    bench.clear(folder)


def piped(job: Job, folder: Path, prepare: Callable[[Path], None] = lambda _: None) -> Ended:
    """Run a job with its output in pipes, which need no room on the disk."""
    ends = {number: os.pipe() for number in (1, 2)}

    def redirect() -> None:
        for number, (_, writing) in ends.items():
            os.dup2(writing, number)
        prepare(folder)

    process = children.start(job.words, folder, redirect)
    for _, writing in ends.values():
        os.close(writing)
    done = children.wait(process, folder)
    texts = []
    for reading, _ in ends.values():
        with os.fdopen(reading, "rb") as pipe:
            texts.append(pipe.read().decode(errors="replace"))
    return Ended(done.code, texts[0], texts[1], done.seconds, done.peak_mib)


def crowd(bench: Bench, seed: int, clock: Clock) -> Tally:
    """Two to five processes run the same job in one folder: each succeeds or is refused."""
    tally, chosen = Tally("two to five processes in one folder"), random.Random(f"{seed} {bench.part}")
    with timed(tally):
        while not tally.over(clock):
            job, count = chosen.choice(bench.jobs), chosen.randint(2, 5)
            bench.measure(job)
            folder = bench.fresh()
            before = data_of(folder)
            processes = [children.start(job.words, folder, number=number) for number in range(count)]
            ended = [
                children.wait(process, folder, number=number) for number, process in enumerate(processes)
            ]
            wrong = [done.wrong for done in ended]
            if job.replaced is None and all(done.code for done in ended):
                wrong.append(f"none of them was let in: {ended[0].err}")
            tally.count(f"{job.name}, {count} processes", *wrong, *bench.check(job, folder, before))
            bench.clear(folder)
    return tally
