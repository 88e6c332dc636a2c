"""Write the measured parts of the docs from the recorded results: no number in them is typed by hand.

python benchmarks/tables.py
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import Section, load, with_measured
from further import wins_and_losses
from graphclean.bench.markdown import markdown_table
from paper_runs import behind_paper, ledger, missing, paper_cells, paper_row, steps
from sections.audit import audit_section, embedding_seconds, one_core, scorings_section
from sections.detectors import (
    AIM_AUROC,
    AIM_REJECTED,
    detectors_section,
    group_splits,
    measured_rejection,
    missed_aims,
    rejected_good_photos,
    rejected_of_unknown,
)
from sections.duplicates import duplicates_section
from sections.embedders import embedders_section
from sections.estimates import choices_section, estimates_section
from sections.further import FURTHER_SETS, further_section, list_columns
from sections.graph import cpu_section, cuda_section
from sections.methods import choice_tables, methods_section
from sections.pages import pages_section
from sections.processes import growth_section, measured_section
from sections.reliability import reliability_page
from sections.scale import large_set, scale_cases, scale_checks
from sections.streaming import streaming_sections
from sections.training import demo_section, engine_section, few_section, mistakes_section

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
TABLES = Path(__file__).parents[1] / "docs" / "benchmark-tables.md"
README = Path(__file__).parents[1] / "README.md"
RELIABILITY = Path(__file__).parents[1] / "docs" / "reliability.md"
SCALE = Path(__file__).parents[1] / "docs" / "scale.md"
REPRODUCTION = Path(__file__).parents[1] / "docs" / "reproduction.md"
METHODS = Path(__file__).parents[1] / "docs" / "methods.md"
LOG = Path(__file__).parents[1] / "results" / "README.md"
PROCESSES = Path(__file__).parents[1] / "docs" / "processes.md"
STREAMING = Path(__file__).parents[1] / "docs" / "streaming.md"
FAQ = Path(__file__).parents[1] / "docs" / "faq.md"
YOUR_DATA = Path(__file__).parents[1] / "docs" / "your-data.md"

TABLES_INTRODUCTION = """# Benchmark tables

How each section of [Benchmarks](benchmarks.md) was measured, and all of its numbers. They are generated from
`benchmarks/results/`; each file there names the command that made it.

Noise seeds are repetitions with other random wrong labels. *Symmetric noise (30 %)*: the labels of 30 % of the samples are
redrawn at random from all classes, the right one included, so of ten classes about 27 % of the labels end up wrong.
*Flipped*: the label is changed to one certain other class.
"""

SECTIONS: dict[str, Callable[[dict[str, Any]], Section]] = {
    "audit": audit_section,
    "audit-further": further_section,
    "detectors": detectors_section,
    "duplicates": duplicates_section,
    "estimates": estimates_section,
    "choices": choices_section,
    "embedders": embedders_section,
    "methods": methods_section,
    "demo": demo_section,
    "mistakes-digits": mistakes_section,
    "few": few_section,
    "engine-cuda": engine_section,
    "graph-cpu": cpu_section,
    "graph-cuda": cuda_section,
    "scorings": scorings_section,
}
"""Recorded results in the order of the pages."""


def sections() -> list[Section]:
    """The recorded sections."""
    return [make(result) for name, make in SECTIONS.items() if (result := load(name)) is not None]


def render() -> str:
    """The page of benchmarks: a summary, and for each section a chart and what it shows."""
    parts = [
        f"## {section.title}\n\n{section.shown}\n\n[All numbers](benchmark-tables.md#{anchor(section.title)})\n"
        for section in sections()
        if section.shown
    ]
    return "\n".join([summary(), *parts])


def render_tables() -> str:
    """The page of tables: how each section was measured, and all numbers."""
    parts = [f"## {section.title}\n\n{section.numbers}" for section in sections()]
    return "\n".join([TABLES_INTRODUCTION, *parts])


def anchor(title: str) -> str:
    """The anchor of a heading, as mkdocs and GitHub make it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def summary() -> str:
    """The introduction of the page: the numbers of the README, where we lose, and the main costs."""
    audit, further = load("audit"), load("audit-further")
    detectors, engine = load("detectors"), load("engine-cuda")
    lines = []
    if audit is not None and further is not None:
        pairs = [
            (entry["ours"]["mislabel_f1"], entry["cleanlab_best"]["mislabel_f1"])
            for result in (audit, further)
            for entry in result["summary"].values()
            if "mislabel_f1" in entry.get("cleanlab_best", {})
        ]
        ahead = sum(ours > theirs for ours, theirs in pairs)
        lines.append(
            f"- **Wrong labels.** `clean` finds them better on {ahead} of {len(pairs)} sets (mean mislabel F1), even when "
            "cleanlab's options are tuned on the ground truth. "
            "[Features](#verdicts-on-features-compared-with-cleanlab), [other data sets](#other-data-sets-and-tools)"
        )
    if detectors is not None:
        lines.append(
            "- **Unknown inputs.** Without OOD samples in training, the detector of `clean` rejects "
            f"{rejected_of_unknown(detectors)}. "
            "[New inputs](#new-inputs-rejected-or-not)"
        )
    if engine is not None:
        lines.append(
            f"- **Cost.** Given features, `clean` takes seconds on a CPU. An epoch of NGC on {engine['samples']:,} images "
            f"takes {engine['epoch']:.1f} s on an {engine['machine']['gpu']}. "
            "[Training](#training-on-a-gpu), [the graph step](#the-graph-step-on-two-cores)"
        )
    if further is not None:
        lost = [
            f"{FURTHER_SETS[group]}: {list_columns(places['behind'])}"
            for group, places in wins_and_losses(further["summary"]).items()
            if places["behind"]
        ]
        lines.append(
            f"- **Where we lose.**\n    - Mean scores behind the best other tool: {'; '.join(lost) or 'none'}.{further_losses()}"
        )
    listed = "\n".join(lines)
    return f"""# Benchmarks

How well graphclean finds wrong labels and rejects unknown inputs, and what it costs. The paper's own benchmarks are on
[their own page](reproduction.md).

{headline()}

{listed}

[Benchmark tables](benchmark-tables.md) hold all numbers and how they were measured. Both pages are generated from recorded
runs (`benchmarks/results/`), and a test checks that they are up to date.
"""


def further_losses() -> str:
    """Where training, the detector and the neighbor search are behind, one sentence each."""
    audit, detectors, graph = load("audit"), load("detectors"), load("graph-cpu")
    parts = []
    if behind := behind_paper():
        parts.append(
            f"Test accuracy below the paper's (in brackets), CIFAR-10: {'; '.join(behind)}. "
            "[Results](reproduction.md#results)"
        )
    if detectors is not None:
        short, rows = missed_aims(group_splits(detectors))
        parts.append(
            f"Without OOD in training, the detector of `clean` misses its aim (an AUROC of {AIM_AUROC} and "
            f"{100 * AIM_REJECTED:.0f} % of the unknown rejected) on {len(short)} of {rows} rows. "
            "[New inputs](#new-inputs-rejected-or-not)"
        )
        if good := rejected_good_photos(detectors):
            parts.append(
                f"With OOD in training, `clean` aims to reject 5 % of good photos, and rejects {min(good):.1f} to "
                f"{max(good):.1f} %. [New inputs](#new-inputs-rejected-or-not)"
            )
    if audit is not None:
        times = [
            entry["ours"]["seconds"] / entry["cleanlab_best"]["seconds"]
            for entry in audit["summary"].values()
        ]
        if max(times) > 1:
            parts.append(
                f"On one core, `clean` takes {min(times):.1f} to {max(times):.1f} times as long as one run of cleanlab, at "
                "cleanlab's fastest regularization. [Features](#verdicts-on-features-compared-with-cleanlab)"
            )
    if graph is not None:
        ratios = [
            point["peers"]["faiss_flat"]["seconds"] / point["stages"]["search"]["seconds"]
            for point in graph["points"]
            if "faiss_flat" in point["peers"]
        ]
        if ratios and min(ratios) < 1:
            parts.append(
                f"On two cores, exact neighbor search has {min(ratios):.1f} to {max(ratios):.1f} times the speed of faiss. "
                "[The graph step](#the-graph-step-on-two-cores)"
            )
    return "".join(f"\n    - {part}" for part in parts)


def headline() -> str:
    """The main numbers, shown in the README between its markers."""
    audit, further = load("audit"), load("audit-further")
    rows = []
    for name, group, result in (
        ("1,500 photos, symmetric noise (30 %)", "photos", audit),
        ("the same photos, 40 % of five classes flipped to another", "asym 40 %", audit),
        ("look-alike classes of CIFAR-100, 30 % flipped within the pair", "pairs", further),
    ):
        if result is not None:
            found = result["summary"][group]
            theirs = f"{found['cleanlab_best']['mislabel_f1']:.3f}"
            ours = f"**{found['ours']['mislabel_f1']:.3f}**"
            rows.append([f"{name} ({found['draws']})", "F1 of wrong labels", ours, f"{theirs} (cleanlab)"])
    rows.append(paper_row())
    table = markdown_table(["data (seeds)", "score", "graphclean", "compared with"], rows)
    embedders = load("embedders")
    times = [one_core(audit)] if audit is not None else []
    times += [embedding_seconds(embedders)] if embedders is not None else []
    notes = [
        "Symmetric noise (30 %): 30 % of the labels are redrawn at random from all classes, so about 27 % end up wrong.",
        "Both tools get the same features; cleanlab's options are tuned on the ground truth, for each score and noise seed.",
        "The last row is the paper's benchmark, with `--preset cifar10-lond-plus`, which `train` doesn't take unless named.",
    ]
    return f"{table}\n\n{' '.join([*notes, *times])}"


def pages() -> dict[Path, str]:
    """The expected content of every page with measured figures."""
    return {
        PAGE: render(),
        TABLES: render_tables(),
        RELIABILITY: reliability_page(load("chaos")),
        SCALE: with_measured(
            SCALE.read_text(),
            {
                " scale": scale_cases(load("scale-cpu")),
                " scale checks": scale_checks(load("scale-cpu")),
                " pages": pages_section(),
            },
        ),
        README: with_measured(README.read_text(), {"": headline()}),
        REPRODUCTION: with_measured(REPRODUCTION.read_text(), {"": paper_cells(), " missing": missing()}),
        STREAMING: with_measured(STREAMING.read_text(), {"": streaming_sections()}),
        FAQ: with_measured(FAQ.read_text(), {"": large_set(load("scale-cpu"), load("graph-cuda"))}),
        YOUR_DATA: with_measured(YOUR_DATA.read_text(), {"": measured_rejection(load("detectors"))}),
        PROCESSES: with_measured(
            PROCESSES.read_text(), {"": measured_section(), " growth": growth_section()}
        ),
        METHODS: with_measured(
            METHODS.read_text(), {"": choice_tables(load("methods"), load("mistakes-digits"))}
        ),
        LOG: with_measured(LOG.read_text(), {" steps": steps(), "": ledger()}),
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
        print(path)
