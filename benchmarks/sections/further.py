"""`clean` compared with other cleaners on other data sets."""

from typing import Any

from common import Section, describe, shown
from further import wins_and_losses
from graphclean.bench.markdown import markdown_table
from peers import FURTHER_COLUMNS

CLEANERS = {
    "ours": "**graphclean `clean`**",
    "cleanlab": "cleanlab, defaults",
    "cleanlab_best": "cleanlab, best options",
    "datalab": "cleanlab's Datalab",
    "dataeval": "dataeval",
    "selfclean": "SelfClean's score",
}
FURTHER_SETS = {
    "pairs": "look-alike classes of CIFAR-100, 30 % flipped within the pair",
    "imbalanced": "CIFAR-10, imbalanced 10 to 1, some OOD, symmetric noise (20 %)",
    "15 a class": "CIFAR-10, 15 images a class, symmetric noise (20 %)",
    "no OOD": "CIFAR-10 without OOD, symmetric noise (30 %)",
    "no noise": "CIFAR-10, all labels right",
    "digits": "digits, raw pixels, symmetric noise (30 %)",
    "text": "docstrings by package, TF-IDF, symmetric noise (20 %)",
}
NAMES = {
    "mislabel_f1": "mislabel F1",
    "issue_f1": "any-issue F1",
    "label_accuracy": "label accuracy",
    "ranking": "ranking",
    "ood_auroc": "OOD AUROC",
    "false_flags": "right labels flagged",
}


def further_section(result: dict[str, Any]) -> Section:
    """The scores of every cleaner, then wins and losses."""
    rows = []
    for group, entry in result["summary"].items():
        for who, name in CLEANERS.items():
            if entry[who]:
                cells = [f"{entry[who][c]:.3f}" if c in entry[who] else "–" for c in FURTHER_COLUMNS]
                rows.append([FURTHER_SETS[group] if who == "ours" else "", name, *cells])
    summary = result["summary"]
    places = wins_and_losses(summary)
    gains = [
        [FURTHER_SETS[group], *(_gain(found, c) for c in FURTHER_COLUMNS)] for group, found in places.items()
    ]
    ahead = sum(not found["behind"] for found in places.values())
    behind = "; ".join(
        f"{FURTHER_SETS[group]}: {list_columns(found['behind'])}"
        for group, found in places.items()
        if found["behind"]
    )
    chart = f"""{shown("bench-further", "Mislabel F1 on each of the other data sets: clean of graphclean, Datalab, cleanlab with its best options, and dataeval")}
Look-alike classes, imbalance, few samples, no OOD, no noise, raw pixels and text. On {ahead} of {len(places)} sets no other
tool is ahead of `clean` in any score, by means over noise seeds. Behind: {behind or "none"}."""
    numbers = f"""Every tool gets the same features; scores are means over noise seeds.

- Ranking is the average precision of the label scores for wrong labels.
- Right labels flagged is the fraction of right labels with a verdict against them.
- cleanlab's defaults are at C = 1. Datalab's C is chosen by log-loss. "Best options" chooses filter and C (1, 0.01 or 0.001)
  for each column and noise seed by the ground truth.
- dataeval flags at a distance ratio of 1.
- SelfClean's label-error score is reimplemented from its paper. It ranks, and leaves the cutoff to its user.
- The digits, the text set and the other superclasses of CIFAR-100 were looked at while settings were chosen; the other images
  were not.

{markdown_table(["set", "", *(NAMES[c] for c in FURTHER_COLUMNS)], rows)}

Gain of `clean` over the best of the other tools in each column (for right labels flagged, + means that fewer are):

{markdown_table(["set", *(NAMES[c] for c in FURTHER_COLUMNS)], gains)}

{describe(result)}
"""
    return Section("Other data sets and tools", chart, numbers)


def _gain(places: dict[str, list[tuple[str, float, str]]], column: str) -> str:
    found = [gain for place in places.values() for c, gain, _ in place if c == column]
    return f"{found[0]:+.3f}" if found else "–"


def list_columns(places: list[tuple[str, float, str]]) -> str:
    """Columns with the gain over the best other tool, and its name."""
    return ", ".join(f"{NAMES[c]} {gain:+.3f} ({CLEANERS[who]})" for c, gain, who in places)
