"""Comparison of embedders."""

from typing import Any

from common import describe, shown
from graphclean.bench.markdown import markdown_table
from sections.audit import spread_cell

OF_VERDICTS = {
    "mislabel_f1": "mislabel F1",
    "issue_f1": "any-issue F1",
    "label_accuracy": "label accuracy",
    "ood_auroc": "OOD AUROC",
}
OF_NEW = {
    "accuracy": "new photos: accuracy",
    "auroc": "OOD AUROC",
    "known_rejected": "known rejected",
    "ood_rejected": "OOD rejected",
}


def embedders_section(result: dict[str, Any]) -> str:
    """A row per embedder: its cost, its verdicts, and new photos."""
    rows = []
    for entry in result["embedders"]:
        if "not_run" in entry:
            rows.append(
                [entry["embedder"], "not run", *("–" for _ in range(2 + len(OF_VERDICTS) + len(OF_NEW)))]
            )
            continue
        cost = [f"{entry['cpu_seconds_per_1000']:.1f}", f"{entry['pixels']}", f"{entry['features']:,}"]
        scores = [spread_cell(entry["verdicts"][c]) for c in OF_VERDICTS]
        rows.append([entry["embedder"], *cost, *scores, *(spread_cell(entry["new"][c]) for c in OF_NEW)])
    head = ["embedder", "CPU seconds for 1,000 photos", "pixels per side", "features"]
    return f"""## Embedders

{shown("bench-embedders", "Label accuracy and accuracy on new photos against CPU seconds, for each embedder")}
`clean` on the {result["photos"]:,} photos with each embedder: labels as shipped and {result["draws"] - 1} noise seeds like them, mean ±
standard deviation; new photos as above. Raw pixels and color histograms are baselines. 30 % of the labels are resampled, so
below a label accuracy of 0.7 verdicts leave the labels worse than before. CPU seconds include reading and resizing the
photos. Both EfficientNets were trained on the photos' ten classes, among a thousand: expect less on other subjects. "–": not
run (packages or weights were not available), or no class signal in the features, and so no verdicts.

{markdown_table([*head, *OF_VERDICTS.values(), *OF_NEW.values()], rows)}

{describe(result)}
"""
