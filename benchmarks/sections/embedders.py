"""Comparison of embedders."""

from typing import Any

from common import Section, describe, shown
from graphclean.bench.markdown import markdown_table
from sections.audit import spread_cell

OF_VERDICTS = {
    "mislabel_f1": "mislabel F1",
    "issue_f1": "any-issue F1",
    "label_accuracy": "label accuracy",
    "ood_auroc": "OOD AUROC",
}
OF_NEW = {
    "accuracy": "accuracy",
    "auroc": "OOD AUROC",
    "known_rejected": "known rejected",
    "ood_rejected": "OOD rejected",
}

GIVEN_RIGHT = 0.7
"""About the fraction of given labels that are right."""


def embedders_section(result: dict[str, Any]) -> Section:
    """A row per embedder: its cost, its verdicts, and new photos."""
    run = [entry for entry in result["embedders"] if "not_run" not in entry]
    missing = ", ".join(f"`{entry['embedder']}`" for entry in result["embedders"] if "not_run" in entry)
    rows = [
        [
            entry["embedder"],
            f"{entry['cpu_seconds_per_1000']:.1f}",
            f"{entry['pixels']}",
            f"{entry['features']:,}",
            *(spread_cell(entry["verdicts"][c]) for c in OF_VERDICTS),
        ]
        for entry in run
    ]
    new = [[entry["embedder"], *(spread_cell(entry["new"][c]) for c in OF_NEW)] for entry in run]
    worse = [e["embedder"] for e in run if e["verdicts"]["label_accuracy"]["mean"] < GIVEN_RIGHT]
    head = ["embedder", "CPU seconds for 1,000 photos", "pixels per side", "features"]
    chart = f"""{shown("bench-embedders", "Label accuracy and accuracy on new photos against CPU seconds, for each embedder")}
`clean` on the photos under symmetric noise (30 %). Below a label accuracy of {GIVEN_RIGHT}, verdicts leave the labels worse than
before: with {" and ".join(worse) or "none"}, the baselines. Both EfficientNets were trained on the photos' ten
classes, among a thousand, so expect less on other subjects. Not run: {missing or "none"}."""
    numbers = f"""`clean` on the {result["photos"]:,} photos: labels as shipped and {result["draws"] - 1} noise seeds like them, mean ± standard deviation. CPU
seconds include reading and resizing the photos. "–": no class signal in the features, and so no verdicts.

{markdown_table([*head, *OF_VERDICTS.values()], rows)}

{markdown_table(["on new photos", *OF_NEW.values()], new)}

{describe(result)}
"""
    return Section("Embedders", chart, numbers)
