"""The estimates of `clean` compared with the truth, and the gain from its choices."""

from typing import Any

import numpy as np

from common import describe
from graphclean.bench.markdown import markdown_table

KINDS = ("keep", "relabel", "ood")
CLOSE = {"verdicts": 0.05, "rate": 0.02}
"""Maximum error of an estimate to count as right."""


def estimates_section(result: dict[str, Any]) -> str:
    """By set: the number of estimates reported, how many are right, and the largest error."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for draw in result["draws"]:
        groups.setdefault(draw["group"], []).append(draw)
    groups["all"] = result["draws"]
    rows = []
    for group, draws in groups.items():
        cells = [
            _errors([draw["verdicts"].get(kind) for draw in draws], "right", "verdicts") for kind in KINDS
        ]
        rates = _errors([draw["ood_rate"] for draw in draws], "true", "rate")
        rows.append([group, str(len(draws)), *cells, rates])
    columns = ["set", "draws", *(f"`{kind}`" for kind in KINDS), "OOD rate"]
    return f"""## What `clean` estimates of itself

"About N of 100 right" and the OOD rate, next to the truth. Estimates that are reported / of so many: those within 5 points (of
the OOD rate within 2), and the worst error in points, its sign that of estimate − truth. The others read "too unsure to say" or
"unknown". Digits as pixels, CIFAR-10 and 16 classes of TinyImageNet under EfficientNet-Lite0, each with no OOD samples, 7 or 20 for
every 100 known ones, and 10 or 30 % of the labels resampled or 30 % flipped to the next class; then the further sets. When an
estimate is reported was chosen on these sets. Labels alone tell OOD from noise badly where classes overlap: the rate may be 4
points off where OOD is found.

{markdown_table(columns, rows)}

{describe(result)}
"""


def _errors(found: list[dict[str, Any] | None], truth: str, kind: str) -> str:
    there = [entry for entry in found if entry is not None]
    errors = [e["estimated"] - e[truth] for e in there if e["estimated"] is not None]
    if not errors:
        return f"0 / {len(there)}"
    close = sum(abs(error) <= CLOSE[kind] for error in errors)
    worst = 100 * max(errors, key=abs)
    return f"{len(errors)} / {len(there)}: {close} within, worst {worst:+.1f}"


def choices_section(result: dict[str, Any]) -> str:
    """The chosen class means compared with neighbors alone, and the estimator on raw pixels."""
    rows = []
    for entry in result["class_means"]:
        for way in ("neighbors alone", "chosen"):
            found = entry[way]
            ratio = found["cpu_seconds"] / entry["neighbors alone"]["cpu_seconds"]
            rows.append(
                [
                    f"{entry['set']}, {entry['samples']:,} samples" if way == "neighbors alone" else "",
                    way,
                    "yes" if found["class_means"] else "no",
                    f"{found['ranking']:.3f}",
                    f"{found['cpu_seconds']:.2f}",
                    f"{ratio:.2f}",
                ]
            )
    digits = result["digits"]
    names = [name for name in digits[0] if name != "seed"]
    means = [f"{100 * np.mean([row[name] for row in digits]):.1f} %" for name in names]
    return f"""## What is chosen by likelihood

Class means next to neighbors alone (`cleaning.classifier=knn`): average precision of the label scores for wrong labels, 30 % of
them resampled, and CPU seconds, medians of three runs in turn. On errors that people made it was not measured: that needs a set
whose errors were judged by people.

{markdown_table(["set", "", "class means", "ranking", "CPU seconds", "× neighbors alone"], rows)}

`NoisyGraphClassifier` next to k-NN from scikit-learn, both trained on raw digits with 30 % of the labels resampled: accuracy on
new digits, means over {len(digits)} splits.

{markdown_table(names, [means])}

{describe(result)}
"""
