"""Verdicts on features, and detection on new photos."""

from typing import Any

from common import describe, load
from graphclean.bench.markdown import markdown_table

COLUMNS = {
    "mislabel_f1": "mislabel F1",
    "issue_f1": "any-issue F1",
    "label_accuracy": "label accuracy",
    "ood_auroc": "OOD AUROC",
    "three_way_f1": "three-way F1",
    "seconds": "seconds",
}
SETS = {
    "photos": "photos, 30 % wrong",
    "sym 10 %": "photos, 10 % wrong",
    "sym 60 %": "photos, 60 % wrong",
    "pair 30 %": "photos, 30 % flipped to the next class",
    "asym 40 %": "photos, 40 % of five classes flipped to another",
    "cifar": "CIFAR-10 + TinyImageNet, 40 % wrong",
    "cifar asym": "CIFAR-10 + TinyImageNet, 40 % of five classes flipped to another",
}
WHO = {
    "ours": "**graphclean `clean`**",
    "train": "**graphclean `train`**",
    "datalab": "cleanlab's Datalab, C by its own log-loss, defaults",
    "cleanlab_best": "cleanlab, best C and best option per column and draw",
}
OF_NEW = {
    "accuracy": "accuracy",
    "auroc": "AUROC",
    "known_rejected": "known ones rejected",
    "ood_rejected": "OOD rejected",
}
WAYS = {
    "graph": "`clean`",
    "prototypes": "`clean`, class prototypes, which that commit offered",
    "heads": "`train`",
    "gain": "`train` − `clean`, draw by draw",
}


def one_core() -> str:
    """The same time on a single core, where neither waits for threads."""
    result = load("audit-one-core")
    if result is None:
        return "On a single core: not run."
    times = (
        f"{entry['clean']:.2f} s for `clean`, {entry['cleanlab']:.2f} s for cleanlab ({SETS[group].split(',')[0]})"
        for group, entry in result["seconds"].items()
    )
    return f"On a single core: {'; '.join(times)}."


def audit_section(result: dict[str, Any]) -> str:
    rows = []
    for group, entry in result["summary"].items():
        for who, name in WHO.items():
            values = entry[who]
            cells = [
                f"{values[c]:.2f}" if c == "seconds" else f"{values[c]:.3f}" if c in values else "–"
                for c in COLUMNS
            ]
            rows.append([f"{SETS[group]} ({entry['draws']} draws)" if who == "ours" else "", name, *cells])
    behind = [
        f"`{'clean' if who == 'ours' else who}`, {SETS[group]}: {COLUMNS[column]} on {count} of {entry['draws']}"
        for group, entry in result["summary"].items()
        for who, columns in entry["behind_on_draws"].items()
        for column, count in columns.items()
        if count
    ]
    losing = "; ".join(behind) if behind else "none"
    quiet = markdown_table(
        ["1,200 photos without OOD", "wrong labels", "flagged", "of them wrong", "`ood` verdicts"],
        [[name, str(row["wrong"]), str(row["flagged"]), str(row["flagged_wrong"]), str(row["ood_verdicts"])]
         for name, row in result["without_ood"].items()],
    )  # fmt: skip
    return f"""## Verdicts on features, beside cleanlab

The same features (EfficientNet-Lite0), the same noise draws; means over the draws. Photos: 1,200 of ten classes and
300 scenes of none. CIFAR: 2,400 + 600 images. Columns as in [verdicts](verdicts.md#scores). `train` is with its preset
`embeddings`. cleanlab works on 5-fold logistic regression with C from {{1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 1e-1}}. Datalab looks
for label issues and outliers; an outlier is its OOD verdict. "Best" may choose C, filter (default or
`predicted_neq_given`) and OOD score (features, raw features or predicted probabilities) per column and per draw, by the
truth, which nobody has in practice; it gives no three-way verdict. Seconds are medians from features to table: `clean` with
its whole search over k, `train` with its model besides, cleanlab for one C (in the "best" row its quickest). {one_core()}

{markdown_table(["set", "", *COLUMNS.values()], rows)}

Draws on which cleanlab's best is ahead of us: {losing}.

{quiet}

### New photos

450 photos that were not trained on, 150 of them of no class; mean ± deviation over the draws. "Rejected" is at the threshold
each found by itself.

{new_photos_table({SETS[group]: entry for group, entry in result["new_photos"].items()})}

{describe(result)} Since then `clean` joins near-duplicates, takes class means where held-out labels ask for them and
has another detector: see the further sets and what is rejected of new inputs, below.
"""


def new_photos_table(sets: dict[str, dict[str, Any]], ways: tuple[str, ...] = tuple(WAYS)) -> str:
    """Scores on new photos by set and way."""
    rows = []
    for name, entry in sets.items():
        for way in (way for way in ways if way in entry):
            cells = [spread_cell(entry[way][c], "+" if way == "gain" else "") for c in OF_NEW]
            rows.append([f"{name} ({entry['draws']} draws)" if way == ways[0] else "", WAYS[way], *cells])
    return markdown_table(["set", "", *OF_NEW.values()], rows)


def spread_cell(found: dict[str, float | None], sign: str = "") -> str:
    """Mean ± deviation, where there is one."""
    return "–" if found["mean"] is None else f"{found['mean']:{sign}.3f} ± {found['sd']:.3f}"


def scorings_section(result: dict[str, Any]) -> str:
    listed = {
        f"{number}. {entry['machine']['time'][:10]}, commit `{entry['machine']['commit'][:10]}`: {entry['recipe']}": entry
        for number, entry in enumerate(result["scorings"], 1)
    }
    return f"""### Every scoring of `train`, and of embedders, on the photos

`train` beside `clean` on the labels as shipped and four draws like them, or `clean` alone. Recipes were chosen on other data (classes of
TinyImageNet under the same embedder, and the digits); every time that the photos were scored is listed, in order:

{new_photos_table(listed, ("graph", "heads", "gain"))}
"""
