"""The graph step, on two cores and on a GPU."""

from typing import Any

from common import Section, describe, seconds, shown
from graphclean.bench.markdown import markdown_table

STAGES = ("search", "graph", "weights", "propagation", "selection")
PEERS = {
    "faiss_flat": "faiss flat (search)",
    "scipy_cg_class_by_class": "SciPy CG, class by class (propagation)",
    "sklearn_label_spreading": "LabelSpreading (propagation)",
}

SEARCH = "groups"
"""The search that is measured today; records of another say so on the page."""
EARLIER = (
    "**These search times are of an earlier version**: large sets are searched in another way by now, exactly and "
    "approximately. [Large sets](scale.md) has what was measured since."
)
NAMES = {
    "faiss_flat": "faiss (exact search)",
    "scipy_cg_class_by_class": "SciPy's solver (propagation)",
    "sklearn_label_spreading": "LabelSpreading (propagation)",
}


def points_table(points: list[dict[str, Any]]) -> str:
    whole = any("whole" in point for point in points)
    rows = []
    for point in points:
        stages = [
            f"{seconds(point['stages'][s]['seconds'])}, {point['stages'][s]['peak_mib']:,} MiB"
            for s in STAGES
        ]
        rows.append([f"{point['n']:,}", str(point["k"]), str(point["classes"]), *stages])
        if whole:
            rows[-1].append(seconds(point["whole"]["seconds"]))
    return markdown_table(["N", "k", "K", *STAGES, *(["whole step"] if whole else [])], rows)


def growth_line(growth: dict[str, Any]) -> str:
    parts = ", ".join(f"{name} N^{value:.2f}" for name, value in growth["exponents"].items())
    return f"Growth from N = {growth['sizes'][0]:,} to {growth['sizes'][-1]:,} at k = 30, K = 10: {parts}."


def cpu_section(result: dict[str, Any]) -> Section:
    rows = []
    for point in result["points"]:
        ours = point["stages"]
        for key, name in PEERS.items():
            if key not in point["peers"]:
                continue
            stage = "search" if key == "faiss_flat" else "propagation"
            peer, own = point["peers"][key]["seconds"], ours[stage]["seconds"]
            rows.append(
                [
                    f"{point['n']:,}",
                    str(point["k"]),
                    str(point["classes"]),
                    name,
                    seconds(peer),
                    seconds(own),
                    f"{peer / own:.1f} ×",
                ]
            )
    shares = []
    for point in result["points"]:
        after = sum(point["stages"][s]["seconds"] for s in STAGES[1:])
        share = after / point["stages"]["search"]["seconds"]
        shares.append([f"{point['n']:,}", str(point["k"]), str(point["classes"]), f"{share:.3f}"])
    approximate = markdown_table(
        ["70,000 points, k = 30", "exact", "approximate", "speedup", "recall"],
        [[row["data"], seconds(row["exact"]["seconds"]), seconds(row["approximate"]["seconds"]), f"{row['speedup']:.1f} ×", f"{row['recall']:.4f}"]
         for row in result["approximate"]],
    )  # fmt: skip
    million = result["million"]
    total = sum(million["stages"][s]["seconds"] for s in STAGES)
    against = ", ".join(f"{_range(result, key)} × {name}" for key, name in NAMES.items())
    earlier = "" if result.get("search") == SEARCH else f"\n\n{EARLIER}"
    chart = f"""{shown("growth-graph", "Seconds of the graph step by the number of samples, on two cores and on a GPU, both axes logarithmic")}
The graph step finds neighbors, weights edges, propagates labels and selects samples. Search takes most of the time. On two cores, a million points take {seconds(total)} with approximate neighbors (`--search approx`,
recall {million["recall_by_sample"]:.3f} on a sample) and {million["process_peak_gib"]:.1f} GiB. Speedup over each (below 1 × we are slower):
{against}.{earlier}"""
    numbers = f"""Time and additional memory by stage. Clustered points on the unit sphere, 64 dimensions
(`{result["generator"]["formula"]}`, spread {result["generator"]["spread"]["clustered"]}; loose: {result["generator"]["spread"]["loose"]}).

{points_table(result["points"])}

Other libraries in the same run; below 1 × we are slower. SciPy solves the same system in the same precision to the same residual
(1e-6); LabelSpreading iterates on the same weights until it changes by less than 1e-6.

{markdown_table(["N", "k", "K", "compared with", "its time", "our time", "speedup"], rows)}

Everything after the search takes this fraction of the search:

{markdown_table(["N", "k", "K", "fraction"], shares)}

{growth_line(result["growth"])}

Approximate neighbors (`--search approx`) search until a sample finds 97 % of its true neighbors; on loosely
clustered data that may take as long as the exact search, or longer:

{approximate}

A million points (k = {million["k"]}, K = {million["classes"]}, approximate neighbors, recall {million["recall_by_sample"]:.3f} on a sample):
{seconds(total)} in total, {seconds(million["stages"]["search"]["seconds"])} of it for the search; the whole process peaks at {million["process_peak_gib"]:.1f} GiB.

{describe(result)}
"""
    return Section("The graph step on two cores", chart, numbers)


def _range(result: dict[str, Any], peer: str) -> str:
    """The smallest and the largest speedup over another library."""
    stage = "search" if peer == "faiss_flat" else "propagation"
    ratios = [
        point["peers"][peer]["seconds"] / point["stages"][stage]["seconds"]
        for point in result["points"]
        if peer in point["peers"]
    ]
    return f"{min(ratios):.1f} to {max(ratios):.1f}"


def cuda_section(result: dict[str, Any]) -> Section:
    rows = [
        [f"{row['n']:,}", f"{100 * row['neighbors_shared']:.5f} %", f"{row['largest_similarity_difference']:.1e}",
         f"{row['largest_soft_label_difference']:.1e}", str(row["selection_differs"])]
        for row in result["agreement"]
    ]  # fmt: skip
    whole = {point["n"]: seconds(point["whole"]["seconds"]) for point in result["points"] if point["k"] == 30}
    chart = f"""On an {result["machine"]["gpu"]}, with exact neighbors: {", ".join(f"{n:,} samples in {time}" for n, time in whole.items())} (k = 30). CPU and
GPU find the same neighbors but for ties within rounding."""
    numbers = f"""Exact neighbors in fp32. Medians after a warm-up, timed by device events.

{points_table(result["points"])}

{growth_line(result["growth"])}

CPU and GPU on the same points (neighbors differ only where similarities tie within rounding):

{markdown_table(["N", "same neighbors", "largest difference in similarity", "in soft labels", "selected differently"], rows)}

{describe(result, gpu=True)}
"""
    return Section("The graph step on a GPU", chart, numbers)
