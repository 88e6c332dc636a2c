"""The time spent in each part of a training epoch, and its growth with the number of samples.

First trains a cell for some epochs of its preset, so that the selection is realistic. Nothing is scored.

    python benchmarks/engine.py
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import RESULTS, data_root, save
from graphclean.bench.cells import get_cell, make_method
from graphclean.bench.inputs import Material, load_sources, prepare_material
from graphclean.bench.runner import DRAW, Job, prepare_job
from graphclean.graph import GraphCleaner
from graphclean.methods.blocks import classification
from graphclean.methods.ngc import NGC
from graphclean.runs.device import choose_device
from graphclean.training import Trainer
from graphclean.training.batches import ResidentInputs

GROWTH = (10_000, 20_000, 50_000, 100_000, 200_000)


def time_first_step(trainer: Trainer, started: float) -> list[float]:
    """Record the seconds from the start to the end of the first step, once it has been made."""
    plain, first = trainer._step, []

    def step(*args: Any, **options: Any) -> torch.Tensor:
        terms = plain(*args, **options)
        if not first:
            terms.sum().item()
            first.append(time.perf_counter() - started)
        return terms

    trainer._step = step  # type: ignore[method-assign]
    return first


@contextmanager
def no_new_sizes() -> Iterator[None]:
    """Do not compile for further sizes of the selected set, which changes while it grows."""
    before, classification.RECOMPILE_THRESHOLD = classification.RECOMPILE_THRESHOLD, sys.maxsize
    yield
    classification.RECOMPILE_THRESHOLD = before


def train_some(trainer: Trainer, epochs: int) -> float:
    """Train some epochs before anything is timed; returns the seconds lost to compilation."""
    lost, reports = 0.0, []
    for _ in range(epochs):
        reports.append(trainer._run_epoch(None))
        trainer.epoch += 1
        print(reports[-1], flush=True)
    for warmup in (True, False):
        times = [report.seconds for report in reports[1:] if report.own["warmup"] is warmup]
        lost += sum(times) - len(times) * statistics.median(times or [0.0])
    return lost


def cleaning_method(trainer: Trainer) -> NGC:
    """The trainer's method, whose graph step is timed."""
    if not isinstance(trainer.method, NGC):
        sys.exit("only runs of ngc can be taken apart")
    return trainer.method


def timed(trainer: Trainer, work: Callable[[], Any], repeats: int = 5) -> float:
    """Median seconds between device syncs, after one warm-up call."""

    def wait() -> None:
        if trainer.device.type == "cuda":
            torch.cuda.synchronize()

    work()
    found = []
    for _ in range(repeats):
        wait()
        started = time.perf_counter()
        work()
        wait()
        found.append(time.perf_counter() - started)
    return statistics.median(found)


def break_down(trainer: Trainer) -> dict[str, Any]:
    """The time of each part of an epoch, with the current selection."""
    method = cleaning_method(trainer)
    reports = [trainer._run_epoch(None) for _ in range(5)]
    batches = torch.arange(len(trainer.inputs), device=trainer.device)
    batches = batches[: len(batches) // trainer.batch_size * trainer.batch_size].view(-1, trainer.batch_size)
    steps = -(-len(trainer.inputs) // trainer.batch_size)

    def augment() -> None:
        for batch in trainer.inputs.stream(batches):
            trainer._views(batch)

    augmentation = timed(trainer, augment) * steps / len(batches)
    embedding = timed(trainer, trainer.embed)
    out = trainer.embed()
    graph = timed(trainer, lambda: method._clean(trainer, out.z, out.logits))
    step = [2 * trainer.batch_size, 2 * round(statistics.median(method.mixup.sizes))]
    epoch = statistics.median(report.seconds for report in reports)
    cleaning = statistics.median(report.clean_seconds for report in reports)
    network = epoch - cleaning - augmentation
    through = 2 * len(trainer.inputs) + 2 * reports[-1].selected
    found = {
        "samples": len(trainer.inputs),
        "selected": reports[-1].selected,
        "epoch": epoch,
        "cleaning": cleaning,
        "embedding": embedding,
        "graph": graph,
        "augmentation": augmentation,
        "network": network,
        "images": through,
        "images_per_second": through / network,
        "filled_images_per_second": steps * sum(step) / network,
        "step": step,
    }
    print(found, flush=True)
    return found


def make_batch(trainer: Trainer, n: int) -> torch.Tensor:
    """A batch of normal numbers with the shape and memory layout of a real one."""
    batch = torch.randn(n, *trainer.inputs.shape, device=trainer.device)
    return batch.contiguous(memory_format=torch.channels_last) if trainer.device.type == "cuda" else batch


def pass_alone(trainer: Trainer, sizes: list[int]) -> float:
    """Images per second in forward pass, backward pass and update, for precomputed batches of these sizes.

    Excludes views, mixup and our losses. It spoils the weights, so it runs last.
    """
    batches = [make_batch(trainer, n) for n in sizes]

    def step() -> None:
        outputs = trainer.forward(*batches)
        sum(out.logits.float().mean() + out.z.mean() for out in outputs).backward()  # type: ignore[union-attr]
        trainer.optimizers.sgd.step()
        trainer.optimizers.sgd.zero_grad(set_to_none=True)

    return sum(sizes) / timed(trainer, step, repeats=50)


def grow(trainer: Trainer, material: Material, sizes: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    """Time epochs for other numbers of samples, resampled from the cell with a little noise to avoid equal
    ones.
    """
    rng, method = np.random.default_rng(0), cleaning_method(trainer)
    everything, labels = material.train_images(), torch.as_tensor(material.draw.labels)
    for n in sizes:
        rows = torch.as_tensor(rng.integers(0, len(labels), n))
        images = everything[rows].to(trainer.device)
        noise = torch.randint(-3, 4, images.shape, device=trainer.device, dtype=torch.int16)
        trainer.inputs = ResidentInputs((images + noise).clamp_(0, 255).to(torch.uint8))
        given = trainer.given = labels[rows].to(trainer.device)
        method.cleaner = GraphCleaner(given, trainer.n_classes, method.graph)
        method._given, method.excluded = (given.clamp(min=0), given >= 0), None
        reports = [trainer._run_epoch(None) for _ in range(3)]
        part = {
            "samples": n,
            "selected": reports[-1].selected,
            "epoch": statistics.median(report.seconds for report in reports),
            "cleaning": statistics.median(report.clean_seconds for report in reports),
        }
        print(part, flush=True)
        yield part


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cell", default="cifar10/tinyimagenet/20k")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--epochs", type=int, default=20, help="to train before an epoch is timed")
    parser.add_argument("--data-root")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--sizes", type=int, nargs="*", default=GROWTH, help="samples to grow to")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    cell, device = get_cell(options.cell), choose_device(options.device)
    job = Job(cell, make_method(cell, options.settings), 0, "test")
    sources = load_sources(cell, job.split, data_root(options.data_root))
    with tempfile.TemporaryDirectory() as work:
        material = prepare_material(cell, job.seed, job.split, sources, Path(work) / DRAW)
        started = time.perf_counter()
        trainer = prepare_job(job, material, Path(work), device).trainer
    first_step = time_first_step(trainer, started)
    with no_new_sizes():
        compiling = train_some(trainer, options.epochs)
    found = break_down(trainer)
    peak = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else None
    about = {"cell": cell.name, "preset": job.method.preset, "trained": options.epochs}
    with no_new_sizes():
        growth = list(grow(trainer, material, tuple(options.sizes)))
    found["network_alone_images_per_second"] = pass_alone(trainer, found["step"])
    breakdown = {**about, "first_step": first_step[0], "compiling": compiling, "peak_gib": peak, **found}
    print(save(f"engine-{device.type}", breakdown, options.out))
    print(save(f"engine-growth-{device.type}", {**about, "growth": growth}, options.out))


if __name__ == "__main__":
    main()
