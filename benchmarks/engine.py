"""Train a preset on CIFAR-10 with wrong labels and TinyImageNet among it; record times and scores.

Once, from parquet tables to arrays, then any number of runs:

    python benchmarks/engine.py decode DATA/cifar10/*.parquet DATA/tinyimagenet32/*.parquet --arrays DIR
    python benchmarks/engine.py run --arrays DIR --name ngc-60-epochs --set learn.epochs=60 --speed

`--split dev` trains on 45,000 images and 10,000 of no class and scores on the 5,000 and 5,000 left out: there
settings are chosen. `--speed` then takes the trained network through more epochs and measures where their
time goes, and how it grows with the number of samples.
"""

import argparse
import json
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import machine
from graphclean.config import apply_settings, load_preset
from graphclean.data.loader import ResidentInputs
from graphclean.evaluate.openset import score_cleaning, score_open_set
from graphclean.graph import GraphCleaner
from graphclean.learn import Trainer
from graphclean.ood import prototype_similarity
from graphclean.ood.thresholds import auto_threshold

CELL = "cifar10--tinyimagenet--20k"
TRAIN_OOD, TEST_OOD, NOISE = 20_000, 10_000, 0.5
GROWTH = (10_000, 20_000, 50_000, 100_000, 200_000)
RESULTS = Path(__file__).parent / "results"


def decode(path: Path, arrays: Path) -> None:
    """One parquet table of images to `<name>.npz` with images (N, 3, 32, 32) and labels."""
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    column = "img" if "img" in table.column_names else "image"
    content = [row["bytes"] for row in table[column].to_pylist()]
    with ProcessPoolExecutor() as pool:
        images = list(pool.map(_decode_one, content, chunksize=500))
    np.savez(arrays / f"{path.stem}.npz", images=np.stack(images), labels=np.array(table["label"]))
    print(path.stem, len(images), flush=True)


def _decode_one(content: bytes) -> np.ndarray:
    from PIL import Image

    return np.asarray(Image.open(BytesIO(content)).convert("RGB")).transpose(2, 0, 1)


def make_cell(arrays: Path, seed: int, split: str) -> dict[str, np.ndarray]:
    """Half of the 50,000 labels drawn anew, 20,000 images of no class added, 10,000 more to the test set.

    The development split is made of the same draw's training samples alone.
    """
    rng = np.random.default_rng(seed)
    parts = [np.load(arrays / f"train-0000{i}-of-00002.npz") for i in range(2)]
    images, truth = (np.concatenate([part[key] for part in parts]) for key in ("images", "labels"))
    pool = np.load(arrays / "pool-00000-of-00001.npz")["images"]
    labels = truth.copy()
    chosen = rng.choice(len(labels), round(NOISE * len(labels)), replace=False)
    labels[chosen] = rng.integers(0, 10, len(chosen))
    order = rng.permutation(len(pool))
    inside, outside = order[:TRAIN_OOD], order[TRAIN_OOD : TRAIN_OOD + TEST_OOD]
    ood_labels = rng.integers(0, 10, TRAIN_OOD)
    if split == "dev":
        rows = rng.permutation(len(labels))
        keep, held = np.sort(rows[:45_000]), np.sort(rows[45_000:])
        test_images, test_truth = images[held], truth[held]
        images, labels, truth = images[keep], labels[keep], truth[keep]
        inside, outside, ood_labels = inside[:10_000], inside[10_000:15_000], ood_labels[:10_000]
    else:
        test = np.load(arrays / "test-00000-of-00001.npz")
        test_images, test_truth = test["images"], test["labels"]
    return {
        "images": np.concatenate([images, pool[inside]]),
        "labels": np.concatenate([labels, ood_labels]),
        "truth": np.concatenate([truth, np.full(len(inside), -1)]),
        "test_images": np.concatenate([test_images, pool[outside]]),
        "test_truth": np.concatenate([test_truth, np.full(len(outside), -1)]),
    }


def run(options: argparse.Namespace) -> None:
    """Train, score the last epoch once, and write one JSON."""
    settings = [f"learn.seed={options.seed}", *options.set]
    config = apply_settings(load_preset(options.preset), settings, sections=("graph", "learn"))
    device = torch.device(options.device)
    cell = make_cell(options.arrays, options.seed, options.split)
    epochs: list[dict[str, Any]] = []

    def watch(report: Any, cleaned: Any) -> None:
        found = score_cleaning(cleaned.labels.cpu().numpy(), cleaned.selected.cpu().numpy(), cell["truth"])
        epochs.append({**asdict(report), "cleaning": asdict(found)})
        if report.epoch % 10 == 0 or report.epoch <= 2:
            losses = {name: round(value, 3) for name, value in report.losses.items()}
            print(report.epoch, f"{report.seconds:.2f} s", losses, asdict(found), flush=True)

    started = time.perf_counter()
    inputs = ResidentInputs(torch.as_tensor(cell["images"]).to(device))
    trainer = Trainer(
        inputs,
        torch.as_tensor(cell["labels"]),
        10,
        config.learn,
        config.graph,
        checkpoint=options.checkpoint,
        on_epoch=watch,
    )
    first_step = _time_first_step(trainer, started)
    trained = trainer.train(resume=options.checkpoint is not None)
    seconds = time.perf_counter() - started
    threshold = auto_threshold(
        prototype_similarity(trained.z, trained.prototypes).amax(1).double().cpu().numpy()
    )
    z, logits = trainer.embed(ResidentInputs(torch.as_tensor(cell["test_images"]).to(device)))
    similarity = prototype_similarity(z, trained.prototypes).amax(1).double().cpu().numpy()
    predicted = logits.argmax(1).cpu().numpy()
    scores = {
        name: asdict(score_open_set(predicted, similarity, cell["test_truth"], zeta))
        for name, zeta in (("auto", threshold.zeta), ("0.5", 0.5), ("0.7", 0.7))
    }
    final = score_cleaning(
        trained.cleaned.labels.cpu().numpy(), trained.cleaned.selected.cpu().numpy(), cell["truth"]
    )
    steady = [epoch["seconds"] for epoch in epochs[config.learn.warmup + 1 :]]
    result = {
        "machine": machine(),
        "cell": CELL,
        "split": options.split,
        "method": options.name,
        "seed": options.seed,
        "preset": options.preset,
        "config": {"graph": asdict(config.graph), "learn": asdict(config.learn)},
        "seconds": seconds,
        "epoch_seconds": statistics.median(steady) if steady else None,
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else None,
        "threshold": asdict(threshold),
        "scores_by_zeta": scores,
        "cleaning": asdict(final),
        "epochs": epochs,
    }
    folder = options.out / CELL / options.name if not options.flat else options.out
    path = folder / (f"{options.seed}.json" if not options.flat else f"{options.name}-{options.seed}.json")
    _write(path, result)
    print(path, scores["auto"], asdict(final), f"{seconds:.0f} s", result["epoch_seconds"], flush=True)
    if options.speed:
        speed = {"machine": machine(), "cell": CELL, "preset": options.preset, "first_step": first_step}
        speed |= {"peak_gib": result["peak_gib"], **_break_down(trainer), "growth": _grow(trainer, cell)}
        _write((options.out if options.flat else RESULTS) / "engine-cuda.json", speed)


def _write(path: Path, value: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1) + "\n")


def _time_first_step(trainer: Trainer, started: float) -> list[float]:
    """Seconds from the start to the end of the first step, compilation included, once there was one."""
    plain, first = trainer._step, []

    def step(*args: Any, **options: Any) -> torch.Tensor:
        terms = plain(*args, **options)
        if not first:
            terms.sum().item()
            first.append(time.perf_counter() - started)
        return terms

    trainer._step = step  # type: ignore[method-assign]
    return first


def _timed(work: Any, repeats: int = 5) -> float:
    """Median seconds by device events, after one call to warm up."""
    work()
    found = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
        found.append(start.elapsed_time(end) / 1000)
    return statistics.median(found)


def _break_down(trainer: Trainer) -> dict[str, Any]:
    """Where the time of an epoch goes, with the selection that training came to."""
    reports: list[Any] = []
    trainer.on_epoch = lambda report, _: reports.append(report)
    trainer.epoch = trainer.settings.epochs - 1
    batches = torch.arange(len(trainer.inputs), device=trainer.device)
    batches = batches[: len(batches) // trainer.batch * trainer.batch].view(-1, trainer.batch)
    steps = -(-len(trainer.inputs) // trainer.batch)

    def augment() -> None:
        for batch in trainer.inputs.stream(batches):
            trainer._views(batch)

    augmentation = _timed(augment) * steps / len(batches)
    embedding = _timed(lambda: trainer.embed())
    z, logits = trainer.embed()
    graph = _timed(lambda: trainer.cleaner.step(z, logits))
    for _ in range(5):
        trainer._run_epoch()
    epoch = statistics.median(report.seconds for report in reports)
    cleaning = statistics.median(report.clean_seconds for report in reports)
    through = 2 * len(trainer.inputs) + 2 * reports[-1].selected
    found = {
        "samples": len(trainer.inputs),
        "selected": reports[-1].selected,
        "epoch": epoch,
        "cleaning": cleaning,
        "embedding": embedding,
        "graph": graph,
        "augmentation": augmentation,
        "network": epoch - cleaning - augmentation,
        "images": through,
        "images_per_second": through / (epoch - cleaning - augmentation),
    }
    print(found, flush=True)
    return found


def _grow(trainer: Trainer, cell: dict[str, np.ndarray]) -> list[dict[str, Any]]:
    """Epochs over other numbers of samples, drawn from the cell again with a little noise: none are equal."""
    rng = np.random.default_rng(0)
    found = []
    for n in GROWTH:
        rows = rng.integers(0, len(cell["labels"]), n)
        images = torch.as_tensor(cell["images"][rows]).to(trainer.device)
        noise = torch.randint(-3, 4, images.shape, device=trainer.device, dtype=torch.int16)
        trainer.inputs = ResidentInputs((images + noise).clamp_(0, 255).to(torch.uint8))
        trainer.labels = torch.as_tensor(cell["labels"][rows]).to(trainer.device).long()
        trainer.cleaner = GraphCleaner(trainer.labels, 10, trainer.graph)
        reports: list[Any] = []
        trainer.on_epoch = lambda report, _, reports=reports: reports.append(report)
        for _ in range(3):
            trainer._run_epoch()
        last = reports[-1]
        part = {
            "samples": n,
            "selected": last.selected,
            "epoch": last.seconds,
            "cleaning": last.clean_seconds,
        }
        print(part, flush=True)
        found.append(part)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    first = commands.add_parser("decode")
    first.add_argument("tables", type=Path, nargs="+")
    first.add_argument("--arrays", type=Path, required=True)
    second = commands.add_parser("run")
    second.add_argument("--arrays", type=Path, required=True)
    second.add_argument("--preset", default="cifar10-lond")
    second.add_argument("--split", choices=("test", "dev"), default="test")
    second.add_argument("--speed", action="store_true", help="measure the epochs after the run")
    second.add_argument("--name", required=True, help="name of the method in the result")
    second.add_argument("--seed", type=int, default=0)
    second.add_argument("--set", action="append", default=[])
    second.add_argument("--device", default="cuda")
    second.add_argument("--checkpoint", type=Path)
    second.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results")
    second.add_argument("--flat", action="store_true", help="one file straight in --out")
    options = parser.parse_args()
    if options.command == "decode":
        options.arrays.mkdir(parents=True, exist_ok=True)
        for table in options.tables:
            decode(table, options.arrays)
    else:
        run(options)


if __name__ == "__main__":
    main()
