"""Near-duplicates: flagged groups, and the cost of joining."""

from typing import Any

from common import Section, describe, shown, when
from graphclean.bench.markdown import markdown_table

WHO = {
    "clean": "**graphclean `clean`**",
    "features alone": "`clean` on features alone, without hashes",
    "not joined": "`clean`, `cleaning.near_duplicates=false`",
    "Datalab": "cleanlab's Datalab, label issues",
    "cleanlab, predicted ≠ given": "cleanlab, `predicted_neq_given`",
}
AIM = 0.9
"""Aim for the rate of flagged wrong groups, relative to that of single wrong labels."""
SETS = {"photos": "photos", "cifar": "CIFAR-10"}
OTHERS = {"clean": "other labels right", "25 % wrong": "other labels under symmetric noise (25 %)"}


def duplicates_section(result: dict[str, Any]) -> Section:
    """Rates by group size, the groups found, and the cost."""
    summary = result["summary"]
    sizes = list(next(iter(next(iter(summary.values())).values())))
    seeds = 1 + max(draw["seed"] for draw in result["draws"])
    rows = []
    for noise, entry in summary.items():
        for who, name in WHO.items():
            if who not in entry:
                continue
            scores = entry[who]
            rates = [f"{100 * scores[size]['wrong_flagged']:.0f}" for size in sizes]
            right = [scores[size]["right_flagged"] for size in sizes]
            others = [scores[size]["others_flagged"] for size in sizes]
            alarms = [f"{100 * sum(part) / len(part):.1f}" for part in (right, others)]
            rows.append([OTHERS[noise] if who == "clean" else "", name, *rates, *alarms])
    head = ["", "", *("single" if size == "1" else f"of {size}" for size in sizes)]
    groups = [
        [WHO[who], *(f"{100 * summary['clean'][who][size]['whole']:.0f}" for size in sizes if size != "1")]
        for who in ("clean", "features alone", "Datalab")
        if who in summary["clean"]
    ]
    found = [draw["scores"]["clean"] for draw in result["draws"]]
    joined, mixed = (sum(scores[key] for scores in found) for key in ("groups", "groups_of_two_classes"))
    cifar = markdown_table(
        ["CIFAR-10 training images", "groups", "of two classes"],
        [
            [name, str(row["groups"]), str(row["groups_of_two_classes"])]
            for name, row in result["cifar"].items()
        ],
    )
    cost = markdown_table(
        ["no duplicates added", "samples", "groups found", "mislabel F1, joined", "not joined", "CPU seconds, joined", "not joined"],
        [
            [SETS[name], f"{row['samples']:,}", f"{row['groups_joined']:.0f}", f"{row['f1_joined']:.4f}",
             f"{row['f1_not_joined']:.4f}", f"{row['seconds_joined']:.2f}", f"{row['seconds_not_joined']:.2f}"]
            for name, row in result["without_duplicates"].items()
        ],
    )  # fmt: skip
    peers = result.get("peers_machine")
    since = f" cleanlab's rows: {when(peers)}, the same noise seeds." if peers is not None else ""
    chart = f"""{shown("bench-duplicates", "Flagged copies of wrongly labeled photos by the number of copies, in percent: without joining near-duplicates, clean finds none of them")}
Copies of one photo under the same wrong label confirm each other. `clean` therefore joins
[near-duplicates](verdicts.md#near-duplicates) before it judges labels. Groups should be flagged at least {AIM} times as often
as single photos:

{describe_aim(summary, sizes)}"""
    numbers = f"""1,200 photos of ten classes. 40 of them have a wrong label and appear once or as a group of 2 to 8 modified copies with that
label; 40 more do so with the right label. Copies are saved again, scaled to 60 %, cropped by 5 %, brightened or darkened, or
several of these. All other labels are right, or have symmetric noise (25 %).

The table shows the fraction of samples that are flagged (`relabel` or `ood`; cleanlab: a label issue), in %, as means over
{seeds} seeds: of those in wrong groups, in right groups, and of other right labels. cleanlab gets 5-fold logistic regression with
C = 1e-3.

{markdown_table([*head, "right groups flagged", "other right labels flagged"], rows)}

Groups found completely, in %:

{markdown_table(["", *(f"of {size}" for size in sizes if size != "1")], groups)}

Over all seeds `clean` found {joined} groups of photos, {mixed} of which join two classes.

{cifar}

{cost}

{describe(result)}{since}
"""
    return Section("Near-duplicates", chart, numbers)


def describe_aim(summary: dict[str, Any], sizes: list[str]) -> str:
    """Whether groups with a wrong label are flagged nearly as often as single samples."""
    parts = []
    for who in ("clean", "features alone"):
        for noise, entry in summary.items():
            single = entry[who]["1"]["wrong_flagged"]
            lowest = min(sizes[1:], key=lambda size: entry[who][size]["wrong_flagged"])
            ratio = entry[who][lowest]["wrong_flagged"] / single
            verdict = "reached" if ratio >= AIM else "missed"
            parts.append(
                f"- {WHO[who]}, {OTHERS[noise]}: {verdict}, at worst {ratio:.2f} (groups of {lowest})"
            )
    return "\n".join(parts)
