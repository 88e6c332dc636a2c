"""The estimates of `clean` compared with the ground truth, and the gain from its choices."""

from typing import Any

import numpy as np

from common import Section, describe, shown
from graphclean.bench.markdown import markdown_table

KINDS = ("keep", "relabel", "ood")
CLOSE = {"verdicts": 0.05, "rate": 0.02}
"""Maximum error of an estimate to count as right."""


def estimates_section(result: dict[str, Any]) -> Section:
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
    within = {
        f"`{kind}`": _within([draw["verdicts"].get(kind) for draw in result["draws"]], "right", "verdicts")
        for kind in KINDS
    }
    within["the OOD rate (within 2 points)"] = _within(
        [draw["ood_rate"] for draw in result["draws"]], "true", "rate"
    )
    listed = "\n".join(f"- {name}: {text}" for name, text in within.items())
    columns = ["set", "noise seeds", *(f"`{kind}`" for kind in KINDS), "OOD rate"]
    chart = f"""{shown("bench-estimates", "Mean error of the estimates that clean reports, in points, by set")}
`clean` reports how many of 100 verdicts are right, and the OOD rate. Where it can't estimate them well enough, it reports "too
unsure to say" or "unknown". Of the reported estimates, these are within 5 points of the fraction that is right:

{listed}

The limits for reporting were chosen on these same sets, so expect less on others."""
    numbers = f"""A cell reads: reported / all: number within 5 points of the ground truth (2 for the OOD rate), and the largest error in points
(positive if the estimate is too high).

- Digits are raw pixels. CIFAR-10 and 16 classes of TinyImageNet are features of EfficientNet-Lite0. Each has 0, 7 or 20 OOD
  samples per 100 known ones, and symmetric noise (10 or 30 %), or 30 % flipped to the next class.
- The other sets are [those compared with other tools](#other-data-sets-and-tools). The limits for reporting were chosen on these same sets.
- If classes overlap, labels alone hardly distinguish OOD from noise: with OOD, the rate may be off by 4 points.

{markdown_table(columns, rows)}

{describe(result)}
"""
    return Section("How well `clean` estimates its own errors", chart, numbers)


def _within(found: list[dict[str, Any] | None], truth: str, kind: str) -> str:
    there = [entry for entry in found if entry is not None]
    errors = [e["estimated"] - e[truth] for e in there if e["estimated"] is not None]
    close = sum(abs(error) <= CLOSE[kind] for error in errors)
    return (
        f"{close} of {len(errors)}; reported on {len(errors)} of the {len(there)} noise seeds that have any"
    )


def _errors(found: list[dict[str, Any] | None], truth: str, kind: str) -> str:
    there = [entry for entry in found if entry is not None]
    errors = [e["estimated"] - e[truth] for e in there if e["estimated"] is not None]
    if not errors:
        return f"0 / {len(there)}"
    close = sum(abs(error) <= CLOSE[kind] for error in errors)
    worst = 100 * max(errors, key=abs)
    return f"{len(errors)} / {len(there)}: {close} within, worst {worst:+.1f}"


def choices_section(result: dict[str, Any]) -> Section:
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
    changes = [
        f"{entry['set']}, {entry['neighbors alone']['ranking']:.3f} to {entry['chosen']['ranking']:.3f}"
        for entry in result["class_means"]
    ]
    digits = result["digits"]
    names = [name for name in digits[0] if name != "seed"]
    means = [f"{100 * np.mean([row[name] for row in digits]):.1f} %" for name in names]
    chart = f"""{shown("bench-choices", "Average precision of label scores for wrong labels, by neighbors alone and as chosen")}
`clean` combines neighbors with class means where that makes held-out labels more likely (`cleaning.classifier`). The average
precision of the ranking by label quality changes little: {"; ".join(changes)}. It has not been measured on human errors."""
    numbers = f"""Average precision of label scores for wrong labels, under symmetric noise (30 %). CPU seconds are medians of three runs in turn.

{markdown_table(["set", "", "class means", "ranking", "CPU seconds", "× neighbors alone"], rows)}

`NoisyGraphClassifier` and k-NN from scikit-learn, both trained on raw digits under symmetric noise (30 %): accuracy on new
digits, means over {len(digits)} splits.

{markdown_table(names, [means])}

{describe(result)}
"""
    return Section("What choosing by likelihood gains", chart, numbers)
