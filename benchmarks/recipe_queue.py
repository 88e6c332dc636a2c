"""Choose the parts of one recipe on the development splits, the most telling run first, in so many seconds.

python benchmarks/recipe_queue.py --seconds 7200 --data-root DATA     as many of the runs as that allows
python benchmarks/recipe_queue.py --list                              the runs in order, and which are done

Each is a `graphclean bench run`, so results are files that `graphclean bench table runs` shows. What is done
is skipped; a run that the time cuts off keeps its checkpoint, and the same command continues it. No test set
is read.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from graphclean.bench.cells import get_cell, make_method
from graphclean.bench.results import find_seeds

SPLIT, SEED = "dev", 0
ASYM, SYM90, MAIN = "cifar10/asym40", "cifar10/sym90", "cifar10/tinyimagenet/20k"
INSTANCE, HUNDRED = "cifar10/instance40", "cifar100/tinyimagenet/20k"
BASE, RECIPE = "cifar10-lond-fast", "images-fast"
"""What is recorded on three of the cells, and the candidate; both of 60 epochs."""
HUNDRED_BASE = ("graph.k=200", "method.warmup_epochs=6")
"""What the base needs for 100 classes, as the paper: k, and a tenth of the epochs for warm-up."""
AUTO, BALANCED = ("graph.accept=auto",), ("method.balance_cap=4",)
STRONG, AVERAGED = ("training.strong_augmentation=autoaugment",), ("training.ema_decay=0.99",)
POSITIVES = ("method.lambda_consistency=1", "method.lambda_inst=0")
ESTIMATED = ("graph.k=auto", "method.warmup_epochs=auto")
STARTED = ("training.self_supervised_epochs=20",)
CLASS_DEPENDENT, GIVEN, SURE = (
    ("graph.class_dependent_noise=true",),
    ("graph.start=given",),
    ("graph.eta=auto",),
)
LESS_STICKY = ("graph.alpha=0.8",)
MORE_REPEATS = ("method.balance_cap=10",)
PEER = ("method.name=ssr-plus", *STRONG)
"""What is published to hold under either noise, on the same engine and schedule: whether a gap is the
method's or the engine's.
"""
Part = tuple[str, str, tuple[str, ...]]
QUEUE: list[Part] = [
    # The candidate where the base fails most, and where it must not lose.
    *((cell, RECIPE, ()) for cell in (SYM90, ASYM, MAIN)),
    *((cell, BASE, PEER) for cell in (SYM90, ASYM)),
    # One part at a time on the base, which is recorded on these three: first what others found to matter.
    *((cell, BASE, STRONG) for cell in (SYM90, MAIN, ASYM)),
    *((cell, BASE, BALANCED) for cell in (SYM90, MAIN)),
    *((cell, BASE, AUTO) for cell in (ASYM, MAIN)),
    *((cell, BASE, SURE) for cell in (SYM90, MAIN)),
    *((cell, BASE, STARTED) for cell in (SYM90,)),
    *((cell, BASE, AVERAGED) for cell in (SYM90, MAIN)),
    # The cells on which nothing is recorded: base and candidate.
    (INSTANCE, BASE, ()),
    (INSTANCE, RECIPE, ()),
    (HUNDRED, BASE, HUNDRED_BASE),
    (HUNDRED, RECIPE, ()),
    (HUNDRED, RECIPE, ("graph.k=200",)),
    # Parts that may take another's place, on the candidate.
    *((cell, RECIPE, POSITIVES) for cell in (SYM90, MAIN)),
    *((cell, RECIPE, CLASS_DEPENDENT) for cell in (ASYM, MAIN)),
    *((cell, RECIPE, STARTED) for cell in (SYM90, ASYM)),
    *((cell, RECIPE, ("graph.eta=0.8",)) for cell in (SYM90, MAIN)),
    *((cell, RECIPE, ESTIMATED) for cell in (HUNDRED, SYM90, MAIN, ASYM)),
    *((cell, RECIPE, AVERAGED) for cell in (SYM90, ASYM)),
    *((cell, RECIPE, GIVEN) for cell in (SYM90, ASYM)),
    *((cell, RECIPE, LESS_STICKY) for cell in (SYM90, ASYM)),
    *((cell, RECIPE, MORE_REPEATS) for cell in (SYM90,)),
    # The rest of one part at a time.
    *((cell, BASE, ESTIMATED) for cell in (SYM90, MAIN, ASYM)),
    *((cell, BASE, AUTO) for cell in (INSTANCE, SYM90)),
    *((cell, BASE, POSITIVES) for cell in (SYM90, ASYM, MAIN)),
    *((cell, BASE, BALANCED) for cell in (ASYM, INSTANCE)),
    (HUNDRED, BASE, (*HUNDRED_BASE, *BALANCED)),
    (HUNDRED, BASE, (*HUNDRED_BASE, *STRONG)),
]
"""Cell, preset and changes, in order of what tells most."""
LEAST_SECONDS = 60
"""Less time than this is not worth a start."""
STOPPING_SECONDS = 60
"""What a run that was asked to stop may take to save its place."""


@dataclass(frozen=True)
class Options:
    """Where runs read and write, and what is changed in all of them."""

    results: Path
    work: Path
    data_root: Path | None
    device: str
    settings: tuple[str, ...]


def is_done(part: Part, options: Options) -> bool:
    """Whether the result of a run is recorded."""
    cell, preset, changes = part
    method = make_method(get_cell(cell), [*changes, *options.settings], preset=preset)
    return SEED in find_seeds(options.results, cell, SPLIT, method.name)


def make_command(part: Part, options: Options) -> list[str]:
    """The `graphclean bench run` of a run."""
    cell, preset, changes = part
    words = [sys.executable, "-m", "graphclean", "bench", "run", cell, "--preset", preset]
    words += ["--split", SPLIT, "--seeds", str(SEED), "--device", options.device]
    words += ["--results", str(options.results), "--work", str(options.work)]
    if options.data_root is not None:
        words += ["--data-root", str(options.data_root)]
    return [*words, *(word for change in (*changes, *options.settings) for word in ("--set", change))]


def run(command: list[str], seconds: float) -> int | None:
    """The exit code of a command; None where the time ended it, after it saved its place."""
    process = subprocess.Popen(command)
    try:
        return process.wait(seconds)
    except (subprocess.TimeoutExpired, KeyboardInterrupt) as stop:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOPPING_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if isinstance(stop, KeyboardInterrupt):
            raise
        return None


def work_off(queue: list[Part], options: Options, seconds: float) -> int:
    """Run what is left in order while there is time; the number of runs that failed."""
    end, failed = time.monotonic() + seconds, 0
    for place, part in enumerate(queue, 1):
        if is_done(part, options):
            continue
        left = end - time.monotonic()
        if left < min(LEAST_SECONDS, seconds):
            break
        print(f"{place}/{len(queue)}: {describe(part)}; {left:.0f} s left", flush=True)
        code = run(make_command(part, options), left)
        if code is None:
            print(f"the time is over in {describe(part)}; the same command continues it", flush=True)
            break
        if code != 0:
            failed += 1
            print(f"FAILED with exit code {code}: {describe(part)}", flush=True)
    return failed


def describe(part: Part) -> str:
    """A run in one line."""
    cell, preset, changes = part
    return " ".join([cell, preset, *changes])


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--seconds", type=float, default=3600, help="for all runs together (default: an hour)"
    )
    parser.add_argument("--list", action="store_true", help="show the runs in order, and which are done")
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--work", type=Path, default=Path("runs/bench"))
    parser.add_argument("--data-root", type=Path, default=os.environ.get("GRAPHCLEAN_DATA"))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", action="append", default=[], dest="settings", help="change all of them")
    parser.add_argument("--only", nargs="+", metavar="CELL", help="the runs on these cells alone")
    asked = parser.parse_args()
    root = Path(asked.data_root) if asked.data_root is not None else None
    options = Options(asked.results, asked.work, root, asked.device, tuple(asked.settings))
    queue = [part for part in QUEUE if asked.only is None or part[0] in asked.only]
    failed = 0
    if not asked.list:
        failed = work_off(queue, options, asked.seconds)
    done = [is_done(part, options) for part in queue]
    for part, there in zip(queue, done, strict=True):
        print(f"{'done' if there else '    '}  {describe(part)}")
    print(f"{sum(done)} of {len(queue)} done; `graphclean bench table runs` shows them")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
