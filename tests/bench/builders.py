"""A data root and cells that train in a second or two."""

from pathlib import Path
from typing import Any

import numpy as np

from graphclean.bench.cells import CELLS, Cell, make_method
from graphclean.bench.noise import CIFAR10_CLASSES
from graphclean.bench.runner import Job
from tests.data.builders import write_table

TRAIN, TEST, POOL = 150, 40, 60
MIXED = Cell(
    "cifar10/tinyimagenet/tiny", "cifar10", "cifar10-lond", ood="tinyimagenet", n_ood=40, n_eval_ood=20
)
WRONG = Cell("cifar10/symtiny", "cifar10", "cifar10-lcnl", rate=0.2)
QUICK = (
    "training.network=small-conv", "training.epochs=3", "training.batch_size=64",
    "training.strong_augmentation=off",
    "graph.k=5",
    "method.warmup_epochs=1",
)  # fmt: skip


def job(cell: Cell = MIXED, split: Any = "test", **options: Any) -> Job:
    """A quick run of a cell with seed 0."""
    return Job(cell, make_method(cell, QUICK, **options), 0, split)


def stripes(labels: np.ndarray, seed: int) -> np.ndarray:
    """Images whose color and stripes tell their class, with noise."""
    rng = np.random.default_rng(seed)
    images = rng.normal(0, 12, (len(labels), 3, 32, 32))
    rows = np.arange(32)
    for image, label in zip(images, labels, strict=True):
        wave = 50 * np.sin((label + 1) * rows / 5)
        image += 90 + 14 * np.array([label, 9 - label, label % 3 * 4])[:, None, None]
        image += wave[:, None] if label % 2 else wave
    return images.clip(0, 255).astype(np.uint8)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a result, by the path of its JSON."""
    with np.load(path.with_suffix(".npz"), allow_pickle=False) as file:
        return dict(file)


def write_root(root: Path) -> Path:
    """CIFAR-10 and a pool of TinyImageNet, as parquet tables."""
    for split, count in (("train", TRAIN), ("test", TEST)):
        labels = np.arange(count) % 10
        path = root / "cifar10" / f"{split}-00000-of-00001.parquet"
        write_table(path, stripes(labels, count), labels, names=CIFAR10_CLASSES)
    noise = np.random.default_rng(5).integers(0, 256, (POOL, 3, 4, 4), dtype=np.uint8)
    blocks = noise.repeat(8, axis=2).repeat(8, axis=3)
    write_table(root / "tinyimagenet" / "pool-00000-of-00001.parquet", blocks, np.zeros(POOL, int))
    return root


def register() -> None:
    """Make the small cells known, in a process of their own."""
    CELLS.update({cell.name: cell for cell in (MIXED, WRONG)})
