"""Recording of benchmarks, and how the docs present them."""

import argparse
import json
import os
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from graphclean.bench.machine import machine

RESULTS = Path(__file__).parent / "results"
IMAGES = Path(__file__).parents[1] / "docs" / "images"
THREADS = 2
LOCAL = {"--data-root": ["--data-root", "DATA"], "--cache": []}
"""Options whose value is a local path, and how a record shows them."""


@dataclass(frozen=True)
class Section:
    """A benchmark on its two pages."""

    title: str
    shown: str
    """For the page of benchmarks: a chart and what it shows; empty if the tables are enough."""
    numbers: str
    """For the page of tables: how it was measured, and all numbers."""


def data_root(given: str | None) -> Path | None:
    """The given data root, or the one in the environment."""
    root = given or os.environ.get("GRAPHCLEAN_DATA")
    return Path(root) if root else None


def feature_options(description: str | None, threads: int) -> argparse.ArgumentParser:
    """The options of a benchmark on embeddings of a data root's images."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data-root")
    parser.add_argument("--cache", type=Path, default=Path("runs/benchmark-features"))
    parser.add_argument("--threads", type=int, default=threads)
    return parser


def parse_feature_options(parser: argparse.ArgumentParser) -> tuple[argparse.Namespace, Path]:
    """The options and the data root, with the threads set and the cache folder made."""
    args = parser.parse_args()
    root = data_root(args.data_root)
    if root is None:
        parser.error("name a data root with --data-root or GRAPHCLEAN_DATA")
    torch.set_num_threads(args.threads)
    args.cache.mkdir(parents=True, exist_ok=True)
    return args, root


def save(name: str, result: dict[str, Any], folder: Path = RESULTS) -> Path:
    """Write a result with its machine, and the command that measures it again.

    A result of several commands contains its own `command`, which replaces that of this process.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    head = {"machine": machine(), "command": command(sys.argv)}
    path.write_text(json.dumps({**head, **result}, indent=1) + "\n")
    return path


def command(argv: list[str]) -> str:
    """The command line of a script without local paths, with DATA for the data root."""
    parts, given = ["python", f"benchmarks/{Path(argv[0]).name}"], iter(argv[1:])
    for part in given:
        option, _, value = part.partition("=")
        if option in LOCAL:
            if not value:
                next(given, None)
            parts += LOCAL[option]
        else:
            parts.append(part)
    return shlex.join(parts)


def with_measured(page: str, blocks: dict[str, str]) -> str:
    """Replace the measured blocks of a page, each between the markers with its name."""
    for name, block in blocks.items():
        opening, closing = f"<!-- measured{name}: made by benchmarks/tables.py -->", "<!-- /measured -->"
        before, rest = page.split(opening, 1)
        page = f"{before}{opening}\n{block}\n{closing}{rest.split(closing, 1)[1]}"
    return page


def load(name: str) -> dict[str, Any] | None:
    """A recorded result, or None if it was not run."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def shown(chart: str, alt: str) -> str:
    """A chart of charts.py in Markdown; empty if nothing was recorded to draw it from."""
    return f"![{alt}](images/{chart}.svg)\n" if (IMAGES / f"{chart}.svg").exists() else ""


def note_scorings(scorings: list[dict[str, Any]]) -> Path:
    """Append to the list of all scorings of the photos."""
    earlier = load("scorings") or {"scorings": []}
    made_by = (f"python benchmarks/{script}.py --data-root DATA" for script in ("audit", "embedders"))
    return save("scorings", {"command": " && ".join(made_by), "scorings": [*earlier["scorings"], *scorings]})


def seconds(value: float) -> str:
    """A time with three significant digits, in ms below a second."""
    return f"{value:.3g} s" if value >= 1 else f"{1000 * value:.3g} ms"


def describe(result: dict[str, Any], *, gpu: bool = False) -> str:
    """The machine and versions of a measurement."""
    m = result["machine"]
    device = m["gpu"] if gpu else f"{m['cpu']}, {m['threads']} thread{'s' if m['threads'] > 1 else ''}"
    return f"{device}; Python {m['python']}, torch {m['packages']['torch']}; {when(m)}."


def when(machine: dict[str, Any]) -> str:
    """The date of a measurement, and its commit if known."""
    commit = machine["commit"]
    return f"{machine['time'][:10]}, commit {f'`{commit[:10]}`' if commit else 'not recorded'}"


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """The result of `work` and its time in seconds."""
    start = time.perf_counter()
    result = work()
    return result, time.perf_counter() - start


def cpu_timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """The result of `work` and the CPU seconds of this process and its children, whatever else runs."""
    start = _cpu_seconds()
    result = work()
    return result, _cpu_seconds() - start


def _cpu_seconds() -> float:
    used = os.times()
    return time.process_time() + used.children_user + used.children_system
