"""How the docs present the recorded runs of the paper's cells, next to the paper."""

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

from graphclean.bench.figures import draw_figure
from graphclean.bench.markdown import markdown_table
from graphclean.bench.results import find_seeds, read_records, read_result
from graphclean.bench.schema import Result
from graphclean.bench.tables import ABLATION_NAMES, WEBVISION, mean_and_deviation, paper, render_table
from graphclean.errors import InputError

RUNS = Path(__file__).parents[1] / "results"
CELL = "cifar10/tinyimagenet/20k"
SHOWN = {
    (CELL, "cifar10-lond-plus"): "`cifar10-lond-plus`, 150 epochs",
    (CELL, "cifar10-lond"): "`cifar10-lond`, 300 epochs",
    (CELL, "cifar10-lond--graph.leave_one_out-true--training.epochs-60"): "`cifar10-lond-fast`, 60 epochs",
    ("cifar10/sym50", "cifar10-lcnl"): "`cifar10-lcnl`, 300 epochs",
    ("cifar10/sym80", "cifar10-lond-fast--graph.eta-0.7"): "`cifar10-lond-fast`, η = 0.7, 60 epochs",
    ("cifar10/sym90", "cifar10-lond-fast--graph.eta-0.7"): "`cifar10-lond-fast`, η = 0.7, 60 epochs",
    ("cifar10/asym40", "cifar10-lond-fast--graph.eta-0.7--graph.k-10"): (
        "`cifar10-lond-fast`, η = 0.7, k = 10, 60 epochs"
    ),
}
"""The runs on the results page, by cell and recorded name."""
NOISE = {
    CELL: "symmetric noise (50 %), and 20,000 OOD images",
    "cifar10/sym50": "symmetric noise (50 %)",
    "cifar10/sym80": "symmetric noise (80 %)",
    "cifar10/sym90": "symmetric noise (90 %)",
    "cifar10/asym40": "asymmetric noise (40 % of five classes flipped to another)",
}
STEPS = {
    "cifar10-lond--method.lambda_inst-1--training.epochs-60": "60 epochs, λ1 = 1 as in the paper",
    "cifar10-lond--training.epochs-60": "λ1 = 0.5",
    "cifar10-lond--graph.leave_one_out-true--training.epochs-60": (
        "with leave-one-out evidence: `cifar10-lond-fast`"
    ),
    "cifar10-lond-plus--gate-every-epoch": (
        "150 epochs, OOD gate at every epoch, prototype ensemble, flip TTA"
    ),
    "cifar10-lond-plus": "with the gate computed once: `cifar10-lond-plus`",
    "cifar10-lond": "`cifar10-lond`: 300 epochs, λ1 = 0.5",
}
"""Methods on the main cell that lead to the fast preset and on to the best one, and the full schedule."""
LEDGER = {
    "runs": "Every run",
    "verdicts": "The verdicts of every run",
    "lond-accuracy": "Accuracy, with OOD in training",
    "lond-auroc": "AUROC",
    "lond-fmeasure": "Open-set F",
    "lcnl-accuracy": "Accuracy, with label noise alone",
    "ablation-accuracy": "Ablations",
    "scorings": "Every test-set evaluation",
}
"""Tables of recorded runs that contain ours -> their headings."""


def of_seeds(cell: str, split: str, method: str) -> list[Result]:
    """The recorded results of a method on a cell, ordered by seed."""
    return [read_result(path) for _, path in sorted(find_seeds(RUNS, cell, split, method).items())]


def over_seeds(values: Sequence[float | None], decimals: int, unit: int = 1) -> str:
    """Mean ± standard deviation and the number of seeds; the value alone for one seed, a dash for none."""
    found = [unit * Decimal(repr(value)) for value in values if value is not None]
    return mean_and_deviation(found, decimals).removesuffix(" (1)")


def mean_over_seeds(values: Sequence[float | None], decimals: int, unit: int = 1) -> str:
    """The mean without deviation."""
    return over_seeds(values, decimals, unit).split(" ± ")[0]


def paper_cells() -> str:
    """Training on cells of the paper, next to the paper's results."""
    rows, shown = [], []
    for cell, noise in NOISE.items():
        first = noise
        for method in (method for of, method in SHOWN if of == cell):
            runs = of_seeds(cell, "test", method)
            minutes = mean_over_seeds([run["seconds"] / 60 for run in runs], 1)
            rows.append([first, SHOWN[cell, method], *of_ours(runs), minutes])
            first = ""
            shown.append(runs)
        rows.append(["", "the paper", *of_paper(cell), ""])
    header = ["CIFAR-10", "", "accuracy, %", "AUROC", "F, best ζ", "F, automatic ζ", "minutes"]
    seeds = "one seed"
    if any(len(runs) > 1 for runs in shown):
        seeds = "mean ± standard deviation over seeds, their number in brackets (without one: a single seed)"
    gpus = sorted({str(run["machine"]["gpu"]) for runs in shown for run in runs})
    return (
        f"{markdown_table(header, rows)}\n\nTest set, last epoch, {seeds}, one {' or '.join(gpus)}. "
        "AUROC is of detecting OOD test images. F is the open-set F-measure over the classes and OOD; "
        "the automatic ζ is found without test labels."
    )


def missing() -> str:
    """The fraction of the paper that has been run, counted from the records."""
    done = {(record.cell, record.method) for record in read_records(RUNS) if record.split == "test"}
    cells = {cell for cell, _ in done}
    lines = []
    for table, kind in (("lond-accuracy", "with OOD images"), ("lcnl-accuracy", "with label noise alone")):
        found = paper()[table]
        theirs = found["rows"] if table == "lond-accuracy" else found["columns"]
        ours = [f"`{cell}`" for cell in theirs if cell in cells]
        lines.append(f"Cells {kind}: {len(ours)} of the paper's {len(theirs)} ({', '.join(ours) or 'none'}).")
    ablated = {part for _, method in done for part in method.split("--") if part.startswith("without-")}
    ablations = [name for name in ABLATION_NAMES.values() if name is not None]
    ours = [f"`{name.removeprefix('without-')}`" for name in ablations if name in ablated]
    lines.append(
        f"Ablations: {len(ours)} of {len(ablations)}, on one cell or more ({', '.join(ours) or 'none'})."
    )
    swept = {"η": can_draw("sensitivity-eta"), "k": can_draw("sensitivity-k")}
    lines.append(f"Sweeps: {' and '.join(name for name, there in swept.items() if there) or 'none'}.")
    seeds = [len(of_seeds(cell, "test", method)) for cell, method in SHOWN]
    lines.append(f"Seeds: {seeds.count(1)} of the {len(seeds)} runs above have a single one.")
    if WEBVISION not in cells:
        lines.append("WebVision: not run.")
    return "\n".join(f"- {line}" for line in lines)


def can_draw(figure: str) -> bool:
    """Whether the data that a figure needs has been recorded."""
    with TemporaryDirectory() as folder:
        try:
            draw_figure(figure, RUNS, Path(folder))
        except InputError:
            return False
    return True


def paper_row() -> list[str]:
    """One row with the best preset on the main cell and the paper."""
    runs = of_seeds(CELL, "test", "cifar10-lond-plus")
    ours = [mean_over_seeds([run["scores"]["accuracy"] for run in runs], 2, 100)]
    ours.append(mean_over_seeds([run["scores"]["auroc"] for run in runs], 3))
    theirs = [found.split(" ± ")[0] for found in of_paper(CELL)[:2]]
    name = f"CIFAR-10, {NOISE[CELL]} ({len(runs)})"
    score = "test accuracy, OOD AUROC"
    return [name, score, f"**{ours[0]} %, {ours[1]}**", f"{theirs[0]} %, {theirs[1]} (the NGC paper)"]


def behind_paper() -> list[str]:
    """The cells whose best recorded accuracy is below the paper's."""
    behind = []
    for cell, noise in NOISE.items():
        shown = [of_seeds(cell, "test", method) for of, method in SHOWN if of == cell]
        ours = max(
            (mean_over_seeds([run["scores"]["accuracy"] for run in runs], 2, 100) for runs in shown if runs),
            key=Decimal,
            default=None,
        )
        theirs = of_paper(cell)[0].split(" ± ")[0]
        if ours is not None and Decimal(ours) < Decimal(theirs):
            behind.append(f"{noise}: {ours} % ({theirs} %)")
    return behind


def of_ours(runs: list[Result]) -> list[str]:
    """Accuracy in percent, AUROC and F, as far as recorded."""
    found = [over_seeds([run["scores"]["accuracy"] for run in runs], 2, 100)]
    for key in ("auroc", "f_best", "f_auto"):
        values = [run["scores"][key] for run in runs]
        found.append("" if values and None in values else over_seeds(values, 3))
    return found


def of_paper(cell: str) -> list[str]:
    """The paper's values for a cell, as in `of_ours`; it has no automatic ζ."""
    lcnl = paper()["lcnl-accuracy"]
    if cell in lcnl["columns"]:
        return [dict(zip(lcnl["columns"], lcnl["rows"]["NGC"], strict=True))[cell], "", "", ""]
    tables = ("lond-accuracy", "lond-auroc", "lond-fmeasure")
    found = [dict(zip(paper()[t]["columns"], paper()[t]["rows"][cell], strict=True)) for t in tables]
    return [found[0]["NGC"], f"{float(found[1]['NGC']) / 100:.3f}", found[2]["NGC, best ζ"], ""]


def ledger() -> str:
    """All tables of `LEDGER`."""
    tables = {title: render_table(name, RUNS, "markdown").strip() for name, title in LEDGER.items()}
    return "\n\n".join(f"### {title}\n\n{text}" for title, text in tables.items())


def steps() -> str:
    """The effect of each change that led to the fast and best presets, on both splits."""
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
