"""`clean` from a hundred thousand samples to ten million: time by stage, peak memory, recall, agreement.

python benchmarks/scale.py --case 1m-clustered      # one case; every case adds to results/scale-cpu.json
python benchmarks/scale.py --list
"""

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from common import RESULTS, THREADS, load, save
from graph import GENERATOR, make_points
from graphclean.bench.machine import machine

K, CLASSES, WRONG, BLOCK, EXACT_ROWS = 30, 10, 0.3, 2**18, 2000
SIZES = {"100k": 100_000, "300k": 300_000, "1m": 1_000_000, "3m": 3_000_000, "10m": 10_000_000}
KINDS = ("clustered", "loose")
PART = 100_000
RESULT = "scale-cpu"
EXACT_PART, EXACT_QUERIES = 500_000, 4096


def threads() -> int:
    """Threads to measure with: OMP_NUM_THREADS, else as in all benchmarks."""
    return int(os.environ.get("OMP_NUM_THREADS", THREADS))


def cases() -> list[str]:
    """All cases by name."""
    sizes = [f"{size}-{kind}" for size in SIZES for kind in KINDS]
    return [*sizes, "1m-classes", *(f"agreement-{kind}" for kind in KINDS), "search-exact",
            *(f"search-approx-{kind}" for kind in KINDS)]  # fmt: skip


def write_data(folder: Path, n: int, kind: str, classes: int) -> None:
    """Points as in graph.py, float16 in a .npy, block by block, and their labels, of which some are wrong."""
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((GENERATOR["centers"], GENERATOR["dimensions"]), dtype=np.float32)
    shape = n, GENERATOR["dimensions"]
    points = np.lib.format.open_memmap(folder / "points.npy", "w+", dtype=np.float16, shape=shape)
    labels = np.empty(n, dtype=np.int64)
    for start in range(0, n, BLOCK):
        rows = np.arange(start, min(start + BLOCK, n))
        own = rows % GENERATOR["centers"]
        noise = rng.standard_normal((len(rows), GENERATOR["dimensions"]), dtype=np.float32)
        block = centers[own] + GENERATOR["spread"][kind] * noise
        points[rows] = block / np.linalg.norm(block, axis=1, keepdims=True)
        wrong = rng.random(len(rows)) < WRONG
        labels[rows] = np.where(wrong, rng.integers(0, classes, len(rows)), own % classes)
    points.flush()
    np.save(folder / "labels.npy", labels)


class Stages:
    """Seconds between the stages that a run reports."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.now, self.since = "reading", time.perf_counter()

    def __call__(self, stage: str, *_: int) -> None:
        if stage != self.now:
            self.end(stage)

    def end(self, following: str = "") -> None:
        now = time.perf_counter()
        self.seconds[self.now] = self.seconds.get(self.now, 0.0) + now - self.since
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"{self.now}: {now - self.since:.1f} s, peak {peak:.2f} GiB", file=sys.stderr, flush=True)
        self.now, self.since = following, now


def run_case(folder: Path) -> dict[str, Any]:
    """`clean` on the data in a folder, in this process and nothing else in it."""
    from graphclean.cleaning import nodes
    from graphclean.config import CleaningSettings, Config
    from graphclean.runs.clean import clean

    kept: list[Any] = []
    search = nodes.approximate_neighbors

    def keeping(*args: Any, **named: Any) -> Any:
        found = search(*args, **named)
        kept.append((args[0], found))
        return found

    nodes.approximate_neighbors = keeping
    torch.set_num_threads(threads())
    stages, start, cpu = Stages(), time.perf_counter(), time.process_time()
    settings = CleaningSettings(k=(K,), search="approx")
    cleaning = clean(
        folder / "points.npy",
        folder / "run",
        Config(cleaning=settings),
        labels=folder / "labels.npy",
        progress=stages,
    )
    stages.end()
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    unit, found = kept[-1]
    return {
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "stages": stages.seconds,
        "peak_gib": peak,
        "recall": measure_recall(unit, found.neighbors.indices[:, :K]),
        "recall_by_sample": found.recall,
        "verdicts": cleaning.summary.verdicts,
        "noise_rate": cleaning.summary.noise_rate,
        "notes": cleaning.summary.warnings,
        "disk_gib": sum(path.stat().st_size for path in (folder / "run").iterdir()) / 2**30,
    }


def measure_recall(unit: torch.Tensor, found: torch.Tensor) -> float:
    """The fraction of the true neighbors of some rows that were found; not the rows of the search itself."""
    from graphclean.graph import nearest_neighbors

    rows = torch.as_tensor(np.random.default_rng(7).choice(len(unit), EXACT_ROWS, replace=False))
    true = nearest_neighbors(unit, found.shape[1] + 1, queries=unit[rows]).indices[:, 1:]
    return float((true.unsqueeze(2) == found[rows].long().unsqueeze(1)).any(2).float().mean())


def agree(kind: str) -> dict[str, Any]:
    """The route of large sets against the plain one, on the same part."""
    from graphclean.cleaning import infer_verdicts, scale
    from graphclean.config import CleaningSettings

    with tempfile.TemporaryDirectory() as place:
        write_data(Path(place), PART, kind, CLASSES)
        points, labels = (np.load(Path(place) / f"{name}.npy") for name in ("points", "labels"))
    results = []
    for large, search in ((scale.LARGE, "exact"), (PART // 2, "approx")):
        scale.LARGE = large
        start = time.perf_counter()
        cleaning = infer_verdicts(points, labels, settings=CleaningSettings(k=(K,), search=search))
        results.append((cleaning.verdicts, time.perf_counter() - start, cleaning.summary))
    (plain, plain_seconds, one), (routed, seconds, other) = results
    same = plain["verdict"].to_numpy() == routed["verdict"].to_numpy()
    proposed = plain["proposed_label"].to_numpy() == routed["proposed_label"].to_numpy()
    return {
        "n": PART,
        "verdicts_agree": float(same.mean()),
        "verdicts_and_proposals_agree": float((same & proposed).mean()),
        "seconds_plain": plain_seconds,
        "seconds": seconds,
        "noise_rates": [one.noise_rate, other.noise_rate],
        "verdicts": [one.verdicts, other.verdicts],
    }


def compare_exact() -> dict[str, Any]:
    """The exact search and faiss flat on the same threads: queries among many points."""
    import faiss

    from graphclean.graph import nearest_neighbors

    faiss.omp_set_num_threads(threads())
    torch.set_num_threads(threads())
    z = make_points(EXACT_PART, "loose")
    queries = z[:EXACT_QUERIES]
    index = faiss.IndexFlatIP(z.shape[1])
    index.add(z.numpy())
    ours, theirs, same = [], [], []
    for _ in range(3):
        start = time.perf_counter()
        found = nearest_neighbors(z, K, queries=queries)
        middle = time.perf_counter()
        _, names = index.search(queries.numpy(), K)
        theirs.append(time.perf_counter() - middle)
        ours.append(middle - start)
        same.append(float((torch.as_tensor(names) == found.indices).float().mean()))
    return {
        "n": EXACT_PART,
        "queries": EXACT_QUERIES,
        "seconds": min(ours),
        "faiss_flat": min(theirs),
        "same": min(same),
    }


def compare_approximate(kind: str) -> dict[str, Any]:
    """Approximate neighbors and faiss IVF, until it has the same recall, on the same threads."""
    import faiss

    from graphclean.graph.ann import approximate_neighbors

    faiss.omp_set_num_threads(threads())
    torch.set_num_threads(threads())
    z = make_points(SIZES["100k"], kind)
    n = len(z)
    start = time.perf_counter()
    found = approximate_neighbors(z, K)
    ours = time.perf_counter() - start
    recall = measure_recall(z, found.neighbors.indices)
    points, cells = z.numpy(), 2 ** round(math.log2(n) / 2)
    start = time.perf_counter()
    quantizer = faiss.IndexFlatIP(z.shape[1])
    index = faiss.IndexIVFFlat(quantizer, z.shape[1], cells, faiss.METRIC_INNER_PRODUCT)
    index.cp.max_points_per_centroid = 64
    index.train(points)
    index.add(points)
    index.nprobe, theirs = 1, 0.0
    while theirs < recall and index.nprobe < cells:
        index.nprobe = min(2 * index.nprobe, cells)
        built = time.perf_counter() - start if index.nprobe == 2 else built  # noqa: F821
        begin = time.perf_counter()
        names = torch.as_tensor(index.search(points, K + 1)[1])
        searched = time.perf_counter() - begin
        own = names == torch.arange(n).unsqueeze(1)
        own[:, -1] |= ~own.any(1)
        theirs = measure_recall(z, names[~own].view(n, K))
    return {
        "n": n,
        "seconds": ours,
        "recall": recall,
        "faiss_ivf": {"seconds": built + searched, "recall": theirs, "nprobe": index.nprobe},
    }


def measure(case: str) -> dict[str, Any]:
    """One case, in this process."""
    if case == "search-exact":
        return compare_exact()
    if case.startswith("search-approx-"):
        return compare_approximate(case.removeprefix("search-approx-"))
    if case.startswith("agreement-"):
        return agree(case.removeprefix("agreement-"))
    size, kind = case.split("-")
    classes = 1000 if kind == "classes" else CLASSES
    n, kind = SIZES[size], "clustered" if kind == "classes" else kind
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, __file__, "--write", place, "--size", str(n), "--kind", kind]
        subprocess.run([*command, "--classes", str(classes)], check=True)
        return {"n": n, "kind": kind, "k": K, "classes": classes, **run_case(Path(place))}


def growth(found: dict[str, Any]) -> dict[str, Any]:
    """By kind, the exponent of N that fits the seconds of all sizes on the route of large sets."""
    fits = {}
    for kind in KINDS:
        points = [
            found[name] for size in SIZES if (name := f"{size}-{kind}") in found and SIZES[size] > 200_000
        ]
        if len(points) > 1:
            logs = np.log([[point["n"], point["seconds"]] for point in points])
            slope = float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])
            fits[kind] = {"exponent": slope, "sizes": [point["n"] for point in points]}
    return fits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=cases())
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--inside", action="store_true", help="measure in this process, and print the result")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--size", type=int)
    parser.add_argument("--kind")
    parser.add_argument("--classes", type=int)
    options = parser.parse_args()
    if options.list or (options.case is None and options.write is None):
        print("\n".join(cases()))
    elif options.write is not None:
        write_data(options.write, options.size, options.kind, options.classes)
    elif options.inside:
        print(json.dumps(measure(options.case)))
    else:
        before = os.getloadavg()
        command = [sys.executable, __file__, "--case", options.case, "--inside"]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        result = json.loads(done.stdout.splitlines()[-1])
        recorded = load(RESULT)
        found = recorded["cases"] if recorded is not None else {}
        found[options.case] = {**result, "load_average": before, "machine": machine()}
        save(RESULT, {"generator": GENERATOR, "wrong": WRONG, "cases": found, "growth": growth(found)})
        print(json.dumps({name: value for name, value in result.items() if name != "notes"}, indent=1))
        print(RESULTS / f"{RESULT}.json")


if __name__ == "__main__":
    main()
