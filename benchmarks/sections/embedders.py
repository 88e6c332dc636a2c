"""Which embedder to take."""

from typing import Any

from common import describe
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
    "known_rejected": "known ones rejected",
    "ood_rejected": "OOD rejected",
}


def embedders_section(result: dict[str, Any]) -> str:
    """A row an embedder: what it costs, its verdicts, and new photos."""
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
    head = ["embedder", "CPU seconds for 1,000 photos", "pixels a side", "features"]
    return f"""## Embedders

`clean` on the {result["photos"]:,} photos under each embedder: labels as shipped and {result["draws"] - 1} draws like them, mean ±
deviation; new photos as above. Raw pixels and color histograms are the floor. 30 % of the labels are resampled: under a label
accuracy of 0.7, verdicts leave labels worse than they were. Seconds are those of the processor, reading
and resizing of the photos included. The photos' ten classes are among the thousand that both EfficientNets were trained
on: on other subjects expect less of them. What was not run needs packages or weights that were not there. "–":
not run, or no class signal in the features, and no verdicts.

{markdown_table([*head, *OF_VERDICTS.values(), *OF_NEW.values()], rows)}

{describe(result)}
"""
