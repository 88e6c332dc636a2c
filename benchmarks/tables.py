"""Write the measured parts of the docs from the recorded results: no number in them is typed by hand.

python benchmarks/tables.py
"""

from pathlib import Path

from common import load, with_measured
from graphclean.bench.markdown import markdown_table
from paper_runs import ledger, paper_cells, paper_row, steps
from sections.audit import audit_section, one_core, scorings_section
from sections.detectors import detectors_section
from sections.duplicates import duplicates_section
from sections.embedders import embedders_section
from sections.further import further_section
from sections.graph import cpu_section, cuda_section
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
    audit, further = load("audit"), load("audit-further")
    rows = []
    for name, group, result in (
        ("1,500 photos, 30 % of the labels random", "photos", audit),
        ("the same, 40 % of five classes flipped to another", "asym 40 %", audit),
        ("look-alike classes of CIFAR-100, 30 % flipped to the other of a pair", "pairs", further),
    ):
        if result is not None:
            found = result["summary"][group]
            peer = f"{found['cleanlab_best']['mislabel_f1']:.3f}"
            rows.append([name, f"**{found['ours']['mislabel_f1']:.3f}** F1", f"{peer} cleanlab"])
    rows.append(paper_row())
    table = markdown_table(["", "graphclean", "peer"], rows)
    notes = [
        "F1 is of the wrong labels found. graphclean has its defaults, cleanlab the same features and, with the "
        "truth at hand, the best regularization and filter for each set.",
        "The last row is the paper's own benchmark, with our preset `cifar10-lond-plus`.",
    ]
    return f"{table}\n\n{' '.join([*notes, one_core()])}"


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
