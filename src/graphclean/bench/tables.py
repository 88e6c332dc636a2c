"""The paper's tables next to our runs, and lists of all runs; no number in them is typed by hand."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal
from functools import partial
from importlib.resources import files
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy.special import softmax

from ..errors import InputError, suggest
from ..metrics import top_k_accuracy
from .cells import CELLS, scored_with
from .epoch_log import CONTROL_LIMIT
from .markdown import markdown_table
from .registry import SETS
from .results import Record, other_arrays, read_records

TableFormat: TypeAlias = Literal["markdown", "latex"]
_Columns: TypeAlias = dict[str, Callable[[str, str], str]]
"""Column name -> the text for a cell and a method."""

NOT_RUN = "–"
WEBVISION = "webvision50"
"""The cell of WebVision, whose runs are scored on ILSVRC12 too."""
OWN = "ours"
"""Name of the method of a cell's own preset, whichever that is."""
ABLATION_NAMES = {
    "w/o noise correction": "without-noise-correction",
    "w/o confidence selection": "without-confidence",
    "w/o geometry selection": "without-geometry",
    "w/o L_inst": "without-inst",
    "w/o L_subgraph": "without-subgraph",
    "w/o mixup": "without-mixup",
    "w/o AugMix": "without-augmix",
    "NGC": None,
}
"""The paper's rows, and the ablation in the names of our methods."""
F_SCORES = {"best ζ": "f_best", "ζ = 0.5": "f_0.5", "ζ = 0.7": "f_0.7", "auto ζ": "f_auto"}
OURS_NOTE = "Ours: mean ± standard deviation over seeds, their number in brackets; last epoch, test set."
TWO_NETWORKS = "Two networks: the mean softmax of the first two recorded seeds."
TWO_DRAWS = (
    "They were trained with two noise seeds: a label that is wrong for one may be right for the other."
)


@dataclass
class MarkdownTable:
    """A header, rows of text, and notes below."""

    header: list[str]
    rows: list[list[str]]
    notes: list[str] = field(default_factory=list)


def table_names() -> list[str]:
    """The names of all tables."""
    return list(PAPER_TABLES)


def render_table(name: str, results: Path, form: TableFormat) -> str:
    """A table as Markdown or LaTeX, from the runs recorded under `results`."""
    if name not in PAPER_TABLES:
        raise InputError(f"no table is called {name}; {suggest(name, PAPER_TABLES)}")
    table = PAPER_TABLES[name](read_records(results))
    return _markdown(table) if form == "markdown" else _latex(table)


def paper() -> dict[str, Any]:
    """The numbers of the paper, as printed there."""
    return dict(json.loads((files(__package__) / "paper.json").read_text(encoding="utf-8")))


def round_text(value: Decimal, decimals: int) -> str:
    """Round half to even on the decimal value, free of binary rounding errors."""
    return str(value.quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_EVEN))


def mean_and_deviation(values: Sequence[Decimal], decimals: int) -> str:
    """Mean ± sample standard deviation (n); no ± for a single value, a dash for none."""
    if not values:
        return NOT_RUN
    spread = f" ± {round_text(stdev(values), decimals)}" if len(values) > 1 else ""
    return f"{round_text(mean(values), decimals)}{spread} ({len(values)})"


def ensemble_accuracy(
    first: Record, second: Record, k: int = 1, arrays: tuple[str, str] = ("truth", "logits")
) -> Decimal | None:
    """Top-k accuracy of the mean softmax of two runs on known samples; None without the logits of both.

    `arrays` names the truth and logits of the set that is scored.
    """
    shares, truths = [], []
    for record in (first, second):
        found = record.arrays(*arrays)
        if found is None or record.number("scores", "accuracy") is None:
            return None
        truth, logits = (found[name] for name in arrays)
        shares.append(softmax(logits.astype(np.float64), axis=1))
        truths.append(truth[truth >= 0].astype(np.int64))
    if shares[0].shape != shares[1].shape or not np.array_equal(truths[0], truths[1]):
        raise InputError(
            f"{first.path} and {second.path} were scored on different images; run one of the two again"
        )
    right = round(top_k_accuracy(shares[0] + shares[1], truths[0], k) * len(truths[0]))
    return Decimal(right) / len(truths[0])


class _Runs:
    """The runs on test sets by cell and method; the method of a cell's own preset is `OWN`."""

    def __init__(self, records: Iterable[Record]) -> None:
        self.found: dict[tuple[str, str], list[Record]] = {}
        for record in records:
            if record.split == "test":
                self.found.setdefault((record.cell, _our_method(record)), []).append(record)

    def of(self, cell: str, method: str) -> list[Record]:
        return self.found.get((cell, method), [])

    def methods(self, cells: Iterable[str]) -> list[str]:
        """`OWN`, then all other methods that were run on one of these cells."""
        among = set(cells)
        return [OWN, *sorted({method for cell, method in self.found if cell in among} - {OWN})]

    def score(
        self, cell: str, method: str, key: str, decimals: int = 2, within: tuple[str, ...] = ("scores",)
    ) -> str:
        """Mean ± standard deviation of a score, in percent except for F."""
        factor = 1 if key.startswith("f_") else 100
        values = [record.number(*within, key) for record in self.of(cell, method)]
        return mean_and_deviation(
            [factor * _decimal(value) for value in values if value is not None], decimals
        )

    def two_networks(
        self, cell: str, method: str, k: int = 1, arrays: tuple[str, str] = ("truth", "logits")
    ) -> str:
        """Top-k accuracy of the ensemble of the first two seeds, in percent."""
        pair = self._pair(cell, method)
        value = ensemble_accuracy(pair[0], pair[1], k, arrays) if len(pair) == 2 else None
        return NOT_RUN if value is None else round_text(100 * value, 2)

    def two_networks_note(self, cells: Iterable[str]) -> str:
        """Explain the two-network ensemble, and whether some on these cells saw more than one noise seed."""
        among = set(cells)
        pairs = [self._pair(cell, method) for cell, method in self.found if cell in among]
        several = any(len({record.data["draw"] for record in pair}) > 1 for pair in pairs)
        return f"{TWO_NETWORKS} {TWO_DRAWS}" if several else TWO_NETWORKS

    def _pair(self, cell: str, method: str) -> list[Record]:
        return self.of(cell, method)[:2]

    def control_notes(self, cell: str, method: str) -> list[str]:
        """Report a detector that fails the control or was not tested with it."""
        records = self.of(cell, method)
        values = [record.number("scores", "control_auroc") for record in records]
        taken = [value for value in values if value is not None]
        who = f"{cell}, {_our_name(method)}"
        if taken and max(taken) > CONTROL_LIMIT:
            auroc = round_text(_decimal(max(taken)), 3)
            return [f"Control failed: {who} separates resampled images from others (AUROC {auroc})."]
        return [f"Control not recorded: {who}."] if len(taken) < len(records) else []

    def partial_notes(self, cells: Iterable[str]) -> list[str]:
        """A note for each method that was run on a part of the base set of one of these cells."""
        among = set(cells)
        found = (records for (cell, _), records in self.found.items() if cell in among)
        return _partial_notes(record for records in found for record in records)


def _partial_notes(records: Iterable[Record]) -> list[str]:
    """A note for each method that was run on a part of its base set; older runs used all of it and don't
    record it.
    """
    notes = []
    for record in records:
        whole = _published(record.cell)
        for part in ("train", "test") if record.split == "test" else ("train",):
            has = record.number("sizes", part)
            if part in whole and has is not None and has != whole[part]:
                share = f"{has:,.0f} of {whole[part]:,} {part} images"
                who = _our_name(_our_method(record))
                notes.append(f"Not on the whole set: {record.cell}, {who} ({share}).")
        for name in record.data.get("also", {}):
            has, part = record.number("also", name, "images"), name.rpartition("/")[2]
            if part in whole and has is not None and has != whole[part]:
                share = f"{has:,.0f} of {whole[part]:,} images"
                notes.append(f"Not on the whole set: {name}, {_our_name(_our_method(record))} ({share}).")
    return list(dict.fromkeys(notes))


def _published(cell: str) -> dict[str, int]:
    """The published numbers of images of the sets of a cell, as far as known."""
    photos = CELLS[cell].photos if cell in CELLS else None
    if photos is not None:
        return {"train": photos.train, "test": photos.val, "ilsvrc12": photos.ilsvrc12}
    base = SETS.get(cell.partition("/")[0])
    return dict(base.splits) if base is not None else {}


def _decimal(value: float) -> Decimal:
    """The decimal number as it was recorded."""
    return Decimal(repr(value))


def _our_method(record: Record) -> str:
    """The method's name, with `OWN` for the cell's preset and its ablations; other changes make another
    method.
    """
    base, ablation = _parts(record.method)
    if record.cell not in CELLS or base != CELLS[record.cell].preset:
        return record.method
    return OWN if ablation is None else f"{OWN}--{ablation}"


def _our_name(method: str) -> str:
    return method if method == OWN else f"ours: {method}"


def _parts(method: str) -> tuple[str, str | None]:
    """A method's name without its ablation, and the ablation; several are combined into one."""
    parts = method.split("--")
    left_out = [part for part in parts if part.startswith("without-")]
    return "--".join(part for part in parts if part not in left_out), "--".join(left_out) or None


def _whole_methods(runs: _Runs, cells: Iterable[str]) -> list[str]:
    """The methods without ablations, which have their own table."""
    return [method for method in runs.methods(cells) if _parts(method)[1] is None]


def _lond_accuracy(records: list[Record]) -> MarkdownTable:
    runs = _Runs(records)
    columns: _Columns = {
        "ours": lambda cell, method: runs.score(cell, method, "accuracy"),
        "ours, two networks": runs.two_networks,
    }
    two = runs.two_networks_note(paper()["lond-accuracy"]["rows"])
    return _beside("lond-accuracy", runs, columns, f"Accuracy in percent. {OURS_NOTE} {two}")


def _lond_auroc(records: list[Record]) -> MarkdownTable:
    runs = _Runs(records)
    columns: _Columns = {"ours": lambda cell, method: runs.score(cell, method, "auroc")}
    note = f"AUROC in percent; MSP, ODIN and MD sit on DivideMix. {OURS_NOTE}"
    return _beside("lond-auroc", runs, columns, note)


def _lond_fmeasure(records: list[Record]) -> MarkdownTable:
    runs = _Runs(records)
    columns: _Columns = {
        f"ours, {name}": partial(runs.score, key=key, decimals=3) for name, key in F_SCORES.items()
    }
    note = f"Open-set F; the best ζ is chosen on the test set, auto ζ on the training set alone. {OURS_NOTE}"
    return _beside("lond-fmeasure", runs, columns, note)


def _beside(name: str, runs: _Runs, columns: _Columns, note: str) -> MarkdownTable:
    """The paper's columns, then ours; below each cell, one row per other method that was run on it."""
    theirs = paper()[name]
    rows, controls = [], []
    for cell, values in theirs["rows"].items():
        for method in _whole_methods(runs, [cell]):
            head = [cell, *values] if method == OWN else [_our_name(method), *[""] * len(values)]
            rows.append([*head, *(column(cell, method) for column in columns.values())])
            controls += runs.control_notes(cell, method)
    notes = [note, *controls, *runs.partial_notes(theirs["rows"])]
    return MarkdownTable(["cell", *theirs["columns"], *columns], rows, notes)


def _lcnl_accuracy(records: list[Record]) -> MarkdownTable:
    runs, theirs = _Runs(records), paper()["lcnl-accuracy"]
    cells = theirs["columns"]
    rows = [[name, *(value or NOT_RUN for value in values)] for name, values in theirs["rows"].items()]
    for method in _whole_methods(runs, cells):
        rows.append([_our_name(method), *(runs.score(cell, method, "accuracy") for cell in cells)])
        pairs = [runs.two_networks(cell, method) for cell in cells]
        if method == OWN or set(pairs) != {NOT_RUN}:
            rows.append([f"{_our_name(method)}, two networks", *pairs])
    notes = [
        f"Accuracy in percent. {OURS_NOTE} {runs.two_networks_note(cells)}",
        "Best since: mostly figures of the best epoch; ProMix trains two networks for 600 epochs.",
        *runs.partial_notes(cells),
    ]
    return MarkdownTable(["method", *cells], rows, notes)


def _ablation_accuracy(records: list[Record]) -> MarkdownTable:
    runs, theirs = _Runs(records), paper()["ablation-accuracy"]
    ablations = set(ABLATION_NAMES.values()) - {None}
    ours = {cell for cell, method in runs.found if _parts(method)[1] in ablations}
    others = sorted(ours - set(theirs["columns"]))
    cells = [*theirs["columns"], *others]
    recorded = {_parts(method): method for method in runs.methods(cells)}
    ablated = {base for base, ablation in recorded if ablation} - {OWN}
    rows = []
    for name, values in theirs["rows"].items():
        rows.append([name, "paper", *values, *[""] * len(others)])
        for base in [OWN, *sorted(ablated)]:
            method = recorded.get((base, ABLATION_NAMES[name]))
            if method or base == OWN:
                scores = [runs.score(cell, method, "accuracy") if method else NOT_RUN for cell in cells]
                rows.append(["", _our_name(base), *scores])
    notes = [f"Accuracy in percent. {OURS_NOTE}", *runs.partial_notes(cells)]
    return MarkdownTable(["", "", *cells], rows, notes)


def _webvision50(records: list[Record]) -> MarkdownTable:
    """The paper's rows, then ours with and without AugMix, and those of all other methods that were run."""
    runs, theirs = _Runs(records), paper()["webvision50"]
    other = scored_with(CELLS[WEBVISION])[0].name
    rows = [[name, *values] for name, values in theirs["rows"].items()]
    own = [OWN, f"{OWN}--{ABLATION_NAMES['w/o AugMix']}"]
    for method in dict.fromkeys([*own, *runs.methods([WEBVISION])]):
        name = {own[1]: f"{OWN} w/o AugMix"}.get(method, _our_name(method))
        places = [(within, key) for within in (("scores",), ("also", other)) for key in ("accuracy", "top5")]
        scores = [runs.score(WEBVISION, method, key, within=within) for within, key in places]
        sets = [(k, arrays) for arrays in (("truth", "logits"), other_arrays(other)) for k in (1, 5)]
        pairs = [runs.two_networks(WEBVISION, method, k, arrays) for k, arrays in sets]
        rows.append([name, *scores])
        if method in own or set(pairs) != {NOT_RUN}:
            rows.append([f"{name}, two networks", *pairs])
    notes = [f"Accuracy in percent. {OURS_NOTE} {TWO_NETWORKS}", *runs.partial_notes([WEBVISION])]
    return MarkdownTable(["method", *theirs["columns"]], rows, notes)


def _runs_table(records: list[Record]) -> MarkdownTable:
    header = ["cell", "split", "method", "seed", "epochs", "accuracy", "AUROC", "F, auto ζ", "F, best ζ"]
    rows = [
        [
            record.cell, record.split, record.method, str(record.seed), str(len(record.epochs)),
            _text(record, 2, "scores", "accuracy"), _text(record, 2, "scores", "auroc"),
            _text(record, 3, "scores", "f_auto"), _text(record, 3, "scores", "f_best"),
            _text(record, 2, "cleaning", "noise_rate"), _minutes(record), _commit(record),
        ]
        for record in records
    ]  # fmt: skip
    notes = [_count(rows, "run", "recorded"), "Accuracy, AUROC and the noise of the selected set in percent."]
    notes += _partial_notes(records)
    return MarkdownTable([*header, "noise of selected", "minutes", "commit"], rows, notes)


def _verdicts_table(records: list[Record]) -> MarkdownTable:
    header = ["cell", "split", "method", "seed", "mislabel F1", "any-issue F1", "three-way F1"]
    rows = [
        [
            record.cell, record.split, record.method, str(record.seed),
            *(_text(record, 3, "verdicts", key) for key in ("mislabel_f1", "issue_f1", "three_way_f1")),
            _text(record, 2, "verdicts", "label_accuracy"), _text(record, 3, "verdicts", "ood_auroc"),
            _called_ood(record),
        ]
        for record in records
        if record.data.get("verdicts") is not None
    ]  # fmt: skip
    notes = [
        _count(rows, "run", "with verdicts"),
        "Label accuracy in percent, after the verdicts are applied; ood: percent of the in-distribution "
        "samples whose verdict is `ood`.",
        *_partial_notes(records),
    ]
    return MarkdownTable([*header, "label accuracy", "OOD AUROC", "ood"], rows, notes)


def _called_ood(record: Record) -> str:
    """The percentage of in-distribution samples with the verdict `ood`; older runs don't record it."""
    counts = [
        record.number("verdicts", "confusion", kind, verdict)
        for kind in ("right", "wrong")
        for verdict in ("keep", "relabel", "ood", "uncertain")
    ]
    known = [count for count in counts if count is not None]
    if len(known) < len(counts) or not any(known):
        return NOT_RUN
    return round_text(_decimal(100 * (known[2] + known[6]) / sum(known)), 2)


def _scorings(records: list[Record]) -> MarkdownTable:
    scored = sorted((record for record in records if record.split == "test"), key=_time)
    header = ["time", "cell", "method", "seed", "accuracy", "AUROC", "F, auto ζ", "control", "draw", "commit"]
    rows = [
        [
            _time(record) or NOT_RUN, record.cell, record.method, str(record.seed),
            _text(record, 2, "scores", "accuracy"), _text(record, 2, "scores", "auroc"),
            _text(record, 3, "scores", "f_auto"), _text(record, 3, "scores", "control_auroc"),
            str(record.data.get("draw") or NOT_RUN)[:10], _commit(record),
        ]
        for record in scored
    ]  # fmt: skip
    notes = [_count(rows, "evaluation", "on a test set"), "Accuracy and AUROC in percent."]
    return MarkdownTable(header, rows, [*notes, *_partial_notes(scored)])


def _text(record: Record, decimals: int, *keys: str) -> str:
    """A number of a run; two decimals mean percent."""
    value = record.number(*keys)
    return NOT_RUN if value is None else round_text((100 if decimals == 2 else 1) * _decimal(value), decimals)


def _minutes(record: Record) -> str:
    value = record.number("seconds")
    return NOT_RUN if value is None else round_text(_decimal(value) / 60, 1)


def _commit(record: Record) -> str:
    return str(record.data["machine"].get("commit") or NOT_RUN)[:10]


def _time(record: Record) -> str:
    return str(record.data["machine"].get("time") or "")


def _count(rows: list[list[str]], noun: str, rest: str) -> str:
    return f"{len(rows)} {noun}{'' if len(rows) == 1 else 's'} {rest}."


def _markdown(table: MarkdownTable) -> str:
    notes = "\n".join(f"{note}  " for note in table.notes)
    return f"{markdown_table(table.header, table.rows)}\n\n{notes}".rstrip() + "\n"


LATEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "±": r"$\pm$", "ζ": r"$\zeta$", "–": "--", "--": "-{}-",
} | {char: f"\\{char}" for char in "&%$#_{}"}  # fmt: skip
"""Characters with a special meaning in LaTeX, and double hyphens, which it would join."""


def _escape(text: str) -> str:
    pieces = text.split("--")
    return LATEX["--"].join("".join(LATEX.get(char, char) for char in piece) for piece in pieces)


def _latex(table: MarkdownTable) -> str:
    columns = "l" + "r" * (len(table.header) - 1)
    lines = [rf"\begin{{tabular}}{{{columns}}}", r"\hline", _latex_row(table.header), r"\hline"]
    lines += [_latex_row(row) for row in table.rows]
    notes = [rf"\\ {_escape(note)}" for note in table.notes]
    return "\n".join([*lines, r"\hline", r"\end{tabular}", *notes]) + "\n"


def _latex_row(cells: list[str]) -> str:
    return " & ".join(map(_escape, cells)) + r" \\"


PAPER_TABLES: dict[str, Callable[[list[Record]], MarkdownTable]] = {
    "lond-accuracy": _lond_accuracy,
    "lond-auroc": _lond_auroc,
    "lond-fmeasure": _lond_fmeasure,
    "lcnl-accuracy": _lcnl_accuracy,
    "ablation-accuracy": _ablation_accuracy,
    "webvision50": _webvision50,
    "runs": _runs_table,
    "verdicts": _verdicts_table,
    "scorings": _scorings,
}
