"""What the docs show of the recorded runs of the paper's cells, beside the paper."""

from pathlib import Path
from typing import Any

from common import table
from graphclean.bench.ledger import read_result, result_path
from graphclean.bench.tables import paper, render_table

RUNS = Path(__file__).parents[1] / "results"
CELL = "cifar10/tinyimagenet/20k"
SHOWN = {
    (CELL, "ngc"): "300 epochs (`cifar10-lond`)",
    (CELL, "ngc--graph.evidence-leave-own-out--learn.epochs-60"): (
        "60 epochs, no sample vouches for itself (`cifar10-lond-fast`)"
    ),
    (CELL, "cifar10-lond-plus"): "150 epochs, that and a gate (`cifar10-lond-plus`)",
    ("cifar10/sym50", "ngc"): "300 epochs, no sample vouches for itself (`cifar10-lcnl`)",
}
"""The runs that the README shows, all of seed 0."""
NOISE = {CELL: "and 20,000 images of no class", "cifar10/sym50": "and nothing else"}
STEPS = {
    "ngc--learn.epochs-60--learn.lambda_inst-1": "60 epochs, λ1 = 1 as in the paper",
    "ngc--learn.epochs-60": "λ1 = 0.5",
    "ngc--graph.evidence-leave-own-out--learn.epochs-60": "and leave-own-out evidence: `cifar10-lond-fast`",
    "cifar10-lond-plus": "and the gate, in 150 epochs, scored by `both` and mirrored: `cifar10-lond-plus`",
    "ngc": "`cifar10-lond`: 300 epochs, λ1 = 0.5",
}
"""Runs of the cell that lead to the fast preset and on to the best, and the full schedule; seed 0."""
LEDGER = (
    "runs",
    "lond-accuracy",
    "lond-auroc",
    "lond-fmeasure",
    "lcnl-accuracy",
    "ablation-accuracy",
    "scorings",
)


def paper_cells() -> str:
    """Training on cells of the paper, beside the paper."""
    rows = []
    for cell, noise in NOISE.items():
        first = noise
        for method in (method for of, method in SHOWN if of == cell):
            result = read_result(result_path(RUNS, cell, "test", method, 0))
            scores, minutes = result["scores"], f"{result['seconds'] / 60:.1f}"
            rows.append([first, f"ours, {SHOWN[cell, method]}", *of_ours(scores), minutes])
            first = ""
        rows.append(["", "the paper", *of_paper(cell), ""])
    header = [
        "CIFAR-10, half of the labels drawn anew",
        "",
        "accuracy",
        "AUROC",
        "F, best ζ",
        "F, auto ζ",
        "minutes",
    ]
    return (
        f"{table(header, rows)}\n\nTest set, last epoch, one seed, one {result['machine']['gpu']}; "
        'F: open-set, over classes and "none of these"; auto ζ: found without test labels.'
    )


def of_ours(scores: dict[str, Any]) -> list[str]:
    """Accuracy in percent, AUROC and F, as far as there are any."""
    found = [f"{100 * scores['accuracy']:.2f}"]
    return found + [
        "" if scores[key] is None else f"{scores[key]:.3f}" for key in ("auroc", "f_best", "f_auto")
    ]


def of_paper(cell: str) -> list[str]:
    """What the paper has for a cell, as `of_ours`; it has no automatic ζ."""
    lcnl = paper()["lcnl-accuracy"]
    if cell in lcnl["columns"]:
        return [dict(zip(lcnl["columns"], lcnl["rows"]["NGC"], strict=True))[cell], "", "", ""]
    tables = ("lond-accuracy", "lond-auroc", "lond-fmeasure")
    found = [dict(zip(paper()[t]["columns"], paper()[t]["rows"][cell], strict=True)) for t in tables]
    return [found[0]["NGC"], f"{float(found[1]['NGC']) / 100:.3f}", found[2]["NGC, best ζ"], ""]


def ledger() -> str:
    """Tables of the recorded runs that have any of ours in them."""
    return "\n\n".join(render_table(name, RUNS, "markdown").strip() for name in LEDGER)


def steps() -> str:
    """What the changes of the fast preset and of the best bought, on both splits."""
    rows = []
    for method, name in STEPS.items():
        row = [name]
        for split in ("dev", "test"):
            path = result_path(RUNS, CELL, split, method, 0)
            scores = read_result(path)["scores"] if path.exists() else None
            for key, unit in (("accuracy", 100), ("auroc", 100), ("f_best", 1)):
                row.append(f"{unit * scores[key]:.{2 if unit > 1 else 3}f}" if scores is not None else "–")
        rows.append(row)
    header = ["", "dev: accuracy", "AUROC", "F, best ζ", "test: accuracy", "AUROC", "F, best ζ"]
    return table(header, rows)
