"""The commands under attack, and how to check that each has done its work."""

import hashlib
import io
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from PIL import Image

from graphclean._files import write_json
from graphclean.data.digits import noisy_digits
from graphclean.runs.decisions import read_decisions, settle
from graphclean.runs.folder import write_config, write_env, write_table

from . import children

EPOCHS = (
    "training.epochs=2",
    "method.warmup_epochs=1",
    "training.batch_size=64",
    "graph.k=8",
    "cleaning.k=10,20",
)
TRAIN = ("--preset", "demo", *(word for setting in EPOCHS for word in ("--set", setting)))
FAST = ("training.epochs=1", "training.batch_size=600", "graph.k=8", "cleaning.k=10")
DEMO = tuple(word for setting in FAST for word in ("--set", setting))
K = ("--set", "cleaning.k=5")
DATA = ("z.npz", "digits.npz", "photos", "saved")
VERDICTS = ("verdicts.parquet", "verdicts.csv")
MODEL = ("model.safetensors", "points.safetensors")


@dataclass(frozen=True)
class Job:
    """A command, and the one that resumes it after an interruption."""

    name: str
    words: tuple[str, ...]
    again: tuple[str, ...]
    results: Callable[[Path], Any]
    """Results that must be identical to the bit, however often the job was interrupted."""
    replaced: str | None = None
    """The run that is replaced: a complete one, old or new, must always exist."""


def _files(*names: str) -> Callable[[Path], Any]:
    return lambda folder: {name: _digest(folder / name) for name in names}


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _tree(name: str) -> Callable[[Path], Any]:
    def read(folder: Path) -> Any:
        found = sorted(path for path in (folder / name).rglob("*") if path.name != ".graphclean.json")
        return {
            str(path.relative_to(folder)): str(path.readlink()).rpartition("/photos/")[2]
            if path.is_symlink()
            else _digest(path)
            if path.is_file()
            else ""
            for path in found
        }

    return read


def _trained(folder: Path, name: str = "run") -> Any:
    run = folder / name
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    epochs = [{key: value for key, value in line.items() if not key.endswith("seconds")} for line in lines]
    listed = sorted(path.name for path in run.iterdir())
    return _files(*(f"{name}/{file}" for file in (*VERDICTS, *MODEL)))(folder), epochs, listed


def _shown(folder: Path) -> Any:
    run = folder / "demo"
    scores = json.loads((run / "scores.json").read_text())
    for method in ("ce", "ngc"):
        del scores[method]["seconds"]
    with np.load(run / "digits.npz") as digits:  # an archive holds the time at which it was made
        content = {name: hashlib.sha256(digits[name].tobytes()).hexdigest() for name in digits.files}
    listed = sorted(path.name for path in run.iterdir())
    return _files(*(f"demo/{name}" for name in (*VERDICTS, *MODEL)))(folder), scores, content, listed


def _rows(folder: Path) -> Any:
    """Not the bytes: a mark in the file tells by the photos' place and times whether they changed."""
    return pq.read_table(folder / "judged/hf.parquet").to_pylist()


def _settled(folder: Path) -> Any:
    decisions = settle(read_decisions(folder / "cleaned/decisions.jsonl"))
    return sorted((row, decision.label) for row, decision in decisions.items())


RUN = _files(*(f"run/{name}" for name in (*VERDICTS, *MODEL)))
CLEAN = ("clean", "z.npz", "--out", "run", *K, "--quiet", "--overwrite")
COPY = ("apply", "judged", "--copy", "--out", "c", "--overwrite", "--quiet")
UPDATE = ("apply", "judged", "--link", "--out", "older-copy", "--overwrite", "--quiet")
PREDICT = ("predict", "cleaned", "z.npz", "--quiet", "--overwrite")
SAVED = (
    "train",
    "saved:train",
    "--preset",
    "photos",
    *(
        word
        for setting in (
            "training.network=small-conv",
            "training.image_size=8",
            "training.crop_padding=1",
            "training.epochs=1",
            *EPOCHS[1:],
        )
        for word in ("--set", setting)
    ),
    "--out",
    "hub",
    "--quiet",
)
SAVED_COPY = ("apply", "from-saved", "--copy", "--out", "c.parquet", "--overwrite", "--quiet")
RERUN = ("clean", "cleaned", "--out", "rerun", *K, "--quiet", "--overwrite")
HUB_TABLE = ("apply", "judged", "--format", "hf", "--overwrite", "--quiet")
TASKS = ("apply", "judged", "--format", "label-studio", "--overwrite", "--quiet")
EXPORT = ("export", "cleaned", "--quiet", "--overwrite")
MERGE = ("review", "cleaned", "--merge", "theirs.jsonl", "--quiet")
JOBS = (
    Job("clean", CLEAN, CLEAN, RUN),
    Job(
        "clean --overwrite",
        ("clean", "z.npz", "--out", "older", *K, "--quiet", "--overwrite"),
        ("clean", "z.npz", "--out", "older", *K, "--quiet", "--overwrite"),
        _files(*(f"older/{name}" for name in (*VERDICTS, *MODEL))),
        replaced="older",
    ),
    Job(
        "train",
        ("train", "digits.npz", *TRAIN, "--out", "run", "--quiet"),
        ("train", "digits.npz", *TRAIN, "--out", "run", "--quiet", "--resume"),
        _trained,
    ),
    Job("predict", PREDICT, PREDICT, _files("cleaned/predictions/z.csv")),
    Job(
        "apply",
        ("apply", "judged", "--overwrite", "--quiet"),
        ("apply", "judged", "--overwrite", "--quiet"),
        _files("judged/cleaned.csv"),
    ),
    Job("apply --copy", COPY, COPY, _tree("c")),
    Job("apply --link, an update", UPDATE, UPDATE, _tree("older-copy")),
    Job(
        "report",
        ("report", "cleaned", "--quiet"),
        ("report", "cleaned", "--quiet"),
        _files("cleaned/report.html"),
    ),
    Job("review --merge", MERGE, MERGE, _settled),
    Job(
        "demo",
        ("demo", "--out", "demo", *DEMO, "--quiet"),
        ("demo", "--out", "demo", *DEMO, "--quiet", "--overwrite"),
        _shown,
    ),
    Job("train, a saved data set", SAVED, (*SAVED, "--resume"), lambda folder: _trained(folder, "hub")),
    Job("apply --copy, a saved data set", SAVED_COPY, SAVED_COPY, _files("c.parquet")),
    Job("clean RUN", RERUN, RERUN, _files(*(f"rerun/{name}" for name in (*VERDICTS, *MODEL, "changes.csv")))),
    Job("apply --format hf", HUB_TABLE, HUB_TABLE, _rows),
    Job(
        "apply --format label-studio",
        TASKS,
        TASKS,
        _files("judged/label-studio.json", "judged/label-studio.xml"),
    ),
    Job("export", EXPORT, EXPORT, _files("cleaned/model.onnx", "cleaned/model.md")),
)

CLASSES = ["ant", "cat", "dog"]
ROWS = [
    ("cat/1.png", "cat", "cat", "keep", 0.98, 0.01, True),
    ("cat/2.png", "cat", "dog", "relabel", 0.92, 0.05, True),
    ("cat/deep/1.png", "cat", "cat", "keep", 0.9, 0.02, True),
    ("dog/1.png", "dog", "cat", "ood", 0.93, 0.93, False),
    ("dog/2.png", "dog", "dog", "uncertain", 0.45, 0.2, False),
    ("dog/3.png", "dog", "ant", "relabel", 0.99, 0.01, True),
]


def lay_out(base: Path) -> None:
    """Create the data, and the files that commands expect next to it."""
    base.mkdir(parents=True)
    rng = np.random.default_rng(0)
    labels = np.repeat(np.array(["cat", "dog", "emu"]), 24)
    z = rng.normal(size=(72, 6)) + 3 * np.eye(3, 6)[np.repeat(np.arange(3), 24)]
    labels[::9] = rng.permutation(labels)[::9]
    np.savez(base / "z.npz", z=z.astype(np.float32), y=labels)
    digits = noisy_digits(noise=0.3)
    np.savez(base / "digits.npz", images=digits.images[:128], labels=digits.labels[:128])
    for number, row in enumerate(ROWS):
        path = base / "photos" / row[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (12, 10 + number, 3), dtype=np.uint8)).save(path)
    _judge(base / "judged", [row if row[3] != "relabel" else (*row[:3], "keep", *row[4:]) for row in ROWS])
    _must(("apply", "judged", "--copy", "--out", "older-copy", "--quiet"), base)
    shutil.rmtree(base / "judged")
    _judge(base / "judged", ROWS)
    labels = _save_data_set(base / "saved")
    rows = [(str(row), label, *ROWS[row % 6][2:]) for row, label in enumerate(labels)]
    _judge(base / "from-saved", rows, "saved:train")
    _must(("clean", "z.npz", "--out", "cleaned", *K, "--quiet"), base)
    _must(("clean", "z.npz", "--out", "older", "--set", "cleaning.k=6", "--quiet"), base)
    lines = [
        {"row": row, "id": str(row), "kind": "label", "label": "emu", "time": f"2026-01-01T00:00:{row:02}"}
        for row in range(9)
    ]
    (base / "theirs.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def _save_data_set(folder: Path) -> list[str]:
    """Photos in the form in which the library of the Hugging Face hub saves them; their labels."""
    import datasets

    rng = np.random.default_rng(1)
    features = datasets.Features(image=datasets.Image(), label=datasets.ClassLabel(names=CLASSES))
    cells = []
    for row in range(72):
        pixels, buffer = rng.integers(0, 100, (8, 8, 3), dtype=np.uint8), io.BytesIO()
        pixels[..., row % 3] += 120
        Image.fromarray(pixels).save(buffer, "png")
        cells.append({"bytes": buffer.getvalue(), "path": None})
    labels = [CLASSES[(row if row % 9 else row + 1) % 3] for row in range(72)]
    datasets.disable_progress_bars()
    whole = datasets.Dataset.from_dict({"image": cells, "label": labels}, features=features)
    datasets.DatasetDict(train=whole).save_to_disk(str(folder))
    return labels


def _judge(run: Path, rows: list[tuple[Any, ...]], data: str = "photos") -> None:
    """Create a run on photos without embedding them."""
    run.mkdir()
    names = ["id", "given_label", "proposed_label", "verdict", "confidence", "ood_score", "selected"]
    table = pd.DataFrame(rows, columns=names)
    table = table.assign(label_quality=table["confidence"], neighbors=[[] for _ in rows])
    write_config(run, "clean", {"data": data, "kind": "photos", "embedder": "efficientnet-lite0"}, {})
    write_env(run, "0")
    write_json(run / "summary.json", {})
    write_table(table, run / "verdicts")


def _must(words: tuple[str, ...], base: Path) -> None:
    done = children.run(words, base)
    if done.code != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.err}")


def data_of(folder: Path) -> dict[str, str]:
    """Digests of the original data, which no command may modify."""
    places = [
        path for name in DATA for path in ((folder / name), *(folder / name).rglob("*")) if path.is_file()
    ]
    return {str(path.relative_to(folder)): _digest(path) for path in places}
