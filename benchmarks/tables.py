"""Write the measured parts of the docs from the recorded results: no number in them is typed by hand.

python benchmarks/tables.py
"""

from pathlib import Path

from common import load, seconds, with_measured
from further import wins_and_losses
from graphclean.bench.markdown import markdown_table
from paper_runs import behind_paper, ledger, missing, paper_cells, paper_row, steps
from sections.audit import audit_section, one_core, scorings_section
from sections.detectors import AIM_AUROC, AIM_REJECTED, detectors_section, group_splits, missed_aims
from sections.duplicates import duplicates_section
from sections.embedders import embedders_section
from sections.estimates import choices_section, estimates_section
from sections.further import FURTHER_SETS, further_section, list_columns
from sections.graph import cpu_section, cuda_section
from sections.methods import methods_section
from sections.pages import pages_section
from sections.processes import growth_section, measured_section
from sections.reliability import reliability_page
from sections.streaming import streaming_section
from sections.training import demo_section, engine_section, few_section, mistakes_section

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
README = Path(__file__).parents[1] / "README.md"
RELIABILITY = Path(__file__).parents[1] / "docs" / "reliability.md"
REPRODUCTION = Path(__file__).parents[1] / "docs" / "reproduction.md"
LOG = Path(__file__).parents[1] / "results" / "README.md"
PROCESSES = Path(__file__).parents[1] / "docs" / "processes.md"


UNRECORDED = {
    "methods": "Every method on the digits",
    "streaming-cuda": "Photos that stream, on a GPU",
    "pages": "Pages and predictions of many samples",
    "few": "Few small images",
}
"""Headings of sections that may not be recorded yet."""


def render() -> str:
    """The whole page."""
    parts = [summary()]
    sections = {
        "audit": audit_section,
        "audit-further": further_section,
        "estimates": estimates_section,
        "choices": choices_section,
        "scorings": scorings_section,
        "embedders": embedders_section,
        "detectors": detectors_section,
        "duplicates": duplicates_section,
        "demo": demo_section,
        "methods": methods_section,
        "mistakes-digits": mistakes_section,
        "few": few_section,
        "engine-cuda": engine_section,
        "graph-cpu": cpu_section,
        "graph-cuda": cuda_section,
        "streaming-cpu": streaming_section,
        "streaming-cuda": streaming_section,
        "pages": pages_section,
    }
    for name, section in sections.items():
        result = load(name)
        parts.append(
            section(result)
            if result is not None
            else f"## {UNRECORDED.get(name, name)}\n\nNot recorded yet.\n"
        )
    return "\n".join(parts)


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
            f"- **Wrong labels found.** `clean` has the higher mean mislabel F1 on {ahead} of {len(pairs)} sets, "
            "even when cleanlab's options are chosen by the truth. "
            "[Features](#verdicts-on-features-compared-with-cleanlab), [further sets](#further-sets-and-peers)"
        )
        lost = [
            f"{FURTHER_SETS[group]}: {list_columns(places['behind'])}"
            for group, places in wins_and_losses(further["summary"]).items()
            if places["behind"]
        ]
        lines.append(
            f"- **Where we lose.** Column means behind the best peer: {'; '.join(lost) or 'none'}. cleanlab's best "
            f"options also win on some single noise seeds, listed below the first table.{further_losses()}"
        )
    if detectors is not None:
        found = [
            split["clean"]["unknown_rejected"]
            for split in detectors["splits"]
            if "clean" in split and "no OOD in training" in split["group"]
        ]
        lines.append(
            f"- **Unknown inputs.** Without OOD samples to learn from, the detector of `clean` rejects between "
            f"{100 * min(found):.0f} and {100 * max(found):.0f} % of them at a target of 5 % good inputs lost, depending on the "
            "features (the lowest and the highest of all single splits). [New inputs](#new-inputs-rejected-or-not)"
        )
    if engine is not None:
        lines.append(
            f"- **Cost.** An epoch of NGC on {engine['samples']:,} images takes "
            f"{engine['epoch']:.1f} s on an {engine['machine']['gpu']}, {seconds(engine['cleaning'])} of it for cleaning. "
            "[Training](#training-on-a-gpu), [the graph step](#the-graph-step-on-two-cores)"
        )
    listed = "\n".join(lines)
    return f"""# Benchmarks

How well graphclean finds wrong labels and rejects unknown inputs, and what it costs. The paper's own benchmarks are on
[their own page](reproduction.md).

{headline()}

{listed}

Every table and plot on this page is generated from recorded runs (`benchmarks/results/`), and a test checks that it is up
to date. `benchmarks/README.md` explains how each one is measured.
"""


def further_losses() -> str:
    """Where training, the detector and the neighbor search are behind, one sentence each."""
    detectors, graph = load("detectors"), load("graph-cpu")
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
        ("1,500 photos, 30 % of the labels random", "photos", audit),
        ("the same photos; in five classes, 40 % of the labels changed to another class", "asym 40 %", audit),
        ("look-alike classes of CIFAR-100, 30 % flipped to the other of a pair", "pairs", further),
    ):
        if result is not None:
            found = result["summary"][group]
            peer = f"{found['cleanlab_best']['mislabel_f1']:.3f}"
            rows.append([name, f"**{found['ours']['mislabel_f1']:.3f}** F1", f"{peer} cleanlab"])
    rows.append(paper_row())
    table = markdown_table(["", "graphclean", "peer"], rows)
    notes = [
        "F1 is of finding wrong labels. Both get the same features; graphclean uses its defaults, cleanlab the best "
        "regularization and filter for each set, chosen by the truth.",
        "The last row is the paper's own benchmark, with the preset `cifar10-lond-plus`.",
    ]
    return f"{table}\n\n{' '.join([*notes, one_core()])}"


def pages() -> dict[Path, str]:
    """The expected content of every page with measured figures."""
    return {
        PAGE: render(),
        RELIABILITY: reliability_page(load("chaos")),
        README: with_measured(README.read_text(), {"": headline()}),
        REPRODUCTION: with_measured(REPRODUCTION.read_text(), {"": paper_cells(), " missing": missing()}),
        PROCESSES: with_measured(
            PROCESSES.read_text(), {"": measured_section(), " growth": growth_section()}
        ),
        LOG: with_measured(LOG.read_text(), {" steps": steps(), "": ledger()}),
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
        print(path)
