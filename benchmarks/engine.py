"""Train a preset on CIFAR-10 with wrong labels and TinyImageNet among it; record times and scores.

Once, from parquet tables to arrays, then any number of runs:

    python benchmarks/engine.py decode DATA/cifar10/*.parquet DATA/tinyimagenet32/*.parquet --arrays DIR
    python benchmarks/engine.py run --arrays DIR --name ngc-60-epochs --set learn.epochs=60
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
from graphclean.learn import Trainer
from graphclean.ood import prototype_similarity
from graphclean.ood.thresholds import auto_threshold

CELL = "cifar10--tinyimagenet--20k"
TRAIN_OOD, TEST_OOD, NOISE = 20_000, 10_000, 0.5


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


def make_cell(arrays: Path, seed: int) -> dict[str, np.ndarray]:
    """Half of the 50,000 labels drawn anew, 20,000 images of no class added, 10,000 more to the test set."""
    rng = np.random.default_rng(seed)
    parts = [np.load(arrays / f"train-0000{i}-of-00002.npz") for i in range(2)]
    images, truth = (np.concatenate([part[key] for part in parts]) for key in ("images", "labels"))
    test, pool = np.load(arrays / "test-00000-of-00001.npz"), np.load(arrays / "pool-00000-of-00001.npz")
    labels = truth.copy()
    chosen = rng.choice(len(labels), round(NOISE * len(labels)), replace=False)
    labels[chosen] = rng.integers(0, 10, len(chosen))
    order = rng.permutation(len(pool["images"]))
    inside, outside = order[:TRAIN_OOD], order[TRAIN_OOD : TRAIN_OOD + TEST_OOD]
    return {
        "images": np.concatenate([images, pool["images"][inside]]),
        "labels": np.concatenate([labels, rng.integers(0, 10, TRAIN_OOD)]),
        "truth": np.concatenate([truth, np.full(TRAIN_OOD, -1)]),
        "test_images": np.concatenate([test["images"], pool["images"][outside]]),
        "test_truth": np.concatenate([test["labels"], np.full(TEST_OOD, -1)]),
    }


def run(options: argparse.Namespace) -> None:
    """Train, score the last epoch once, and write one JSON."""
    settings = [f"learn.seed={options.seed}", *options.set]
    config = apply_settings(load_preset(options.preset), settings, sections=("graph", "learn"))
    device = torch.device(options.device)
    cell = make_cell(options.arrays, options.seed)
    epochs: list[dict[str, Any]] = []

    def watch(report: Any, cleaned: Any) -> None:
        found = score_cleaning(cleaned.labels.cpu().numpy(), cleaned.selected.cpu().numpy(), cell["truth"])
        epochs.append({**asdict(report), "cleaning": asdict(found)})
        if report.epoch % 5 == 0 or report.epoch <= 2:
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
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (f"{options.seed}.json" if not options.flat else f"{options.name}-{options.seed}.json")
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(path, scores["auto"], asdict(final), f"{seconds:.0f} s", flush=True)


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
