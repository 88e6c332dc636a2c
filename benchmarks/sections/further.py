"""`clean` compared with other cleaners on further sets."""

from typing import Any

from common import describe, shown
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
    "pairs": "look-alike classes of CIFAR-100, 30 % flipped to the other of a pair",
    "imbalanced": "CIFAR-10, the last class a tenth of the first, some OOD, 20 % wrong",
    "15 a class": "CIFAR-10, 15 images a class, 20 % wrong",
    "no OOD": "CIFAR-10 without OOD, 30 % wrong",
    "no noise": "CIFAR-10, all labels right",
    "digits": "digits, raw pixels, 30 % wrong",
    "text": "docstrings by package, TF-IDF, 20 % wrong",
}
NAMES = {
    "mislabel_f1": "mislabel F1",
    "issue_f1": "any-issue F1",
    "label_accuracy": "label accuracy",
    "ranking": "ranking",
    "ood_auroc": "OOD AUROC",
    "false_flags": "right labels flagged",
}


def further_section(result: dict[str, Any]) -> str:
    """The table, then wins and losses, then how accurate its own estimates are."""
    rows = []
    for group, entry in result["summary"].items():
        for who, name in CLEANERS.items():
            if entry[who]:
                cells = [f"{entry[who][c]:.3f}" if c in entry[who] else "–" for c in FURTHER_COLUMNS]
                rows.append([FURTHER_SETS[group] if who == "ours" else "", name, *cells])
    places = "\n".join(
        f"- {FURTHER_SETS[group]}: "
        + "; ".join(f"{place} in {list_columns(columns)}" for place, columns in places.items() if columns)
        for group, places in wins_and_losses(result["summary"]).items()
    )
    return f"""## Further sets and peers

{shown("bench-further", "Mislabel F1 on each further set: clean of graphclean, Datalab, cleanlab with its best options, and dataeval")}
Every tool gets the same features; means over noise seeds. Ranking is the average precision of the label scores for wrong
labels; right labels flagged is the fraction of right labels with a verdict against them. Only cleanlab also scores OOD.
dataeval flags at a distance ratio of 1. SelfClean's label-error score is reimplemented from its paper: it ranks, and leaves
the cutoff to its user. cleanlab's defaults are at C = 1, Datalab's C is chosen by log-loss, and "best options" chooses filter and C (1, 0.01 or
0.001) per column by the truth, at most 300 iterations. The digits, the text
set and the other superclasses of CIFAR-100 were looked at while settings were chosen; the other images were not.

{markdown_table(["set", "", *(NAMES[c] for c in FURTHER_COLUMNS)], rows)}

Compared with the best of all peers in each column, named in brackets (for right labels flagged, + means that fewer are):

{places}

What `clean` estimates of its own verdicts, where it does, and the truth:

{honesty_table(result["draws"])}

{describe(result)}
"""


def list_columns(places: list[tuple[str, float, str]]) -> str:
    """Columns with the gain over the best peer, and its name."""
    return ", ".join(f"{NAMES[c]} {gain:+.3f} ({CLEANERS[who]})" for c, gain, who in places)


def honesty_table(draws: list[dict[str, Any]]) -> str:
    """Estimated and true fractions, by noise seed."""
    rows = []
    for draw in draws:
        cells = []
        for verdict in ("keep", "relabel", "ood"):
            found = draw["honesty"].get(verdict)
            cells.append(f"{found['estimated']:.3f} / {found['right']:.3f}" if found else "–")
        rate = draw["ood_rate"]
        estimated = f"{rate['estimated']:.3f}" if rate["estimated"] is not None else "–"
        rows.append([f"{draw['group']}, {draw['draw']}", *cells, f"{estimated} / {rate['true']:.3f}"])
    return markdown_table(["estimated / true", "keep", "relabel", "ood", "OOD rate"], rows)
