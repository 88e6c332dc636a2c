"""What `clean` costs from a hundred thousand samples to ten million."""

from typing import Any

from common import describe, seconds, when
from graphclean.bench.markdown import markdown_table

SIZES = ("100k", "300k", "1m", "3m", "10m")
KINDS = ("clustered", "loose")
PAPER = 100_000_000
STEPS = {
    "reading": "reading", "choosing on a sample": "choosing", "finding neighbors": "neighbors",
    "propagating labels": "labels", "judging samples": "judging", "writing": "writing",
}  # fmt: skip


def scale_cases(result: dict[str, Any] | None) -> str:
    """Seconds, memory and recall by size."""
    rows = []
    for kind in KINDS:
        for size in SIZES:
            case = (result or {"cases": {}})["cases"].get(f"{size}-{kind}")
            if case is None:
                rows.append([size, kind, *["–"] * (len(STEPS) + 6)])
                continue
            stages = [f"{case['stages'].get(name, 0):.0f}" for name in STEPS]
            load = f"{case['load_average'][0]:.1f}"
            figures = [
                f"{case['seconds'] / 3600:.3f}",
                f"{case['cpu_seconds']:.0f}",
                f"{case['peak_gib']:.1f}",
            ]
            rows.append(
                [
                    f"{case['n']:,}",
                    kind,
                    *stages,
                    *figures,
                    f"{case['recall']:.3f}",
                    f"{case['disk_gib']:.2f}",
                    load,
                ]
            )
    header = [
        "N",
        "points",
        *(f"{name}, s" for name in STEPS.values()),
        "hours",
        "CPU s",
        "peak GiB",
        "recall",
        "disk GiB",
        "load",
    ]
    return f"{markdown_table(header, rows)}\n\n{_machines(result)}"


def scale_checks(result: dict[str, Any] | None) -> str:
    """Agreement with the plain route, peers, many classes, and what was not run."""
    cases = (result or {"cases": {}})["cases"]
    lines = []
    for kind in KINDS:
        found = cases.get(f"agreement-{kind}")
        lines.append(
            f"- Verdicts on {found['n']:,} {kind} points, route of large sets against plain route: "
            f"{100 * found['verdicts_agree']:.2f} % the same, {100 * found['verdicts_and_proposals_agree']:.2f} % with the same label."
            if found else f"- Agreement with the plain route, {kind} points: not run."
        )  # fmt: skip
    exact = cases.get("search-exact")
    lines.append(
        f"- Exact search, {exact['queries']:,} queries among {exact['n']:,} loose points: {exact['seconds']:.1f} s, faiss flat "
        f"{exact['faiss_flat']:.1f} s in the same run; {100 * exact['same']:.3f} % of the neighbors in the same place."
        if exact else "- Exact search against faiss flat: not run."
    )  # fmt: skip
    for kind in KINDS:
        found = cases.get(f"search-approx-{kind}")
        if found:
            peer = found["faiss_ivf"]
            lines.append(
                f"- Approximate search of {found['n']:,} {kind} points: {found['seconds']:.1f} s at recall {found['recall']:.3f}; "
                f"faiss IVF {peer['seconds']:.1f} s at recall {peer['recall']:.3f} (nprobe {peer['nprobe']})."
            )
        else:
            lines.append(f"- Approximate search against faiss IVF, {kind} points: not run.")
    many = cases.get("1m-classes")
    lines.append(
        f"- {many['classes']:,} classes, {many['n']:,} samples: {many['seconds']:.0f} s, peak {many['peak_gib']:.1f} GiB."
        if many else "- A million samples of 1,000 classes: not run."
    )  # fmt: skip
    lines.append("- On a GPU: not run.")
    return "\n".join([*lines, *_growth(result)])


def large_set(result: dict[str, Any] | None, cuda: dict[str, Any] | None) -> str:
    """What the largest recorded runs of each kind took, for the FAQ."""
    lines = []
    for kind in KINDS:
        runs = [case for case in (result or {"cases": {}})["cases"].values() if case.get("kind") == kind]
        if runs:
            largest = max(runs, key=lambda case: case["n"])
            lines.append(
                f"- `clean --search approx` of {largest['n']:,} {kind} points on a CPU: {largest['seconds']:.0f} s, "
                f"{largest['peak_gib']:.1f} GiB of memory, {100 * largest['recall']:.1f} % of the true neighbors found."
            )
    if cuda is not None:
        point = max(cuda["points"], key=lambda found: found["n"])
        lines.append(
            f"- The [graph step](how-it-works.md#the-graph) alone, exactly, of {point['n']:,} points on one "
            f"{cuda['machine']['gpu']}: {seconds(point['whole']['seconds'])}."
        )
    return "\n".join(lines) or "Not measured yet."


def _growth(result: dict[str, Any] | None) -> list[str]:
    """The exponents, and 100 million on paper."""
    lines = []
    for kind, fit in (result or {"growth": {}})["growth"].items():
        assert result is not None
        sizes = ", ".join(f"{size:,}" for size in fit["sizes"])
        lines.append(f"- Growth, {kind} points: seconds grow as N^{fit['exponent']:.2f} (N = {sizes}).")
        last = max(
            (case for case in result["cases"].values() if case.get("kind") == kind),
            key=lambda case: case["n"],
        )
        factor = PAPER / last["n"]
        hours = last["seconds"] * factor ** fit["exponent"] / 3600
        lines.append(
            f"- {PAPER:,} {kind} points on paper, from {last['n']:,} and that exponent: {hours:,.0f} hours, "
            f"and {last['peak_gib'] * factor:,.0f} GiB if memory grows in proportion."
        )
    return lines or ["- Growth: not recorded yet."]


def _machines(result: dict[str, Any] | None) -> str:
    if result is None or not result["cases"]:
        return "Not recorded yet."
    runs = "; ".join(f"{name}: {when(case['machine'])}" for name, case in result["cases"].items())
    return f"{describe(result)} Cases: {runs}."
