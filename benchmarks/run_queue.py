"""Run benchmark cells in order of informativeness within a time limit, on the machine at hand.

python benchmarks/run_queue.py QUEUE --seconds 1500 --data-root DATA     as many of the runs as that allows
python benchmarks/run_queue.py QUEUE --list                              the runs in order, and which are done

Queues: `recipe` chooses the parts of one recipe on development splits without test sets; `methods` compares
all methods on one cell, `open-set` methods and OOD detectors on another, and `baseline` runs the paper's own
presets, each scored once on the test set. Each run is a `graphclean bench run`, so results are files that
`graphclean bench table runs` shows. Finished runs are skipped; a run that exceeds the time limit keeps its
checkpoint, and the same command resumes it.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from graphclean.bench.cells import NOT_OF_CELLS, get_cell, make_method
from graphclean.bench.results import find_seeds
from graphclean.methods import OWN_METHODS, load_method

SEED = 0
ASYM, SYM50, SYM90 = "cifar10/asym40", "cifar10/sym50", "cifar10/sym90"
MAIN, INSTANCE, HUNDRED = "cifar10/tinyimagenet/20k", "cifar10/instance40", "cifar100/tinyimagenet/20k"
BASE, RECIPE = "cifar10-lond-fast", "images-fast"
"""Presets of 60 epochs: one with recorded results on three of the cells, and the candidate."""
HUNDRED_BASE = ("graph.k=200", "method.warmup_epochs=6")
"""Settings of the base for 100 classes, as in the paper: k, and a tenth of the epochs for warm-up."""
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
SIXTY = ("training.epochs=60",)
MLNT = ("training.epochs=10",)
"""Fewer epochs, because MLNT costs thirty times as much as cross-entropy."""
COMPARED_DETECTORS = ("msp", "odin", "mahalanobis", "knn", "energy", "rmd", "vim")
BY_VALUE = (
    "cross-entropy", "elr", "mixup", "dividemix", "ssr-plus", "f-correction", "co-teaching",
    "co-teaching-plus", "ssr", "dividemix-1", "pencil", "m-correction", "elr-plus", "protomix", "ngc",
    "sop-plus", "rog", "mentornet-pd", "d2l", "ilon", "incv", "decoupling", "unicon", "c2d", "mlnt",
)  # fmt: skip
"""Methods in order of priority."""


@dataclass(frozen=True)
class Part:
    """One run: a cell, a preset, changes to it, and what is scored."""

    cell: str
    preset: str
    changes: tuple[str, ...] = ()
    method: str | None = None
    detectors: tuple[str, ...] = ()
    split: str = "dev"

    def __str__(self) -> str:
        words = [self.cell, self.method or "", self.preset, *self.changes, *self.detectors]
        return " ".join(word for word in words if word)


def _recipe() -> list[Part]:
    """The candidate, then one part at a time, on development splits."""
    return [
        # The candidate where the base fails most, and where it must not lose; and a published method that
        # is robust to either noise, to see whether a gap is due to the recipe or to the engine.
        *(Part(cell, RECIPE) for cell in (SYM90, ASYM, MAIN)),
        *(Part(cell, BASE, STRONG, method="ssr-plus") for cell in (SYM90, ASYM)),
        # One part at a time on the base, which is recorded on these three: first those known to matter.
        *(Part(cell, BASE, STRONG) for cell in (SYM90, MAIN, ASYM)),
        *(Part(cell, BASE, BALANCED) for cell in (SYM90, MAIN)),
        *(Part(cell, BASE, AUTO) for cell in (ASYM, MAIN)),
        *(Part(cell, BASE, SURE) for cell in (SYM90, MAIN)),
        Part(SYM90, BASE, STARTED),
        *(Part(cell, BASE, AVERAGED) for cell in (SYM90, MAIN)),
        # Cells without recorded results: base and candidate.
        Part(INSTANCE, BASE),
        Part(INSTANCE, RECIPE),
        Part(HUNDRED, BASE, HUNDRED_BASE),
        Part(HUNDRED, RECIPE),
        Part(HUNDRED, RECIPE, ("graph.k=200",)),
        # Parts that may replace another, on the candidate.
        *(Part(cell, RECIPE, POSITIVES) for cell in (SYM90, MAIN)),
        *(Part(cell, RECIPE, CLASS_DEPENDENT) for cell in (ASYM, MAIN)),
        *(Part(cell, RECIPE, STARTED) for cell in (SYM90, ASYM)),
        *(Part(cell, RECIPE, ("graph.eta=0.8",)) for cell in (SYM90, MAIN)),
        *(Part(cell, RECIPE, ESTIMATED) for cell in (HUNDRED, SYM90, MAIN, ASYM)),
        *(Part(cell, RECIPE, AVERAGED) for cell in (SYM90, ASYM)),
        *(Part(cell, RECIPE, GIVEN) for cell in (SYM90, ASYM)),
        *(Part(cell, RECIPE, LESS_STICKY) for cell in (SYM90, ASYM)),
        Part(SYM90, RECIPE, MORE_REPEATS),
        # The rest of one part at a time.
        *(Part(cell, BASE, ESTIMATED) for cell in (SYM90, MAIN, ASYM)),
        *(Part(cell, BASE, AUTO) for cell in (INSTANCE, SYM90)),
        *(Part(cell, BASE, POSITIVES) for cell in (SYM90, ASYM, MAIN)),
        *(Part(cell, BASE, BALANCED) for cell in (ASYM, INSTANCE)),
        Part(HUNDRED, BASE, (*HUNDRED_BASE, *BALANCED)),
        Part(HUNDRED, BASE, (*HUNDRED_BASE, *STRONG)),
    ]


def comparable() -> list[str]:
    """The classifiers whose needs the cells satisfy: first `BY_VALUE`, then all others."""
    fit = [
        name
        for name in OWN_METHODS
        if load_method(name).info.kind != "ood" and not set(load_method(name).info.needs) & set(NOT_OF_CELLS)
    ]
    return [name for name in BY_VALUE if name in fit] + [name for name in fit if name not in BY_VALUE]


def _methods() -> list[Part]:
    """All methods under symmetric noise, with equally many epochs."""
    return [
        Part(SYM50, BASE, MLNT if name == "mlnt" else (), method=name, split="test") for name in comparable()
    ]


def _open_set() -> list[Part]:
    """Methods of the paper's tables with OOD in training, with OOD detectors where the paper has them."""
    scored = dict.fromkeys(("cross-entropy", "dividemix"), COMPARED_DETECTORS)
    compared = (
        "cross-entropy dividemix elr mixup ssr-plus protomix rog ilon elr-plus rot-plus ssd ssd-plus rot"
    )
    return [
        Part(MAIN, RECIPE, detectors=COMPARED_DETECTORS, split="test"),
        Part(MAIN, "paper", SIXTY, split="test"),
        *(
            Part(MAIN, BASE, method=name, detectors=scored.get(name, ()), split="test")
            for name in compared.split()
            if name in OWN_METHODS
        ),
    ]


def _baseline() -> list[Part]:
    """The paper's settings, and the release's with its own network, at 300 epochs."""
    cells = (("paper", SYM90), ("paper", ASYM), ("release", SYM90))
    return [Part(cell, preset, split="test") for preset, cell in cells]


QUEUES = {"recipe": _recipe, "methods": _methods, "open-set": _open_set, "baseline": _baseline}
LEAST_SECONDS = 60
"""Minimum remaining time to start a run."""
STOPPING_SECONDS = 60
"""Seconds that a run may take to save its checkpoint when asked to stop."""


@dataclass(frozen=True)
class Options:
    """Locations to read and write, and settings changed in all runs."""

    results: Path
    work: Path
    data_root: Path | None
    device: str
    settings: tuple[str, ...]


def is_done(part: Part, options: Options) -> bool:
    """Whether the result of a run has been recorded."""
    changes = [*part.changes, *options.settings]
    recipe = make_method(get_cell(part.cell), changes, method=part.method, preset=part.preset)
    return SEED in find_seeds(options.results, part.cell, part.split, recipe.name)


def make_command(part: Part, options: Options) -> list[str]:
    """The `graphclean bench run` command of a run."""
    words = [sys.executable, "-m", "graphclean", "bench", "run", part.cell, "--preset", part.preset]
    words += ["--split", part.split, "--seeds", str(SEED), "--device", options.device]
    words += ["--results", str(options.results), "--work", str(options.work)]
    if options.data_root is not None:
        words += ["--data-root", str(options.data_root)]
    if part.method is not None:
        words += ["--method", part.method]
    for option, values in (("--detector", part.detectors), ("--set", (*part.changes, *options.settings))):
        words += [word for value in values for word in (option, value)]
    return words


def run(command: list[str], seconds: float) -> int | None:
    """The exit code of a command; None if it was stopped at the time limit, after saving a checkpoint."""
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
    """Run the rest of the queue in order within the time limit; returns the number of failed runs."""
    end, failed = time.monotonic() + seconds, 0
    for place, part in enumerate(queue, 1):
        if is_done(part, options):
            continue
        left = end - time.monotonic()
        if left < min(LEAST_SECONDS, seconds):
            break
        print(f"{place}/{len(queue)}: {part}; {left:.0f} s left", flush=True)
        code = run(make_command(part, options), left)
        if code is None:
            print(f"the time is over in {part}; the same command continues it", flush=True)
            break
        if code != 0:
            failed += 1
            print(f"FAILED with exit code {code}: {part}", flush=True)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("queue", choices=QUEUES, metavar="QUEUE", help=", ".join(QUEUES))
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
    queue = [part for part in QUEUES[asked.queue]() if asked.only is None or part.cell in asked.only]
    failed = 0
    if not asked.list:
        failed = work_off(queue, options, asked.seconds)
    done = [is_done(part, options) for part in queue]
    for part, there in zip(queue, done, strict=True):
        print(f"{'done' if there else '    '}  {part}")
    print(f"{sum(done)} of {len(queue)} done; `graphclean bench table runs` shows them")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
