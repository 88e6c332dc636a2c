"""Write the measured parts of the docs from the recorded results: no number in them is typed by hand.

python benchmarks/tables.py
"""

from pathlib import Path

from common import load, seconds, with_measured
from graphclean.bench.markdown import markdown_table
from paper_runs import ledger, paper_cells, steps
from sections.audit import COLUMNS, SETS, WHO, audit_section, one_core, scorings_section
from sections.detectors import detectors_section
from sections.duplicates import duplicates_section
from sections.embedders import embedders_section
from sections.further import further_section
from sections.graph import STAGES, cpu_section, cuda_section
from sections.methods import methods_section
from sections.training import demo_section, engine_section, few_section, mistakes_section

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
README = Path(__file__).parents[1] / "README.md"
REPRODUCTION = Path(__file__).parents[1] / "docs" / "reproduction.md"


def render() -> str:
    """The whole page."""
    parts = [
        "# Benchmarks\n\nMade by `benchmarks/tables.py` from `benchmarks/results/`; how it is measured: `benchmarks/README.md`.\n"
    ]
    sections = {
        "audit": audit_section,
        "audit-further": further_section,
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
    }
    for name, section in sections.items():
        result = load(name)
        parts.append(section(result) if result is not None else f"## {name}\n\nNot run.\n")
    return "\n".join(parts)


def headline() -> str:
    """The few numbers the README shows, between its markers."""
    audit, cpu, cuda = load("audit"), load("graph-cpu"), load("graph-cuda")
    rows = []
    if audit is not None:
        for group in ("photos", "asym 40 %", "cifar"):
            entry = audit["summary"][group]
            for who in ("ours", "train", "cleanlab_best"):
                cells = [f"{entry[who][c]:.3f}" for c in COLUMNS if c not in ("three_way_f1", "seconds")]
                name = WHO[who] if who != "cleanlab_best" else "cleanlab, best C and option each time"
                rows.append(
                    [SETS[group] if who == "ours" else "", name, *cells, f"{entry[who]['seconds']:.2f}"]
                )
    parts = [
        markdown_table(
            ["", "", "mislabel F1", "any-issue F1", "label accuracy", "OOD AUROC", "seconds"], rows
        )
    ]
    sentences = [one_core()] if audit is not None else []
    demo = load("demo")
    if demo is not None:
        told = {}
        for who in ("ce", "ngc"):
            accuracy = [run[who]["accuracy"] for run in demo["runs"]]
            auroc = [run[who]["auroc"] for run in demo["runs"]]
            told[who] = (
                f"accuracy {100 * min(accuracy):.1f} to {100 * max(accuracy):.1f} %, "
                f"AUROC {min(auroc):.3f} to {max(auroc):.3f}"
            )
        parts.append(
            f"Trained on digits with half of the labels drawn anew and two digits of no class among them, "
            f"{len(demo['runs'])} seeds: {told['ngc']}; plain cross-entropy: {told['ce']}."
        )
    parts.append(paper_cells())
    if cpu is not None:
        point = next(p for p in cpu["points"] if (p["n"], p["k"], p["classes"]) == (70_000, 30, 10))
        after = sum(point["stages"][s]["seconds"] for s in STAGES[1:])
        search = seconds(point["stages"]["search"]["seconds"])
        sentences.append(
            f"70,000 points on two cores: {search} to find exact neighbors, {seconds(after)} for all the rest."
        )
    if cuda is not None:
        whole = {(p["n"], p["k"]): p["whole"]["seconds"] for p in cuda["points"] if p["classes"] == 10}
        sentences.append(
            f"On one {cuda['machine']['gpu']}: {seconds(whole[70_000, 30])} in all, "
            f"and {seconds(whole[1_000_000, 30])} for a million."
        )
    parts.insert(1, " ".join(sentences))
    return "\n\n".join(parts)


def pages() -> dict[Path, str]:
    """Every page with measured figures, as it should be."""
    return {
        PAGE: render(),
        README: with_measured(README.read_text(), {"": headline()}),
        REPRODUCTION: with_measured(
            REPRODUCTION.read_text(), {" short": paper_cells(), " steps": steps(), "": ledger()}
        ),
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
        print(path)
