"""Verdicts on features, and detection on new photos."""

from typing import Any

from common import Section, describe, shown, when
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
    "photos": "photos, symmetric noise (30 %)",
    "sym 10 %": "photos, symmetric noise (10 %)",
    "sym 60 %": "photos, symmetric noise (60 %)",
    "pair 30 %": "photos, 30 % flipped to the next class",
    "asym 40 %": "photos, 40 % of five classes flipped to another",
    "cifar": "CIFAR-10 + TinyImageNet, symmetric noise (40 %)",
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
    "heads": "`train`",
    "gain": "`train` − `clean`, per noise seed",
}


def one_core(result: dict[str, Any]) -> str:
    """CPU seconds on the photos, with features given."""
    found = result["summary"]["photos"]
    ours, theirs = (found[who]["seconds"] for who in ("ours", "cleanlab_best"))
    return (
        f"Given the features, `clean` takes {ours:.1f} s for the photos on one core, and cleanlab {theirs:.1f} s for the "
        "fastest of six regularizations."
    )


def embedding_seconds(embedders: dict[str, Any]) -> str:
    """CPU seconds to make the photos' features, which both tools need."""
    speed = {entry["embedder"]: entry.get("cpu_seconds_per_1000") for entry in embedders["embedders"]}
    total = speed["efficientnet-lite0"] * embedders["photos"] / 1000
    return f"Embedding the photos takes about {total:.0f} s more."


def audit_section(result: dict[str, Any]) -> Section:
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
        f"- `{'clean' if who == 'ours' else who}`, {SETS[group]}: {COLUMNS[column]} on {count} of {entry['draws']}"
        for group, entry in result["summary"].items()
        for who, columns in entry["behind_on_draws"].items()
        for column, count in columns.items()
        if count
    ]
    losing = "\n".join(behind) if behind else "- none"
    seeds = sum(entry["draws"] for entry in result["summary"].values())
    lost = sum(entry["behind_on_draws"]["ours"]["mislabel_f1"] for entry in result["summary"].values())
    train = result["summary"]["photos"]["train"]["seconds"]
    quiet = markdown_table(
        ["1,200 photos without OOD", "wrong labels", "flagged", "of them wrong", "`ood` verdicts"],
        [[name.replace("sym 30 %, no OOD", "symmetric noise (30 %)"), str(row["wrong"]), str(row["flagged"]), str(row["flagged_wrong"]), str(row["ood_verdicts"])]
         for name, row in result["without_ood"].items()],
    )  # fmt: skip
    chart = f"""{shown("bench-features", "Mislabel F1 on each set: clean and train of graphclean, Datalab, and cleanlab with its best options")}
Every tool gets the same features and the same noisy labels. `clean` and `train` use their defaults. cleanlab's best options
are tuned on the ground truth, for each score and noise seed, which nobody can do in practice; they beat `clean` on {lost} of {seeds} single noise seeds.
{one_core(result)} `train` takes {train:.1f} s and also gives a classifier."""
    numbers = f"""Features are from EfficientNet-Lite0. Photos: 1,200 of ten classes and 300 OOD scenes. CIFAR: 2,400 images, and 600 of
TinyImageNet. Scores are means over noise seeds; [what they mean](verdicts.md#scores).

- `train` uses its preset `embeddings`.
- cleanlab gets 5-fold logistic regression with C from {{1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 1e-1}}.
- Datalab takes the C with the lowest log-loss. An outlier is its OOD verdict.
- "Best options" chooses C, filter (default or `predicted_neq_given`) and OOD score for each column and noise seed by the
  ground truth.
- Seconds are medians of CPU time on one core, from features to table: `clean` with its search over k, `train` with its
  model, cleanlab for one C ("best options": its fastest).

{markdown_table(["set", "", *COLUMNS.values()], rows)}

Noise seeds on which cleanlab's best options are ahead:

{losing}

{quiet}

### New photos

450 photos that were not trained on, 150 of them OOD; mean ± standard deviation over noise seeds. "Rejected" is at the
threshold that each model finds on its training set.

{new_photos_table({SETS[group]: entry for group, entry in result["new_photos"].items()})}

{describe(result)}
"""
    return Section("Verdicts on features, compared with cleanlab", chart, numbers)


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


def scorings_section(result: dict[str, Any]) -> Section:
    scorings = dict(enumerate(result["scorings"], 1))
    recipes = "\n".join(
        f"{number}. {when(entry['machine'])}: {in_terms(entry['recipe'])}"
        for number, entry in scorings.items()
    )
    numbers = f"""`train` and `clean` on the labels as shipped and on four noise seeds like them. Recipes were chosen on other data: classes of
TinyImageNet under the same embedder, and the digits. The test photos were evaluated this often, in this order:

{recipes}

{new_photos_table({str(number): entry for number, entry in scorings.items()}, ("graph", "heads", "gain"))}
"""
    return Section("Every evaluation on the test photos", "", numbers)
