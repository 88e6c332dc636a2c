"""The graph step by stage: time, memory, growth with N, and comparison with SciPy, scikit-learn and faiss.

python benchmarks/graph.py                      # two cores, within 15 minutes
python benchmarks/graph.py --device cuda        # one GPU, without peers that run on the CPU
"""

import argparse
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import sparse
from scipy.sparse.linalg import cg
from torch import Tensor

from common import RESULTS, THREADS, save
from graphclean.graph import (
    Neighbors,
    confident_edges,
    confident_labels,
    gather_evidence,
    knn_graph,
    largest_components,
    mutual_edges,
    nearest_neighbors,
    normalize_graph,
    propagate,
    to_scipy,
    weight_graph,
)
from sections.graph import SEARCH

ALPHA, TOLERANCE, DIMENSIONS = 0.5, 1e-6, 64
GENERATOR = {
    "centers": 100,
    "dimensions": DIMENSIONS,
    "seed": 0,
    "spread": {"clustered": 0.5, "loose": 2.0},
    "formula": "x = center[i mod 100] + spread * normal, centers standard normal, rows to length 1",
    "labels": "(i mod 100) mod K, 30 % of them drawn anew",
}


def make_points(n: int, kind: str = "clustered") -> Tensor:
    """Points on the unit sphere, clustered around a hundred centers."""
    generator = torch.Generator().manual_seed(GENERATOR["seed"])
    centers = torch.randn(GENERATOR["centers"], DIMENSIONS, generator=generator)
    x = centers[torch.arange(n) % GENERATOR["centers"]]
    x = x + GENERATOR["spread"][kind] * torch.randn(n, DIMENSIONS, generator=generator)
    return torch.nn.functional.normalize(x, dim=1)


def make_labels(n: int, n_classes: int) -> Tensor:
    """Cluster numbers as classes, with three in ten resampled."""
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(n) % GENERATOR["centers"] % n_classes
    wrong = torch.rand(n, generator=generator) < 0.3
    return torch.where(wrong, torch.randint(0, n_classes, (n,), generator=generator), labels)


class Stopwatch:
    """Time a function over a few repeats: median seconds, repeats, and additional peak memory."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def __call__(
        self, work: Callable[[], Any], *, repeats: int = 3, patience: float = 20.0
    ) -> tuple[Any, dict]:
        if self.device.type == "cuda":
            return self._on_cuda(work, repeats)
        result, seconds, peak = None, [], 0
        while len(seconds) < repeats and sum(seconds) < patience:
            with Resident() as memory:
                start = time.perf_counter()
                result = work()
                seconds.append(time.perf_counter() - start)
            peak = max(peak, memory.peak)
        warm = seconds[1:] or seconds  # the first is the warm-up, if there is more than one
        return result, {
            "seconds": statistics.median(warm),
            "repeats": len(warm),
            "peak_mib": round(peak / 2**20),
        }

    def _on_cuda(self, work: Callable[[], Any], repeats: int) -> tuple[Any, dict]:
        work()
        seconds = []
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        for _ in range(repeats):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            start.record()
            result = work()
            end.record()
            torch.cuda.synchronize()
            seconds.append(start.elapsed_time(end) / 1000)
        peak = torch.cuda.max_memory_allocated() - before
        return result, {
            "seconds": statistics.median(seconds),
            "repeats": repeats,
            "peak_mib": round(peak / 2**20),
        }


class Resident:
    """Peak resident memory during the block, above the level before it."""

    def __enter__(self) -> "Resident":
        self.before, self.peak, self.done = self._now(), 0, threading.Event()
        self.thread = threading.Thread(target=self._watch)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.thread.join()

    def _watch(self) -> None:
        while not self.done.wait(0.005):
            self.peak = max(self.peak, self._now() - self.before)

    @staticmethod
    def _now() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def select(graph: Tensor, soft: Tensor, labels: Tensor, n_classes: int) -> Tensor:
    """Selection by Eq. 3 and 4 with mutual edges."""
    hard, confident = confident_labels(soft, labels, eta=0.8)
    rows, cols = mutual_edges(*confident_edges(graph, confident), len(labels))
    return largest_components(rows, cols, hard, confident, n_classes)


def whole_step(z: Tensor, k: int, labels: Tensor, n_classes: int) -> tuple[Tensor, ...]:
    """From points to selection: neighbors, similarities, soft labels, selected samples."""
    found = nearest_neighbors(z, k)
    graph = knn_graph(found)
    soft = gather_evidence(
        normalize_graph(weight_graph(graph, symmetrize="sum")), one_hot(labels, n_classes), alpha=ALPHA
    )
    return *found, soft, select(graph, soft, labels, n_classes)


def one_hot(labels: Tensor, n_classes: int) -> Tensor:
    return torch.nn.functional.one_hot(labels, n_classes).float()


def class_by_class(S: sparse.csr_array, Y: np.ndarray) -> np.ndarray:
    """Eq. 2 by SciPy's conjugate gradients, one class at a time: same system, data type and stopping
    criterion.
    """
    A = (sparse.eye_array(S.shape[0], dtype=S.dtype, format="csr") - ALPHA * S).tocsr()
    columns = [cg(A, (1 - ALPHA) * column, rtol=TOLERANCE, atol=0.0)[0] for column in Y.T]
    return np.stack(columns, axis=1)


def residual(S: Tensor, x: Tensor, Y: Tensor) -> float:
    """The largest relative residual ‖b − Ax‖ / ‖b‖ over the columns."""
    b = (1 - ALPHA) * Y.double()
    wide = S.to(torch.float64) if S.dtype != torch.float64 else S
    r = b - (x.double() - ALPHA * torch.sparse.mm(wide, x.double()))
    return float((r.norm(dim=0) / b.norm(dim=0)).max())


def our_stages(
    watch: Stopwatch, found: Neighbors, k: int, n_classes: int, labels: Tensor
) -> tuple[dict, Any]:
    """All stages after the search, for the first k neighbors."""
    cut = Neighbors(found.indices[:, :k].contiguous(), found.similarities[:, :k].contiguous())
    graph, building = watch(lambda: knn_graph(cut))
    S, weighing = watch(lambda: normalize_graph(weight_graph(graph, symmetrize="sum")))
    Y = one_hot(labels, n_classes)
    # An error below tol (1 − α) / (1 + α) implies a residual below tol, SciPy's stopping criterion.
    exact = TOLERANCE * (1 - ALPHA) / (1 + ALPHA)
    x, spreading = watch(lambda: propagate(S, Y, alpha=ALPHA, tolerance=exact))
    soft = gather_evidence(S, Y)
    _, selecting = watch(lambda: select(graph, soft, labels, n_classes))
    spreading["residual"] = residual(S, x, Y)
    stages = {"graph": building, "weights": weighing, "propagation": spreading, "selection": selecting}
    return stages, (weight_graph(graph, symmetrize="sum"), S, Y, x)


def cpu_peers(
    watch: Stopwatch, W: Tensor, S: Tensor, Y: Tensor, x: Tensor, labels: Tensor, *, spreading: bool
) -> dict:
    """The same propagation by SciPy and, if feasible, by scikit-learn."""
    matrix, affinity = to_scipy(S), to_scipy(W)
    solved, by_class = watch(lambda: class_by_class(matrix, Y.numpy()), patience=5.0)
    by_class["residual"] = residual(S, torch.as_tensor(solved), Y)
    by_class["largest_difference"] = float(np.abs(solved - x.numpy()).max())
    peers = {"scipy_cg_class_by_class": by_class}
    if spreading:
        from sklearn.semi_supervised import LabelSpreading

        def fit() -> Any:
            model = LabelSpreading(kernel=lambda *_: affinity, alpha=ALPHA, max_iter=1000, tol=TOLERANCE)
            return model.fit(np.zeros((len(labels), 1)), labels.numpy())

        peers["sklearn_label_spreading"] = watch(fit, patience=5.0)[1]
    return peers


def faiss_flat(z: Tensor, k: int) -> Any:
    import faiss

    faiss.omp_set_num_threads(THREADS)
    index = faiss.IndexFlatIP(DIMENSIONS)
    index.add(z.numpy())
    return index.search(z.numpy(), k + 1)


def measure_cpu(sizes: list[int]) -> dict[str, Any]:
    """Measure all configurations on the CPU."""
    watch = Stopwatch(torch.device("cpu"))
    points = []
    for n in sizes:
        z = make_points(n)
        for k in (30, 200):
            found, searching = watch(lambda z=z, k=k: nearest_neighbors(z, k), patience=10.0)
            _, flat = watch(lambda z=z, k=k: faiss_flat(z, k), patience=10.0)
            for n_classes in (10, 100):
                labels = make_labels(n, n_classes)
                stages, (W, S, Y, x) = our_stages(watch, found, k, n_classes, labels)
                peers = {"faiss_flat": flat, **cpu_peers(watch, W, S, Y, x, labels, spreading=n <= 10_000)}
                points.append(make_point(n, k, n_classes, searching, stages, peers=peers))
    return {"points": points, "growth": measure_growth(watch, [10_000, 20_000, 40_000, 70_000])}


def measure_growth(watch: Stopwatch, sizes: list[int]) -> dict[str, Any]:
    """Seconds by stage over N at k = 30 and 10 classes, and the fitted exponents of N."""
    seconds: dict[str, list[float]] = {}
    for n in sizes:
        z, labels = make_points(n).to(watch.device), make_labels(n, 10).to(watch.device)
        found, searching = watch(lambda z=z: nearest_neighbors(z, 30), patience=8.0)
        stages, _ = our_stages(watch, found, 30, 10, labels)
        for name, stage in {"search": searching, **stages}.items():
            seconds.setdefault(name, []).append(stage["seconds"])
    logs = np.log(np.array(sizes))
    exponents = {name: float(np.polyfit(logs, np.log(values), 1)[0]) for name, values in seconds.items()}
    print("cost grows as N to the power of:", {name: round(value, 2) for name, value in exponents.items()})
    return {"sizes": sizes, "seconds": seconds, "exponents": exponents}


def measure_approximate(n: int = 70_000, k: int = 30) -> list[dict[str, Any]]:
    """Approximate compared with exact neighbors on clustered and loose data, with the true recall."""
    from graphclean.graph.ann import approximate_neighbors

    watch, rows = Stopwatch(torch.device("cpu")), []
    for kind in ("clustered", "loose"):
        z = make_points(n, kind)
        exact, searching = watch(lambda z=z: nearest_neighbors(z, k), patience=10.0)
        (found, measured), approximate = watch(lambda z=z: approximate_neighbors(z, k), patience=10.0)
        true = (exact.indices.unsqueeze(2) == found.indices.unsqueeze(1)).any(2).float().mean()
        rows.append(
            {
                "data": kind,
                "n": n,
                "k": k,
                "exact": searching,
                "approximate": approximate,
                "speedup": searching["seconds"] / approximate["seconds"],
                "recall": float(true),
                "recall_by_sample": measured,
            }
        )
        print(
            f"approximate, {kind}: {rows[-1]['speedup']:.1f} × faster, recall {rows[-1]['recall']:.4f}",
            flush=True,
        )
    return rows


def measure_million(k: int = 30, n_classes: int = 10) -> dict[str, Any]:
    """A million points with approximate neighbors; memory is that of the whole process."""
    import resource

    from graphclean.graph.ann import approximate_neighbors

    watch = Stopwatch(torch.device("cpu"))
    z, labels = make_points(1_000_000), make_labels(1_000_000, n_classes)
    (found, recall), searching = watch(lambda: approximate_neighbors(z, k), repeats=1)
    stages, _ = our_stages(watch, found, k, n_classes, labels)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"a million: {searching['seconds']:.0f} s to search, recall {recall:.3f}, {peak:.1f} GiB in all",
        flush=True,
    )
    return {
        "n": 1_000_000,
        "k": k,
        "classes": n_classes,
        "recall_by_sample": recall,
        "stages": {"search": searching, **stages},
        "process_peak_gib": peak,
    }


def measure_cuda() -> dict[str, Any]:
    """Measure all configurations on the GPU, a million points with the exact search, and the agreement with
    the CPU.
    """
    device = torch.device("cuda")
    watch, points = Stopwatch(device), []
    for n, settings in (
        (10_000, [(30, 10), (200, 100)]),
        (70_000, [(30, 10), (30, 100), (200, 10), (200, 100)]),
        (1_000_000, [(30, 10)]),
    ):
        z = make_points(n).to(device)
        for k, n_classes in settings:
            found, searching = watch(
                lambda z=z, k=k: nearest_neighbors(z, k), repeats=3 if n < 500_000 else 1
            )
            labels = make_labels(n, n_classes).to(device)
            stages, _ = our_stages(watch, found, k, n_classes, labels)
            _, together = watch(
                lambda z=z, k=k, labels=labels, n_classes=n_classes: whole_step(z, k, labels, n_classes)[-1],
                repeats=5 if n < 500_000 else 1,
            )
            points.append(make_point(n, k, n_classes, searching, stages, whole=together))
    return {
        "points": points,
        "growth": measure_growth(watch, [10_000, 20_000, 40_000, 70_000, 140_000]),
        "agreement": [compare_devices(10_000, 30, 10), compare_devices(70_000, 30, 10)],
    }


def compare_devices(n: int, k: int, n_classes: int) -> dict[str, Any]:
    """The same step on both devices: differences in neighbors, soft labels and selection."""
    results = []
    for device in ("cpu", "cuda"):
        z, labels = make_points(n).to(device), make_labels(n, n_classes).to(device)
        results.append([part.cpu() for part in whole_step(z, k, labels, n_classes)])
    cpu, cuda = results
    same = (cpu[0].unsqueeze(2) == cuda[0].unsqueeze(1)).any(2).float().mean()
    agreement = {
        "n": n,
        "k": k,
        "neighbors_shared": float(same),
        "largest_similarity_difference": float((cpu[1] - cuda[1]).abs().max()),
        "largest_soft_label_difference": float((cpu[2] - cuda[2]).abs().max()),
        "selection_differs": int((cpu[3] != cuda[3]).sum()),
    }
    print("cpu and cuda:", agreement, flush=True)
    return agreement


def make_point(n: int, k: int, n_classes: int, searching: dict, stages: dict, **more: Any) -> dict[str, Any]:
    """One measured configuration, printed immediately."""
    point = {"n": n, "k": k, "classes": n_classes, "stages": {"search": searching, **stages}, **more}
    show_point(point)
    return point


def show_point(point: dict[str, Any]) -> None:
    parts = {
        **point["stages"],
        **({"whole": point["whole"]} if "whole" in point else {}),
        **point.get("peers", {}),
    }
    times = ", ".join(f"{name} {part['seconds']:.4g} s" for name, part in parts.items())
    print(f"N = {point['n']:,}, k = {point['k']}, K = {point['classes']}: {times}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the result")
    parser.add_argument("--quick", action="store_true", help="10,000 points only, nothing saved")
    options = parser.parse_args()
    torch.set_num_threads(THREADS)
    if options.quick:
        measure_cpu([10_000])
        return
    if options.device == "cuda":
        print(save("graph-cuda", {"generator": GENERATOR, **measure_cuda()}, options.out))
        return
    result = {"generator": GENERATOR, **measure_cpu([10_000, 70_000])}
    result |= {"approximate": measure_approximate(), "search": SEARCH}
    result["million"] = measure_million()
    print(save("graph-cpu", result, options.out))


if __name__ == "__main__":
    main()
