"""Verdicts on features, and detection on new photos."""

from typing import Any

from common import describe, load, shown
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
    "datalab": "cleanlab's Datalab, defaults",
    "cleanlab_best": "cleanlab, best options",
}
OF_NEW = {
    "accuracy": "accuracy",
    "auroc": "AUROC",
    "known_rejected": "known rejected",
    "ood_rejected": "OOD rejected",
}
WAYS = {
    "graph": "`clean`",
    "prototypes": "`clean`, class prototypes (removed since)",
    "heads": "`train`",
    "gain": "`train` − `clean`, per noise seed",
}


def one_core() -> str:
    """Seconds on a single core, without waiting for threads."""
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
            rows.append([f"{SETS[group]} ({entry['draws']} seeds)" if who == "ours" else "", name, *cells])
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
    return f"""## Verdicts on features, compared with cleanlab

{shown("bench-features", "Mislabel F1 on each set: clean and train of graphclean, Datalab, and cleanlab with its best options")}
Every tool gets the same features (EfficientNet-Lite0) and the same noisy labels; means over noise seeds. Photos: 1,200 of
ten classes and 300 OOD scenes. CIFAR: 2,400 + 600 images. Columns as in [verdicts](verdicts.md#scores). `train` uses its
preset `embeddings`. cleanlab gets 5-fold logistic regression with C from {{1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 1e-1}}. Datalab
(C by log-loss) reports label issues and outliers; an outlier is its OOD verdict. "Best options" chooses C, filter (default or
`predicted_neq_given`) and OOD score (features, raw features or predicted probabilities) per column and noise seed by the
truth, which nobody has in practice; it gives no three-way verdict. Seconds are medians from features to table: `clean`
with its search over k, `train` including its model, cleanlab for one C ("best options": its fastest). {one_core()}

{markdown_table(["set", "", *COLUMNS.values()], rows)}

Noise seeds on which cleanlab's best is ahead of us: {losing}.

{quiet}

### New photos

450 photos that were not trained on, 150 of them OOD; mean ± standard deviation over noise seeds. "Rejected" is at the
threshold that each model finds by itself.

{new_photos_table({SETS[group]: entry for group, entry in result["new_photos"].items()})}

{describe(result)} Since then `clean` joins near-duplicates, uses class means where held-out labels support them, and
has another detector: see the further sets and the rejection of new inputs below.
"""


def new_photos_table(sets: dict[str, dict[str, Any]], ways: tuple[str, ...] = tuple(WAYS)) -> str:
    """Scores on new photos by set and method."""
    rows = []
    for name, entry in sets.items():
        for way in (way for way in ways if way in entry):
            cells = [spread_cell(entry[way][c], "+" if way == "gain" else "") for c in OF_NEW]
            rows.append([f"{name} ({entry['draws']} seeds)" if way == ways[0] else "", WAYS[way], *cells])
    return markdown_table(["set", "", *OF_NEW.values()], rows)


def spread_cell(found: dict[str, float | None], sign: str = "") -> str:
    """Mean ± deviation, or a dash if missing."""
    return "–" if found["mean"] is None else f"{found['mean']:{sign}.3f} ± {found['sd']:.3f}"


TERMS = {
    "neighbors' shared mistakes undone": "class-dependent noise corrected",
    "where labels get likelier": "where that raises the likelihood of the labels",
    "verdicts by neighbors and whitened centers": "verdicts by neighbors and whitened class means",
    "class by them and the heads, OOD by them alone (`panel`)": "class by these and the heads, OOD by these alone",
}
"""Terms of older records -> current terms."""


def in_terms(recipe: str) -> str:
    """A recorded recipe in current terms."""
    for old, new in TERMS.items():
        recipe = recipe.replace(old, new)
    return recipe


def scorings_section(result: dict[str, Any]) -> str:
    listed = {
        f"{number}. {entry['machine']['time'][:10]}, commit `{entry['machine']['commit'][:10]}`: {in_terms(entry['recipe'])}": entry
        for number, entry in enumerate(result["scorings"], 1)
    }
    return f"""### Every scoring of `train`, and of embedders, on the photos

`train` and `clean` on the labels as shipped and four noise seeds like them, or `clean` alone. Recipes were chosen on other
data (classes of TinyImageNet under the same embedder, and the digits). Every time that the photos were scored, in order:

{new_photos_table(listed, ("graph", "heads", "gain"))}
"""
