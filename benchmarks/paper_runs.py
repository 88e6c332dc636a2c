"""What the docs show of the recorded runs of the paper's cells, beside the paper."""

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

from graphclean.bench.markdown import markdown_table
from graphclean.bench.results import find_seeds, read_result
from graphclean.bench.schema import Result
from graphclean.bench.tables import mean_and_deviation, paper, render_table

RUNS = Path(__file__).parents[1] / "results"
CELL = "cifar10/tinyimagenet/20k"
SHOWN = {
    (CELL, "cifar10-lond"): "300 epochs (`cifar10-lond`)",
    (CELL, "cifar10-lond--graph.leave_one_out-true--training.epochs-60"): (
        "60 epochs, no sample vouches for itself (`cifar10-lond-fast`)"
    ),
    (CELL, "cifar10-lond-plus"): "150 epochs, that and a gate (`cifar10-lond-plus`)",
    ("cifar10/sym50", "cifar10-lcnl"): "300 epochs, no sample vouches for itself (`cifar10-lcnl`)",
}
"""The methods that the README shows."""
NOISE = {CELL: "and 20,000 images of no class", "cifar10/sym50": "and nothing else"}
STEPS = {
    "cifar10-lond--method.lambda_inst-1--training.epochs-60": "60 epochs, λ1 = 1 as in the paper",
    "cifar10-lond--training.epochs-60": "λ1 = 0.5",
    "cifar10-lond--graph.leave_one_out-true--training.epochs-60": (
        "and leave-own-out evidence: `cifar10-lond-fast`"
    ),
    "cifar10-lond-plus--gate-every-epoch": (
        "and a gate judged at every epoch, in 150 epochs, scored by `both` and mirrored"
    ),
    "cifar10-lond-plus": "the gate judged once, as it closes: `cifar10-lond-plus`",
    "cifar10-lond": "`cifar10-lond`: 300 epochs, λ1 = 0.5",
}
"""Methods on the cell that lead to the fast preset and on to the best, and the full schedule."""
LEDGER = {
    "runs": "Every run",
    "verdicts": "The verdicts of every run",
    "lond-accuracy": "Accuracy, with OOD in training",
    "lond-auroc": "AUROC",
    "lond-fmeasure": "Open-set F",
    "lcnl-accuracy": "Accuracy, with wrong labels alone",
    "ablation-accuracy": "Ablations",
    "scorings": "Every scoring of a test set",
}
"""Tables of the recorded runs that have any of ours in them, and what stands over them."""


def of_seeds(cell: str, split: str, method: str) -> list[Result]:
    """What is recorded of a method on a cell, by seed."""
    return [read_result(path) for _, path in sorted(find_seeds(RUNS, cell, split, method).items())]


def over_seeds(values: Sequence[float | None], decimals: int, unit: int = 1) -> str:
    """Mean ± standard deviation and the number of seeds; of one seed its value, of none a dash."""
    found = [unit * Decimal(repr(value)) for value in values if value is not None]
    return mean_and_deviation(found, decimals).removesuffix(" (1)")


def mean_over_seeds(values: Sequence[float | None], decimals: int, unit: int = 1) -> str:
    """The mean alone."""
    return over_seeds(values, decimals, unit).split(" ± ")[0]


def paper_cells() -> str:
    """Training on cells of the paper, beside the paper."""
    rows, shown = [], []
    for cell, noise in NOISE.items():
        first = noise
        for method in (method for of, method in SHOWN if of == cell):
            runs = of_seeds(cell, "test", method)
            minutes = mean_over_seeds([run["seconds"] / 60 for run in runs], 1)
            rows.append([first, f"ours, {SHOWN[cell, method]}", *of_ours(runs), minutes])
            first = ""
            shown.append(runs)
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
    seeds = "one seed"
    if any(len(runs) > 1 for runs in shown):
        seeds = "mean ± standard deviation over seeds, their number in brackets (without one: a single seed)"
    gpus = sorted({str(run["machine"]["gpu"]) for runs in shown for run in runs})
    return (
        f"{markdown_table(header, rows)}\n\nTest set, last epoch, {seeds}, one {' or '.join(gpus)}; "
        'F: open-set, over classes and "none of these"; auto ζ: found without test labels.'
    )


def paper_row() -> list[str]:
    """The best preset on the main cell, and the paper, in a line."""
    runs = of_seeds(CELL, "test", "cifar10-lond-plus")
    ours = [mean_over_seeds([run["scores"]["accuracy"] for run in runs], 2, 100)]
    ours.append(mean_over_seeds([run["scores"]["auroc"] for run in runs], 3))
    theirs = [found.split(" ± ")[0] for found in of_paper(CELL)[:2]]
    name = "CIFAR-10, half of the labels random, and 20,000 OOD images: test accuracy, AUROC of OOD"
    return [name, f"**{ours[0]} %, {ours[1]}**", f"{theirs[0]} %, {theirs[1]} the paper"]


def of_ours(runs: list[Result]) -> list[str]:
    """Accuracy in percent, AUROC and F, as far as there are any."""
    found = [over_seeds([run["scores"]["accuracy"] for run in runs], 2, 100)]
    for key in ("auroc", "f_best", "f_auto"):
        values = [run["scores"][key] for run in runs]
        found.append("" if values and None in values else over_seeds(values, 3))
    return found


def of_paper(cell: str) -> list[str]:
    """What the paper has for a cell, as `of_ours`; it has no automatic ζ."""
    lcnl = paper()["lcnl-accuracy"]
    if cell in lcnl["columns"]:
        return [dict(zip(lcnl["columns"], lcnl["rows"]["NGC"], strict=True))[cell], "", "", ""]
    tables = ("lond-accuracy", "lond-auroc", "lond-fmeasure")
    found = [dict(zip(paper()[t]["columns"], paper()[t]["rows"][cell], strict=True)) for t in tables]
    return [found[0]["NGC"], f"{float(found[1]['NGC']) / 100:.3f}", found[2]["NGC, best ζ"], ""]


def ledger() -> str:
    """All of these tables."""
    tables = {title: render_table(name, RUNS, "markdown").strip() for name, title in LEDGER.items()}
    return "\n\n".join(f"### {title}\n\n{text}" for title, text in tables.items())


def steps() -> str:
    """What the changes of the fast preset and of the best bought, on both splits."""
    rows = []
    for method, name in STEPS.items():
        row = [name]
        for split in ("dev", "test"):
            runs = of_seeds(CELL, split, method)
            for key, decimals, unit in (("accuracy", 2, 100), ("auroc", 2, 100), ("f_best", 3, 1)):
                row.append(over_seeds([run["scores"][key] for run in runs], decimals, unit))
        rows.append(row)
    header = ["", "dev: accuracy", "AUROC", "F, best ζ", "test: accuracy", "AUROC", "F, best ζ"]
    return markdown_table(header, rows)
