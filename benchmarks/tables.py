"""Write the measured parts of the docs from the recorded results: no number in them is typed by hand.

python benchmarks/tables.py
"""

import json
from pathlib import Path
from typing import Any

from common import RESULTS, with_measured
from few import TRIED
from graphclean.bench.markdown import markdown_table
from paper_runs import ledger, mean_over_seeds, over_seeds, paper_cells, steps

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
README = Path(__file__).parents[1] / "README.md"
REPRODUCTION = Path(__file__).parents[1] / "docs" / "reproduction.md"
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
    "prototypes": "`clean`, `--detector prototypes`",
    "heads": "`train`",
    "gain": "`train` − `clean`, draw by draw",
}
STAGES = ("search", "graph", "weights", "propagation", "selection")
PEERS = {
    "faiss_flat": "faiss flat (search)",
    "scipy_cg_class_by_class": "SciPy CG, class by class (propagation)",
    "sklearn_label_spreading": "LabelSpreading (propagation)",
}


def load(name: str) -> dict[str, Any] | None:
    """A recorded result, or None where it was not run."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def seconds(value: float) -> str:
    """Three significant digits, in ms below a second."""
    return f"{value:.3g} s" if value >= 1 else f"{1000 * value:.3g} ms"


def describe(result: dict[str, Any], *, gpu: bool = False) -> str:
    """Where and with what it was measured."""
    m = result["machine"]
    device = m["gpu"] if gpu else f"{m['cpu']}, {m['threads']} thread{'s' if m['threads'] > 1 else ''}"
    return f"{device}; Python {m['python']}, torch {m['packages']['torch']}; {m['time'][:10]}, commit `{m['commit'][:10]}`."


def one_core() -> str:
    """The same time on a single core, where neither waits for threads."""
    result = load("audit-one-core")
    if result is None:
        return "On a single core: not run."
    times = (
        f"{entry['clean']:.2f} s for `clean`, {entry['cleanlab']:.2f} s for cleanlab ({SETS[group].split(',')[0]})"
        for group, entry in result["seconds"].items()
    )
    return f"Seconds on two cores, which slow logistic regression down; on a single one: {'; '.join(times)}."


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

{describe(result)}
"""


def new_photos_table(sets: dict[str, dict[str, Any]], ways: tuple[str, ...] = tuple(WAYS)) -> str:
    """Scores on new photos by set and way."""
    rows = []
    for name, entry in sets.items():
        for way in ways:
            sign = "+" if way == "gain" else ""
            cells = [f"{entry[way][c]['mean']:{sign}.3f} ± {entry[way][c]['sd']:.3f}" for c in OF_NEW]
            rows.append([f"{name} ({entry['draws']} draws)" if way == ways[0] else "", WAYS[way], *cells])
    return markdown_table(["set", "", *OF_NEW.values()], rows)


def scorings_section(result: dict[str, Any]) -> str:
    listed = {
        f"{number}. {entry['machine']['time'][:10]}, commit `{entry['machine']['commit'][:10]}`: {entry['recipe']}": entry
        for number, entry in enumerate(result["scorings"], 1)
    }
    return f"""### Every scoring of trained heads on the photos

`train` beside `clean` on the labels as shipped and four draws like them. Recipes were chosen on other data (classes of
TinyImageNet under the same embedder, and the digits); every time that the photos were scored is listed, in order:

{new_photos_table(listed, ("graph", "heads", "gain"))}
"""


def points_table(points: list[dict[str, Any]]) -> str:
    whole = any("whole" in point for point in points)
    rows = []
    for point in points:
        stages = [
            f"{seconds(point['stages'][s]['seconds'])}, {point['stages'][s]['peak_mib']:,} MiB"
            for s in STAGES
        ]
        rows.append([f"{point['n']:,}", str(point["k"]), str(point["classes"]), *stages])
        if whole:
            rows[-1].append(seconds(point["whole"]["seconds"]))
    return markdown_table(["N", "k", "K", *STAGES, *(["whole step"] if whole else [])], rows)


def growth_line(growth: dict[str, Any]) -> str:
    parts = ", ".join(f"{name} N^{value:.2f}" for name, value in growth["exponents"].items())
    return f"Growth from N = {growth['sizes'][0]:,} to {growth['sizes'][-1]:,} at k = 30, K = 10: {parts}."


def cpu_section(result: dict[str, Any]) -> str:
    rows = []
    for point in result["points"]:
        ours = point["stages"]
        for key, name in PEERS.items():
            if key not in point["peers"]:
                continue
            stage = "search" if key == "faiss_flat" else "propagation"
            peer, own = point["peers"][key]["seconds"], ours[stage]["seconds"]
            rows.append(
                [
                    f"{point['n']:,}",
                    str(point["k"]),
                    str(point["classes"]),
                    name,
                    seconds(peer),
                    seconds(own),
                    f"{peer / own:.1f} ×",
                ]
            )
    shares = []
    for point in result["points"]:
        after = sum(point["stages"][s]["seconds"] for s in STAGES[1:])
        share = after / point["stages"]["search"]["seconds"]
        shares.append(f"{share:.3f} (N = {point['n']:,}, k = {point['k']}, K = {point['classes']})")
    approximate = markdown_table(
        ["70,000 points, k = 30", "exact", "approximate", "faster by", "recall"],
        [[row["data"], seconds(row["exact"]["seconds"]), seconds(row["approximate"]["seconds"]), f"{row['speedup']:.1f} ×", f"{row['recall']:.4f}"]
         for row in result["approximate"]],
    )  # fmt: skip
    million = result["million"]
    total = sum(million["stages"][s]["seconds"] for s in STAGES)
    return f"""## The graph step on two cores

Time and the memory it takes on top, by stage. Clustered points on the unit sphere, 64 dimensions
(`{result["generator"]["formula"]}`, spread {result["generator"]["spread"]["clustered"]}; loose: {result["generator"]["spread"]["loose"]}).

{points_table(result["points"])}

Peers in the same run; over 1 × means that ours is faster. SciPy solves the same system in the same type to the same
residual (1e-6); LabelSpreading iterates on the same weights until it moves by less than 1e-6.

{markdown_table(["N", "k", "K", "peer", "peer takes", "ours takes", ""], rows)}

All that follows the search, as a share of the search: {"; ".join(shares)}.

{growth_line(result["growth"])}

Approximate neighbors (`--search approx`) search until a sample finds 97 % of its true neighbors; on loose data
that may take as long as the exact search, or longer:

{approximate}

A million points (k = {million["k"]}, K = {million["classes"]}, approximate neighbors, recall {million["recall_by_sample"]:.3f} by sample):
{seconds(total)} in all, of which the search {seconds(million["stages"]["search"]["seconds"])}; the whole process peaks at {million["process_peak_gib"]:.1f} GiB.

{describe(result)}
"""


def cuda_section(result: dict[str, Any]) -> str:
    rows = [
        [f"{row['n']:,}", f"{100 * row['neighbors_shared']:.5f} %", f"{row['largest_similarity_difference']:.1e}",
         f"{row['largest_soft_label_difference']:.1e}", str(row["selection_differs"])]
        for row in result["agreement"]
    ]  # fmt: skip
    return f"""## The graph step on a GPU

Exact neighbors in fp32 throughout. Medians after a warm-up, by device events.

{points_table(result["points"])}

{growth_line(result["growth"])}

CPU and GPU on the same points (neighbors differ only where similarities tie within rounding):

{markdown_table(["N", "neighbors shared", "similarities differ by", "soft labels differ by", "selected differently"], rows)}

{describe(result, gpu=True)}
"""


def demo_section(result: dict[str, Any]) -> str:
    rows = []
    for run in result["runs"]:
        ce, ngc, verdicts = run["ce"], run["ngc"], run["verdicts"]
        rows.append(
            [
                str(run["seed"]),
                *(f"{100 * who['accuracy']:.1f} %" for who in (ce, ngc)),
                *(f"{who['auroc']:.3f}" for who in (ce, ngc)),
                *(f"{ngc[name]:.3f}" for name in ("f", "f_best")),
                *(f"{verdicts[name]:.3f}" for name in ("label_accuracy", "issue_f1", "ood_auroc")),
                *(f"{value:.1f}" for value in (ce["seconds"], ngc["seconds"], run["seconds"])),
            ]
        )
    header = ["seed", "accuracy: CE", "NGC", "AUROC: CE", "NGC", "F, auto ζ", "F, best ζ"]
    header += ["label accuracy", "any-issue F1", "OOD AUROC", "seconds: CE", "NGC", "all"]
    return f"""## The demo

`graphclean demo` on seeds that no setting was chosen on: half of the labels of 0 to 7 drawn anew, 8s and 9s as OOD, 1,200
digits to train on, 597 to test. CE is plain cross-entropy with the same network and crops; its AUROC is by its largest
probability. From "label accuracy" on: NGC's verdicts on the training digits.

{markdown_table(header, rows)}

{describe(result)}
"""


def mistakes_section(result: dict[str, Any]) -> str:
    on = {
        ("digits", "asym"): "ten digits, 40 % of five taken for another",
        ("digits", "asym, OOD"): "the same of eight, and 8s and 9s as OOD",
        ("digits", "sym, OOD"): "half of eight drawn anew, and 8s and 9s as OOD",
        ("cifar", "asym"): "CIFAR-10 at 16 px, 40 % of five classes taken for another",
        ("cifar", "sym"): "half drawn anew",
        ("cifar", "clean"): "all labels right",
    }
    cifar = load("mistakes-cifar")
    recorded = {"digits": result["runs"], "cifar": cifar["runs"] if cifar is not None else []}
    rows = []
    for (images, case), name in on.items():
        for class_dependent_noise in (False, True):
            runs = [
                run
                for run in recorded[images]
                if (run["case"], run["class_dependent_noise"]) == (case, class_dependent_noise)
            ]
            cleaning = [run["cleaning"] for run in runs]
            with_ood = "OOD" in case
            rows.append(
                [
                    "" if class_dependent_noise else name,
                    ""
                    if class_dependent_noise
                    else mean_over_seeds([run["given_right"] for run in runs], 1, 100),
                    "on" if class_dependent_noise else "off",
                    over_seeds([part["label_accuracy"] for part in cleaning], 1, 100),
                    mean_over_seeds([part["selected"] for part in cleaning], 0),
                    mean_over_seeds([part["wrong_known"] for part in cleaning], 0),
                    mean_over_seeds([part["ood"] for part in cleaning], 0) if with_ood else "",
                    over_seeds([run["accuracy"] for run in runs], 1, 100),
                    over_seeds([run["auroc"] for run in runs], 3) if with_ood else "",
                ]
            )
    header = [
        "",
        "right as given, %",
        "`graph.class_dependent_noise`",
        "label accuracy, %",
        "selected",
        "of them wrong",
        "OOD",
    ]
    header += ["accuracy, %", "AUROC"]
    return f"""## Mistakes that neighbors share

Training with [`graph.class_dependent_noise`](how-it-works.md#mistakes-that-neighbors-share) and without: the labels and the selection at the
end, and new images; mean ± standard deviation over seeds, their number in brackets. Digits: the demo's preset, 1,200 to train
on. CIFAR-10: 10,000 images of its training set and 4,000 others of it to score, a small network, 15 epochs.

{markdown_table(header, rows)}

{describe(result)}
"""


def engine_section(result: dict[str, Any]) -> str:
    views, mixed = result["step"]
    rows = [
        ["epoch, with everything", seconds(result["epoch"])],
        ["cleaning", seconds(result["cleaning"])],
        ["– of it embedding", seconds(result["embedding"])],
        ["– of it the graph", seconds(result["graph"])],
        ["augmentation", seconds(result["augmentation"])],
        ["network: forward, losses, backward, update", seconds(result["network"])],
        ["images through it, a second", f"{result['filled_images_per_second']:,.0f}"],
        ["– without those that fill up static shapes", f"{result['images_per_second']:,.0f}"],
        [
            f"– batches of {views:,} and {mixed:,} by themselves: no losses, no mixup",
            f"{result['network_alone_images_per_second']:,.0f}",
        ],
        ["first step, after a start without anything compiled", seconds(result["first_step"])],
        ["compiling, in all", seconds(result["compiling"])],
        ["peak of GPU memory", f"{result['peak_gib']:.1f} GiB"],
    ]
    return f"""## Training on a GPU

Preset `{result["preset"]}` on `{result["cell"]}`, N = {result["samples"]:,}, batch 512, compiled, bf16; medians over
epochs after {result["trained"]} of training, with {result["selected"]:,} samples selected.

{markdown_table(["", ""], rows)}

{describe(result, gpu=True)}

### As the set grows

{growth_section(load("engine-growth-cuda"))}
"""


def few_section(result: dict[str, Any]) -> str:
    rows = []
    for preset, changes in TRIED:
        runs = [run for run in result["runs"] if (run["preset"], run["changes"]) == (preset, changes)]
        rows.append(
            [
                " ".join([f"`{preset}`", *(f"`--set {change}`" for change in changes)]),
                over_seeds([run["scores"]["accuracy"] for run in runs], 1, 100),
                over_seeds([run["scores"]["auroc"] for run in runs], 3),
                over_seeds([run["scores"]["f_auto"] for run in runs], 3),
                over_seeds([run["cleaning"]["label_accuracy"] for run in runs], 1, 100),
                mean_over_seeds([run["seconds"] for run in runs], 0),
            ]
        )
    header = ["", "accuracy, %", "AUROC", "F, auto ζ", "label accuracy, %", "seconds"]
    return f"""## Few small images

The presets that train a whole network from nothing, on {result["count"]:,} images of the development split of `{result["cell"]}`
(half of the labels drawn anew, two images of eleven of no class); scored on what it holds out. "–": not run.

{markdown_table(header, rows)}

{describe(result, gpu=True)}
"""


def growth_section(result: dict[str, Any] | None) -> str:
    if result is None:
        return "Not run."
    rows = [
        [f"{row['samples']:,}", f"{row['selected']:,}", seconds(row["epoch"]), seconds(row["cleaning"])]
        for row in result["growth"]
    ]
    return f"""The network after {result["trained"]} epochs on samples drawn from the same cell, with a little noise, so that none are equal.

{markdown_table(["N", "selected", "epoch", "of it cleaning"], rows)}

{describe(result, gpu=True)}"""


def render() -> str:
    """The whole page."""
    parts = [
        "# Benchmarks\n\nMade by `benchmarks/tables.py` from `benchmarks/results/`; how it is measured: `benchmarks/README.md`.\n"
    ]
    sections = {
        "audit": audit_section,
        "scorings": scorings_section,
        "demo": demo_section,
        "mistakes-digits": mistakes_section,
        "few": few_section,
        "engine-cuda": engine_section,
        "graph-cpu": cpu_section,
        "graph-cuda": cuda_section,
    }
    for name, section in sections.items():
        result = load(name)
        parts.append(section(result) if result is not None else f"## {name}\n\nNot run.\n")
    return "\n".join(parts)


def headline() -> str:
    """The few numbers the README shows, between its markers."""
    audit, cpu, cuda = load("audit"), load("graph-cpu"), load("graph-cuda")
    rows = []
    if audit is not None:
        for group in ("photos", "asym 40 %", "cifar"):
            entry = audit["summary"][group]
            for who in ("ours", "train", "cleanlab_best"):
                cells = [f"{entry[who][c]:.3f}" for c in COLUMNS if c not in ("three_way_f1", "seconds")]
                name = WHO[who] if who != "cleanlab_best" else "cleanlab, best C and option each time"
                rows.append(
                    [SETS[group] if who == "ours" else "", name, *cells, f"{entry[who]['seconds']:.2f}"]
                )
    parts = [
        markdown_table(
            ["", "", "mislabel F1", "any-issue F1", "label accuracy", "OOD AUROC", "seconds"], rows
        )
    ]
    sentences = [one_core()] if audit is not None else []
    demo = load("demo")
    if demo is not None:
        told = {}
        for who in ("ce", "ngc"):
            accuracy = [run[who]["accuracy"] for run in demo["runs"]]
            auroc = [run[who]["auroc"] for run in demo["runs"]]
            told[who] = (
                f"accuracy {100 * min(accuracy):.1f} to {100 * max(accuracy):.1f} %, "
                f"AUROC {min(auroc):.3f} to {max(auroc):.3f}"
            )
        parts.append(
            f"Trained on digits with half of the labels drawn anew and two digits of no class among them, "
            f"{len(demo['runs'])} seeds: {told['ngc']}; plain cross-entropy: {told['ce']}."
        )
    parts.append(paper_cells())
    if cpu is not None:
        point = next(p for p in cpu["points"] if (p["n"], p["k"], p["classes"]) == (70_000, 30, 10))
        after = sum(point["stages"][s]["seconds"] for s in STAGES[1:])
        search = seconds(point["stages"]["search"]["seconds"])
        sentences.append(
            f"70,000 points on two cores: {search} to find exact neighbors, {seconds(after)} for all the rest."
        )
    if cuda is not None:
        whole = {(p["n"], p["k"]): p["whole"]["seconds"] for p in cuda["points"] if p["classes"] == 10}
        sentences.append(
            f"On one {cuda['machine']['gpu']}: {seconds(whole[70_000, 30])} in all, "
            f"and {seconds(whole[1_000_000, 30])} for a million."
        )
    parts.insert(1, " ".join(sentences))
    return "\n\n".join(parts)


def pages() -> dict[Path, str]:
    """Every page with measured figures, as it should be."""
    return {
        PAGE: render(),
        README: with_measured(README.read_text(), {"": headline()}),
        REPRODUCTION: with_measured(
            REPRODUCTION.read_text(), {" short": paper_cells(), " steps": steps(), "": ledger()}
        ),
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
        print(path)
