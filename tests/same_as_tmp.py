"""Whether two versions of graphclean give the same numbers, on the CPU with one thread.

`python tests/same_as.py [OLD [NEW]]`, each a folder with the sources or a git revision. Everything goes
through the command line and the files it writes, so that modules and names in Python may move. Options,
settings, columns and files that are renamed on the way are listed in RENAMED, SPELLED and FILES.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from safetensors.torch import load_file
from sklearn.datasets import load_digits

BASELINE = "0288027"
"""The commit to compare with: the last one before the sources were put in order."""
ROOT = Path(__file__).parents[1]
PHOTOS = ROOT.parent / "shared" / "data" / "photos"
PARTS = ("train", "clean", "export", "tables")
SCORES_WITHIN, OUTPUTS_WITHIN = 1e-6, 1e-5
LISTED = 100000
SCORES = ("verdicts ", "summary ", "predictions ")
"""Fields whose numbers may differ by SCORES_WITHIN after training too; all others are the same to the bit."""

HOST = """
import json, os, runpy, sys
import pandas, pyarrow.parquet, safetensors.torch, scipy.sparse.csgraph, sklearn.neighbors, torch._dynamo

for line in sys.stdin:
    folder, printed, words = json.loads(line)
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        file = os.open(printed, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(file, 1)
        os.dup2(file, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.argv = ["graphclean", *words]
        runpy.run_module("graphclean", run_name="__main__", alter_sys=True)
        sys.exit()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Runs `python -m graphclean …` for each line it is given, every time in a process of its own. Libraries are
loaded once, before: they take five seconds, and most commands two. Nothing of graphclean itself is."""


class Now(NamedTuple):
    """A new name, and a text that is in the sources of a tree as long as it has the old one."""

    name: str
    sign: str


RENAMED: dict[str, Now] = {
    "learn.method=ce": Now("method.name=cross-entropy", "labels_from"),
    "learn.labels_from=features": Now("method.name=sampled-labels", "labels_from"),
    "learn.labels_from=graph": Now("method.name=ngc", "labels_from"),
    "learn.warmup=": Now("method.warmup_epochs=", "labels_from"),
    "learn.mixup=": Now("method.mixup_alpha=", "labels_from"),
    "learn.lambda_inst=": Now("method.lambda_inst=", "labels_from"),
    "learn.lambda_subgraph=": Now("method.lambda_subgraph=", "labels_from"),
    "learn.tau_inst=": Now("method.tau_inst=", "labels_from"),
    "learn.tau_subgraph=": Now("method.tau_subgraph=", "labels_from"),
    "learn.subgraph_positives=": Now("method.subgraph_positives=", "labels_from"),
    "learn.gate_from=": Now("method.ood_gate_start=", "labels_from"),
    "learn.batch_stats=separate": Now("method.joint_batch_norm=false", "labels_from"),
    "learn.batch_stats=together": Now("method.joint_batch_norm=true", "labels_from"),
    "graph.evidence=all": Now("graph.leave_one_out=false", "leave-own-out"),
    "graph.evidence=leave-own-out": Now("graph.leave_one_out=true", "leave-own-out"),
    "graph.unmix=": Now("graph.class_dependent_noise=", "unmix"),
    "learn.predict_by=both": Now("training.prototype_ensemble=true", "predict_by"),
    "learn.predict_by=classifier": Now("training.prototype_ensemble=false", "predict_by"),
    "learn.batch=": Now("training.batch_size=", "[learn]"),
    "learn.ramp=": Now("training.lr_warmup_epochs=", "[learn]"),
    "learn.lr_end=": Now("training.min_lr=", "[learn]"),
    "learn.noise=": Now("training.feature_noise_std=", "[learn]"),
    "learn.crop=": Now("training.crop_padding=", "[learn]"),
    "learn.flip=": Now("training.horizontal_flip=", "[learn]"),
    "learn.size=": Now("training.image_size=", "[learn]"),
    "learn.mirrored=": Now("training.flip_tta=", "[learn]"),
    "learn.augmix=off": Now("training.strong_augmentation=off", "augmix: AugMixVariant"),
    "learn.augmix=last-chain": Now("training.strong_augmentation=augmix-last-chain", "augmix: AugMixVariant"),
    "learn.": Now("training.", "[learn]"),
    "audit.judges=panel": Now("cleaning.classifier=knn+class-means", "[audit]"),
    "audit.": Now("cleaning.", "[audit]"),
    "--trusted": Now("--validation", "trusted: Annotated"),
}
"""Cases below have the old names. A key is a whole argument, the start of one that ends in `.` or `=`, or two
arguments with a space between."""
SPELLED = {
    "neighbour": "neighbor",
    "relabelled": "relabeled",
    "unlabelled": "unlabeled",
    "centre": "center",
    "panel": "class_means",
    "trusted_accuracy": "validation_accuracy",
    "labels_right": "label_accuracy",
    "labelled": "labeled",
    # Add a line for each column, verdict, tensor or key of JSON that changes its name.
}
"""Put in place of the old words in what either tree writes, before the two are compared."""
FILES = {
    # Add a new name behind the old one.
    "verdicts": ("verdicts.parquet",),
    "metrics": ("metrics.jsonl",),
    "summary": ("summary.json",),
    "model": ("model.safetensors",),
    "prototypes": ("prototypes.safetensors",),
}
"""The files of a run folder that are compared."""
TIMES = ("seconds", "memory")
"""Keys with one of these words in them are not compared."""

Arguments = tuple[str, ...]
Fields = dict[str, Any]


class Tree:
    """A version of graphclean: its sources, the folder with its results, and a process that runs it."""

    def __init__(self, title: str, source: Path, root: Path, renamed: dict[str, str]) -> None:
        self.title = title
        self.root = root
        self.renamed = renamed
        self._printed = source / "printed.txt"
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        self._host = subprocess.Popen(
            [sys.executable, "-c", HOST],
            env={**os.environ, **threads, "PYTHONPATH": str(source), "COLUMNS": "200"},
            cwd=source,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        """End its process."""
        self._host.communicate()

    def run(self, arguments: Arguments, folder: Path) -> str:
        """What a command prints; it runs in `folder`."""
        assert self._host.stdin is not None
        assert self._host.stdout is not None
        asked = (str(folder), str(self._printed), self.rename(arguments))
        self._host.stdin.write(json.dumps(asked) + "\n")
        self._host.stdin.flush()
        code = self._host.stdout.readline().strip()
        printed = self._printed.read_text(encoding="utf-8") if self._printed.exists() else ""
        if code != "0":
            last = printed.strip().splitlines()[-1:]
            raise RuntimeError(f"{self.title}: {arguments[0]}: {' '.join(last) or f'ended with {code}'}")
        return printed

    def rename(self, arguments: Arguments) -> list[str]:
        """The arguments in this tree's own words."""
        words = list(arguments)
        for old, new in self.renamed.items():
            first, *rest = old.split(" ")
            length = 1 + len(rest)
            for at in range(len(words) - len(rest)):
                if words[at : at + length] == [first, *rest]:
                    words[at : at + length] = new.split(" ")
                elif old[-1] in ".=" and words[at].startswith(old):
                    words[at] = new + words[at].removeprefix(old)
        return _without_others(words) if "method.name=cross-entropy" in words else words


def _without_others(words: list[str]) -> list[str]:
    """Cross-entropy has no settings but mixup, which is off unless it is asked for."""
    own = ("method.name=", "method.mixup_alpha=")
    gone = [at for at, word in enumerate(words) if word.startswith("method.") and not word.startswith(own)]
    kept = [word for at, word in enumerate(words) if at not in gone and at + 1 not in gone]
    mixed = any(word.startswith("method.mixup_alpha=") for word in kept)
    return kept if mixed else [*kept, "--set", "method.mixup_alpha=8"]


@dataclass(frozen=True)
class Case:
    """Commands to run in both trees, and what to compare of it."""

    name: str
    commands: tuple[Arguments, ...]
    read: Callable[[Path], Fields] | None
    """Of the folder it ran in; None: compare the table printed, in the tree's own root with its results."""
    within: float = 0.0
    """How far numbers may be apart; 0: not at all."""
    unlike: str | None = None
    """The case whose result must be another, or this one would show nothing about its setting."""
    leave: tuple[str, ...] = ()
    """Fields with one of these in their names differ on purpose."""


@dataclass
class Outcome:
    """What a tree made of a case."""

    fields: Fields = field(default_factory=dict)
    problem: str | None = None


# --- Trees ---


def open_tree(name: str, scratch: Path) -> Tree:
    """A copy of the sources of a folder or a revision, which no one edits meanwhile."""
    kept = scratch / f"tree-{len(list(scratch.glob('tree-*')))}"
    if (Path(name) / "src" / "graphclean").is_dir():
        root = Path(name).resolve()
        leave = shutil.ignore_patterns("__pycache__")
        shutil.copytree(root / "src", kept / "src", ignore=leave)
    else:
        root = kept
        packed = subprocess.run(["git", "-C", str(ROOT), "archive", name], capture_output=True)
        if packed.returncode != 0:
            sys.exit(f"{name}: neither a folder with src/graphclean nor a revision")
        with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive:
            archive.extractall(kept, filter="data")
    package = kept / "src" / "graphclean"
    files = [path for path in package.rglob("*") if path.suffix in (".py", ".toml")]
    text = "\n".join(f"{path.name}\n{path.read_text(encoding='utf-8')}" for path in files)
    renamed = {old: now.name for old, now in RENAMED.items() if now.sign not in text}
    return Tree(name, kept / "src", root, renamed)


# --- Reading what a run wrote ---


def spell(name: str) -> str:
    """A name in its new spelling, whichever it has."""
    for old, new in SPELLED.items():
        name = name.replace(old, new)
    return name


def find_file(run: Path, kind: str) -> Path:
    """A file of a run folder under its old or new name."""
    for name in FILES[kind]:
        if (run / name).is_file():
            return run / name
    raise RuntimeError(f"no {FILES[kind][0]} in the run folder")


def flatten(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The numbers and truth values in JSON, each with its place; texts may be worded anew."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not any(word in key for word in TIMES):
                yield from flatten(item, f"{path}.{spell(key)}" if path else spell(key))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from flatten(item, f"{path}[{place}]")
    elif isinstance(value, int | float):
        yield path, value


def read_table(path: Path) -> Fields:
    """The columns of a table, as arrays of numbers or of text."""
    table = pd.read_parquet(path)
    columns: Fields = {}
    for name in table.columns:
        values, new = table[name], spell(str(name))
        if pd.api.types.is_float_dtype(values):
            columns[new] = values.to_numpy(np.float64)
        else:
            texts = [str(list(value)) if isinstance(value, np.ndarray) else str(value) for value in values]
            columns[new] = np.array([spell(text) for text in texts] if new == "verdict" else texts)
    return columns


def read_run(run: Path) -> Fields:
    """Verdicts and the numbers of the summary."""
    verdicts = read_table(find_file(run, "verdicts"))
    summary = json.loads(find_file(run, "summary").read_text(encoding="utf-8"))
    fields = {f"verdicts {name}": column for name, column in verdicts.items()}
    fields |= {f"summary {name}": value for name, value in flatten(summary)}
    if "summary detector.zeta" in fields:  # on s(x), of which the score is the opposite
        fields["summary detector.threshold"] = 1 - fields.pop("summary detector.zeta")
    made = run.parent / "predictions.parquet"
    if made.is_file():
        fields |= {f"predictions {name}": column for name, column in read_table(made).items()}
    return fields


def read_trained(run: Path) -> Fields:
    """Likewise, with weights, prototypes and epochs."""
    fields = read_run(run)
    for kind in ("model", "prototypes"):
        tensors = load_file(find_file(run, kind))
        fields |= {f"{kind} {spell(name)}": tensor for name, tensor in tensors.items()}
    for line in find_file(run, "metrics").read_text(encoding="utf-8").splitlines():
        epoch = json.loads(line)
        fields |= {f"epoch {epoch['epoch']} {name}": value for name, value in flatten(epoch)}
    return fields


def read_export(model: Path, data: Path) -> Fields:
    """What the exported model says about the samples in `data`."""
    import onnxruntime  # type: ignore[import-untyped]

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(model), options)
    (wanted,) = session.get_inputs()
    with np.load(data) as arrays:
        inputs = next(arrays[name] for name in ("images", "features") if name in arrays)
    kind = {"tensor(uint8)": np.uint8, "tensor(float)": np.float32}[wanted.type]
    inputs = inputs.astype(kind)
    if len(wanted.shape) > inputs.ndim:
        inputs = inputs[:, None]
    outputs = session.run(None, {wanted.name: inputs})
    names = [spell(output.name) for output in session.get_outputs()]
    return {f"output {name}": np.asarray(output) for name, output in zip(names, outputs, strict=True)}


def read_rows(printed: str) -> list[str]:
    """The rows of a table, and its notes, without the names of cells and methods that order them."""
    rows = [line.strip("| ").split(" | ") for line in printed.splitlines() if line.startswith("| ")]
    named = re.compile(r"cifar\d|ngc|ours")
    kept = sorted(" | ".join(cell.strip() for cell in row if not named.search(cell)) for row in rows)
    notes = [line for line in printed.splitlines() if line and not line.startswith("|")]
    return [*kept, *sorted(re.sub(r"\S*(ours|ngc|cifar\d)\S*", "", note).strip() for note in notes)]


# --- Comparing ---


def compare(old: Fields, new: Fields, within: float) -> list[str]:
    """What differs, a line a field."""
    found = []
    for name, before in old.items():
        if name not in new:
            found.append(f"{name} is gone")
            continue
        close = max(within, SCORES_WITHIN) if name.startswith(SCORES) else within
        told = compare_field(before, new[name], close)
        if told is not None:
            found.append(f"{name}: {told}")
    return found


def compare_field(old: Any, new: Any, within: float) -> str | None:
    """How two values differ, or None."""
    if not isinstance(old, torch.Tensor | np.ndarray):
        old, new = np.asarray(old), np.asarray(new)
    elif isinstance(old, torch.Tensor):
        if old.dtype != new.dtype:
            return f"{old.dtype} became {new.dtype}"
        if old.shape == new.shape and torch.equal(old, new):
            return None
        old, new = old.double().numpy(), new.double().numpy()
    if old.shape != new.shape:
        return f"shape {old.shape} became {new.shape}"
    numbers = all(values.dtype.kind in "fiub" for values in (old, new))
    if numbers and "f" in (old.dtype.kind, new.dtype.kind):
        far = np.abs(old.astype(np.float64) - new.astype(np.float64))
        bad = ~((far <= within) | (old == new) | (np.isnan(old) & np.isnan(new)))
        worst = np.nan_to_num(far, nan=np.inf).max(initial=0, where=bad)  # NaN on one side alone
        return f"{bad.sum()} of {bad.size}, by up to {worst:.2g}" if bad.any() else None
    bad = old != new
    if not bad.any():
        return None
    first = np.flatnonzero(bad.reshape(-1))[0]
    return f"{bad.sum()} of {bad.size}, first {old.reshape(-1)[first]} became {new.reshape(-1)[first]}"


# --- Data ---


def make_data(folder: Path) -> None:
    """All the files that the cases read."""
    rng = np.random.default_rng(0)
    digits = load_digits()
    pixels = np.rint(digits.images * (255 / 16)).astype(np.uint8)
    features, true = digits.data.astype(np.float32), digits.target

    def mistaken(labels: Any, rate: float, classes: int) -> Any:
        wrong = rng.random(len(labels)) < rate
        return np.where(wrong, rng.integers(0, classes, len(labels)), labels)

    # As in the demo: 8s and 9s belong to no class, and have labels drawn at random.
    part = slice(0, 500)
    open_set = mistaken(np.where(true >= 8, rng.integers(0, 8, len(true)), true), 0.3, 8)
    images, labels = pixels[part], open_set[part]
    np.savez(folder / "images.npz", images=images, labels=labels)
    np.savez(folder / "new-images.npz", images=pixels[1500:])
    np.savez(folder / "embedded.npz", features=features[part], labels=labels)
    np.savez(folder / "new-embedded.npz", features=features[1500:])
    gaps = np.where(rng.random(len(labels)) < 0.2, -1, labels)
    np.savez(folder / "gaps.npz", images=images, labels=gaps)
    np.savez(folder / "embedded-gaps.npz", features=features[part], labels=gaps)
    known = np.flatnonzero(true < 8)[-200:]
    np.savez(folder / "trusted.npz", images=pixels[known], labels=true[known])
    # Easy classes and noise far from them, so that a gate closes after two epochs.
    easy = np.flatnonzero(true < 4)[:360]
    noise = rng.integers(0, 256, (120, 8, 8), dtype=np.uint8)
    strange = np.concatenate([pixels[easy], noise])
    guessed = mistaken(np.concatenate([true[easy], rng.integers(0, 4, len(noise))]), 0.15, 4)
    np.savez(folder / "strange.npz", images=strange, labels=guessed)
    np.savez(
        folder / "strange-embedded.npz", features=strange.reshape(-1, 64) / np.float32(16), labels=guessed
    )
    pair = np.isin(true, (3, 5))
    np.savez(folder / "two.npz", images=pixels[pair], labels=mistaken(true[pair] == 5, 0.3, 2).astype(int))
    confused = np.where(rng.random(len(true)) < 0.4, (true // 2) * 2, true)  # many a 7 is called a 6
    np.savez(folder / "confused.npz", images=pixels[part], labels=confused[part])
    tint = rng.uniform(0.3, 1, (160, 1, 1, 3))
    colored = (pixels[:160, :, :, None] * tint).astype(np.uint8)
    np.savez(folder / "colored.npz", images=colored, labels=open_set[:160])
    # For `clean`.
    noisy = mistaken(true, 0.3, 10)
    half = slice(0, 900)
    names = np.array([f"digit {label}" for label in noisy])
    columns = [f"f{place}" for place in range(features.shape[1])]
    ids = [f"n{place}" for place in range(len(true))]
    frame = pd.DataFrame(features, columns=columns).assign(id=ids, label=names)
    scattered = features + rng.normal(0, 0.5, features.shape)
    finer = pd.DataFrame(scattered, columns=columns).assign(label=names)
    keep = rng.random(len(true)) < 1 / (1 + true)  # few of the high digits
    np.savez(folder / "digits.npz", features=features, labels=noisy)
    np.savez(folder / "new-digits.npz", features=scattered[half])
    frame[keep].to_csv(folder / "imbalanced.csv", index=False)
    frame[~keep][:300].drop(columns="label").to_csv(folder / "new-imbalanced.csv", index=False)
    finer[half].to_csv(folder / "commas.csv", sep=";", decimal=",", index=False)
    finer[half].to_csv(folder / "tabs.tsv", sep="\t", index=False)
    listed = pd.DataFrame({"id": ids, "embedding": list(scattered), "label": names})
    listed[half].to_parquet(folder / "lists.parquet", index=False)
    for name, kind in (("f8", "<f8"), ("f16", "<f2"), ("big-endian", ">f4")):
        np.savez(folder / f"{name}.npz", features=scattered[half].astype(kind), labels=noisy[half])
    gap = rng.random(len(true)) < 0.2
    frame.assign(label=np.where(gap, "", names))[half].to_csv(folder / "gaps.csv", index=False)
    swapped = np.where(rng.random(pair.sum()) < 0.25, 8 - true[pair], true[pair])
    np.savez(folder / "two-features.npz", features=features[pair], labels=swapped)
    many = np.arange(2000) % 200
    centers = rng.normal(0, 1, (200, 48))
    np.savez(
        folder / "many.npz",
        features=(centers[many] + rng.normal(0, 0.5, (2000, 48))).astype(np.float32),
        labels=mistaken(many, 0.2, 200),
    )


# --- Cases ---


def train(
    name: str,
    data: str,
    *changes: str,
    preset: str | None = "small-images",
    unlike: str | None = "images",
    base: Arguments = (),
    more: Arguments = (),
    new: str | None = None,
    leave: tuple[str, ...] = (),
) -> Case:
    """Three epochs on `data`, the graph at work from the second; then predictions for `new`."""
    settings = ["learn.epochs=3", "learn.warmup=1", "learn.batch=64", "graph.k=10", *base, *changes]
    chosen = () if preset is None else ("--preset", preset)
    sets = [word for change in settings for word in ("--set", change)]
    commands = [("train", f"../../data/{data}", *chosen, *sets, *more, "--out", "run", *HERE)]
    if new is not None:
        commands.append(("predict", "run", f"../../data/{new}", "--out", "predictions.parquet", *HERE))
    read = lambda folder: read_trained(folder / "run")  # noqa: E731
    return Case(name, tuple(commands), read, unlike=unlike, leave=leave)


HERE = ("--device", "cpu", "--quiet")
SMALL = ("learn.crop=1", "learn.flip=false", "learn.gate_from=1", "graph.evidence=all")
STRANGE = (*SMALL, "learn.batch=16", "learn.mixup=0", "graph.geometry=false")
HEAD = ("learn.warmup=0",)
ON_GRAPH = ("learn.labels_from=graph", "graph.evidence=all", "learn.batch=16", "learn.mixup=0")
COLORED = ("learn.crop=1", "learn.batch=32", "learn.network=preact-resnet18")
SHOWN, FEATURES, NEW = "images.npz", "embedded.npz", "new-images.npz"
CE, FLIP = "learn.method=ce", "learn.flip=true"
WITHOUT_GRAPH = (
    *("selected", "confident", "empty_steps", "estimated_noise", "losses.inst", "losses.subgraph", "warmup"),
    *("prototypes", "detector"),
)
"""What cross-entropy had from a graph that it did not train by; it rejects by its largest probability now."""
FAITHFUL = ("",)
"""Every field: AugMix with one chain, and the passes through batch norm, were not the release's before."""
TRAIN = (
    train("images", SHOWN, unlike=None, base=SMALL, new=NEW),
    train("ce", SHOWN, CE, base=SMALL, leave=WITHOUT_GRAPH),
    train(
        "plain-ce",
        SHOWN,
        CE,
        "learn.mixup=0",
        "learn.augmix=off",
        base=SMALL,
        unlike="ce",
        leave=WITHOUT_GRAPH,
    ),
    train("seed", SHOWN, "learn.seed=1", base=SMALL),
    train("leave-own-out", SHOWN, "graph.evidence=leave-own-out", base=SMALL),
    train("no-mixup", SHOWN, "learn.mixup=0", base=SMALL),
    train("last-chain", SHOWN, "learn.augmix=last-chain", base=SMALL, leave=FAITHFUL),
    train("separate", SHOWN, "learn.batch_stats=separate", base=SMALL, leave=FAITHFUL),
    train("positives", SHOWN, "learn.subgraph_positives=paper", base=SMALL),
    train("both", SHOWN, "learn.predict_by=both", base=SMALL, new=NEW),
    train("flip", SHOWN, FLIP, base=SMALL, new=NEW),
    train("mirrored", SHOWN, FLIP, "learn.mirrored=true", base=SMALL, new=NEW, unlike="flip"),
    train("paper", SHOWN, "learn.network=small-conv", preset="paper", base=SMALL),
    train("no-geometry", SHOWN, "graph.geometry=false", base=SMALL),
    train("no-correction", SHOWN, "graph.correct=false", base=SMALL),
    train("unlabeled", "gaps.npz", base=SMALL),
    train("trusted", SHOWN, base=SMALL, more=("--trusted", "../../data/trusted.npz")),
    train("two-classes", "two.npz", base=SMALL),
    train("confused", "confused.npz", base=SMALL),
    train("unmix", "confused.npz", "graph.unmix=true", base=SMALL, unlike="confused"),
    train("strange", "strange.npz", base=STRANGE),
    train("gate", "strange.npz", "learn.gate_from=0.33", base=STRANGE, unlike="strange"),
    train("heads", FEATURES, preset=None, base=HEAD, unlike=None, new="new-embedded.npz"),
    train("heads-unlabeled", "embedded-gaps.npz", preset=None, base=HEAD, unlike="heads"),
    train("heads-on-graph", FEATURES, preset=None, base=ON_GRAPH, unlike="heads"),
    train("heads-strange", "strange-embedded.npz", preset=None, base=ON_GRAPH, unlike="heads"),
    train(
        "heads-gate",
        "strange-embedded.npz",
        "learn.gate_from=0.33",
        preset=None,
        base=ON_GRAPH,
        unlike="heads-strange",
    ),
    train("colored", "colored.npz", preset="cifar10-lond", base=COLORED, unlike=None),
    train("release", "colored.npz", preset="release", base=COLORED, unlike="colored", leave=FAITHFUL),
)


def clean(name: str, data: str, new: str, *changes: str, unlike: str | None = None) -> Case:
    """Verdicts on `data`, and predictions for `new`."""
    sets = [word for change in changes for word in ("--set", change)]
    old, later = (path if Path(path).is_absolute() else f"../../data/{path}" for path in (data, new))
    commands = (
        ("clean", old, *sets, "--out", "run", *HERE),
        ("predict", "run", later, "--out", "predictions.parquet", *HERE),
    )
    return Case(name, commands, lambda folder: read_run(folder / "run"), SCORES_WITHIN, unlike)


CLEAN = (
    clean("digits", "digits.npz", "new-digits.npz"),
    clean("panel", "digits.npz", "new-digits.npz", "audit.judges=panel", unlike="digits"),
    clean("imbalanced", "imbalanced.csv", "new-imbalanced.csv"),
    clean("decimal-commas", "commas.csv", "commas.csv"),
    clean("tabs", "tabs.tsv", "tabs.tsv"),
    clean("lists", "lists.parquet", "lists.parquet"),
    clean("f8", "f8.npz", "f8.npz"),
    clean("f16", "f16.npz", "f16.npz", unlike="f8"),
    clean("big-endian", "big-endian.npz", "big-endian.npz"),
    clean("gaps", "gaps.csv", "gaps.csv"),
    clean("two", "two-features.npz", "two-features.npz"),
    clean("many-classes", "many.npz", "many.npz"),
    clean("photos", str(PHOTOS / "train"), str(PHOTOS / "test")),
)


def export(made: Case, data: str, name: str) -> Case:
    """The run of another case as ONNX, and what that says."""
    commands = (made.commands[0], ("export", "run", "--out", "model.onnx", "--quiet"))

    def read(folder: Path) -> Fields:
        return read_export(folder / "model.onnx", folder.parents[1] / "data" / data)

    return Case(name, commands, read, OUTPUTS_WITHIN)


EXPORT = (
    export(CLEAN[0], "digits.npz", "export-clean"),
    export(next(case for case in TRAIN if case.name == "both"), "images.npz", "export-train"),
    export(next(case for case in TRAIN if case.name == "heads"), "embedded.npz", "export-heads"),
)


def table_cases(old: Tree, new: Tree) -> list[Case]:
    """A case a table; the names are in the same order in both trees, and new ones stand at the end."""
    names = [tree.run(("bench", "table"), tree.root).split() for tree in (old, new)]
    if len(names[1]) < len(names[0]):
        sys.exit(f"tables: {', '.join(names[0])} became {', '.join(names[1])}")
    for before, after in zip(*names, strict=False):
        if before != after:
            new.renamed[before] = after
    return [Case(name, (("bench", "table", name),), None) for name in names[0]]


def skipped(case: Case) -> str | None:
    """Why a case can't be run here."""
    if case.name == "photos" and not (PHOTOS / "train").is_dir():
        return f"no {PHOTOS / 'train'}"
    if case in EXPORT and not all(map(find_spec, ("onnx", "onnxruntime"))):
        return "onnxruntime is not installed"
    return None


# --- Running ---


def carry_out(case: Case, tree: Tree, folder: Path) -> Outcome:
    """Run a case in one tree."""
    try:
        if case.read is None:
            printed = "".join(tree.run(command, tree.root) for command in case.commands)
            rows = read_rows(printed)
            return Outcome({"rows": np.array(rows)} if rows else {})
        folder.mkdir(parents=True)
        for command in case.commands:
            tree.run(command, folder)
        return Outcome(case.read(folder))
    except (RuntimeError, OSError) as error:
        return Outcome(problem=str(error))


def judge(case: Case, old: Outcome, new: Outcome, base: Outcome | None) -> tuple[bool, str]:
    """Whether a case is in order, and the line that says so."""
    for outcome in (old, new):
        if outcome.problem is not None:
            return False, f"FAILED: {outcome.problem}"
    kept = {name: old.fields[name] for name in old.fields if not any(word in name for word in case.leave)}
    differs = compare(kept, new.fields, case.within)
    if differs:
        more = f"; and {len(differs) - LISTED} more fields" if len(differs) > LISTED else ""
        return False, f"DIFFERS: {'; '.join(differs[:LISTED])}{more}"
    told = f"same ({len(kept)} fields)"
    if case.read is None:
        told = f"same ({len(old.fields.get('rows', ()))} rows)"
    added = sorted(new.fields.keys() - old.fields.keys())
    if added:
        told += f", new: {', '.join(added[:3])}"
    if base is not None and base.problem is None:
        apart = sorted({line.split(" ")[0] for line in compare(old.fields, base.fields, case.within)})
        if not apart:
            return False, f"IDLE: as {case.unlike}, so its setting does nothing here"
        told += f", unlike {case.unlike}: {', '.join(apart)}"
    return True, told


def compare_trees(cases: list[Case], old: Tree, new: Tree, scratch: Path) -> int:
    """Run all cases in both trees at a time, a line each; how many are not in order."""
    wrong = 0
    done: dict[str, Outcome] = {}
    with ThreadPoolExecutor(2) as pool:
        for case in cases:
            why = skipped(case)
            if why is not None:
                print(f"{case.name:18} skipped: {why}", flush=True)
                continue
            began = time.monotonic()
            places = ((old, scratch / "old" / case.name), (new, scratch / "new" / case.name))
            started = [pool.submit(carry_out, case, tree, place) for tree, place in places]
            before, after = (outcome.result() for outcome in started)
            done[case.name] = before
            good, told = judge(case, before, after, done.get(case.unlike or ""))
            wrong += not good
            print(f"{case.name:18} {time.monotonic() - began:3.0f} s  {told}", flush=True)
    return wrong


def choose(cases: list[Case], only: list[str] | None) -> list[Case]:
    """The cases that were named, and those they are compared with."""
    if only is None:
        return cases
    unknown = set(only) - {case.name for case in cases}
    if unknown:
        there = ", ".join(case.name for case in cases)
        sys.exit(f"no case {', '.join(sorted(unknown))}; there are {there}")
    wanted = set(only) | {case.unlike for case in cases if case.name in only}
    return [case for case in cases if case.name in wanted]


def main() -> int:
    """Run the cases, and say of each whether it is the same."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("old", nargs="?", default=BASELINE, help="folder or revision (default: %(default)s)")
    parser.add_argument("new", nargs="?", default=str(ROOT), help="likewise (default: this checkout)")
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS, help="which parts (default: all)")
    parser.add_argument("--only", nargs="+", metavar="CASE", help="which cases (default: all)")
    asked = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="same_as-") as name, ExitStack() as stack:
        scratch = Path(name)
        old, new = open_tree(asked.old, scratch), open_tree(asked.new, scratch)
        stack.callback(old.close)
        stack.callback(new.close)
        cases: list[Case] = []
        for part, listed in (("train", TRAIN), ("clean", CLEAN), ("export", EXPORT)):
            cases += listed if part in asked.part else ()
        if "tables" in asked.part:
            cases += table_cases(old, new)
        cases = choose(cases, asked.only)
        (scratch / "data").mkdir()
        make_data(scratch / "data")
        wrong = compare_trees(cases, old, new, scratch)
    print(f"{len(cases) - wrong} of {len(cases)} cases in order, {time.monotonic() - began:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
