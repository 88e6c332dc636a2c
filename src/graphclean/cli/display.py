"""Terminal output of the commands."""

from __future__ import annotations

import json
import shlex
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich import markup
from rich.console import Console
from rich.table import Table

from ..data.verdict import Verdict, describe_rates
from .progress import describe_seconds, open_console, printable

if TYPE_CHECKING:
    import pandas as pd

    from ..cleaning import Summary
    from ..runs.schema import RerunRecord
    from ..runs.scoring import Predicted

CONFUSED_SHOWN = 5
FIRST_SHOWN = 3


def silence_pillow() -> None:
    """Silence Pillow's warning about large images, which names its own source; we refuse them ourselves."""
    warnings.filterwarnings("ignore", "Image size .* could be decompression bomb")


def escape(text: str) -> str:
    """Escape names, so that they are neither markup nor control sequences."""
    return markup.escape(printable(text))


def print_json(value: dict[str, Any]) -> None:
    """Print the result of a command for other programs."""
    from .._files import plain

    typer.echo(json.dumps(plain(value), indent=2))


def show_cleaning(summary: Summary, source: str, out: Path, changes: RerunRecord | None = None) -> None:
    """Show the verdicts, their basis, and where they are stored."""
    console = open_console()
    sizes = f"{summary.samples:,} samples, {summary.features:,} features, {len(summary.classes)} classes"
    console.print(f"{escape(source)}: {sizes}\n", soft_wrap=True)
    _show_findings(console, summary)
    _show_changes(console, changes, out)
    if summary.detector is not None:
        _show_detector(console, summary.detector)
    console.print(f"Verdicts: {escape(str(out / 'verdicts.csv'))} (and .parquet)", soft_wrap=True)
    console.print(f"See them: graphclean report {_argument(out)}", soft_wrap=True)
    _show_warnings(summary.warnings)


def _show_detector(console: Console, detector: dict[str, Any]) -> None:
    """Show how many new inputs will be rejected, as far as this can be known."""
    known, ood, promised = (detector[name] for name in ("rejected_known", "rejected_ood", "promised"))
    how = "found on the training set" if detector["how"] == "auto" else "as it was set"
    of_known = (
        f"{_percent(promised)} of good inputs"
        if promised is not None
        else f"about {_percent(known)} of good inputs, by its own estimate"
        if detector["calibrated_on"]
        else f"an unknown fraction of good inputs ({_percent(known)} of the known training samples)"
    )
    of_ood = (
        f"about {_percent(ood)} of OOD inputs, if they resemble those in the training set"
        if ood is not None
        else "an unknown fraction of OOD inputs: the training set has none to learn from"
    )
    console.print(
        f"Detector ({escape(detector['name'])}): threshold {detector['threshold']:.3f}, {how}. "
        f"`predict` will reject {of_known}, and {of_ood}.\n",
        soft_wrap=True,
    )


def show_training(summary: Summary, trained: dict[str, Any], source: str, out: Path) -> None:
    """Show the verdicts, what the detector will do, and the next steps; `trained` is as in summary.json."""
    console = open_console()
    console.print(
        f"{escape(source)}: {summary.samples:,} samples, {len(summary.classes)} classes\n", soft_wrap=True
    )
    _show_findings(console, summary)
    _show_changes(console, trained.get("rerun"), out)
    _show_trained(console, trained)
    _show_places(console, out)
    console.print(f"See them: graphclean report {_argument(out)}", soft_wrap=True)
    console.print(f"New data: graphclean predict {_argument(out)} NEW", soft_wrap=True)
    _show_warnings(trained["warnings"])


def show_demo(
    summary: Summary,
    trained: dict[str, Any],
    scores: dict[str, Any],
    facts: dict[str, int],
    out: Path,
    page: Path,
) -> None:
    """Show both methods' scores on the test digits, and the verdicts next to the ground truth."""
    console = open_console()
    console.print(
        f"{facts['samples']:,} handwritten digits. 0 to 7 are the classes; {facts['wrong']} of their "
        f"{facts['known']:,} labels are wrong. {facts['ood']} more are 8s and 9s under random labels.\n",
        soft_wrap=True,
    )
    console.print(
        f"On new digits, {facts['test_known']} of the classes and {facts['test_ood']} 8s and 9s to reject:"
    )
    table = plain_table("", "accuracy", "OOD AUROC", "open-set F", "seconds")
    for name, row in (("plain cross-entropy", scores["ce"]), ("NGC", scores["ngc"])):
        f = f"{row['f']:.3f}" if "f" in row else "–"
        table.add_row(name, _percent(row["accuracy"]), f"{row['auroc']:.3f}", f, f"{row['seconds']:.1f}")
    console.print(table)
    console.print("\nThe verdicts on the training digits:\n")
    _show_findings(console, summary)
    _show_trained(console, trained)
    verdicts = scores["verdicts"]
    console.print("Verdicts compared with the ground truth, which the method never saw:")
    table = plain_table("", *verdicts["confusion"]["ood"])
    for column in table.columns[1:]:
        column.justify = "right"
    for kind, name in (("right", "right label"), ("wrong", "wrong label"), ("ood", "8s and 9s")):
        table.add_row(name, *(str(count) for count in verdicts["confusion"][kind].values()))
    console.print(table)
    console.print()
    table = plain_table("", "")
    table.add_row("label accuracy before", _percent(1 - facts["wrong"] / facts["known"]))
    table.add_row("label accuracy after", _percent(verdicts["label_accuracy"]))
    table.add_row("mislabel F1", f"{verdicts['mislabel_f1']:.3f}")
    table.add_row("any-issue F1", f"{verdicts['issue_f1']:.3f}")
    table.add_row("OOD AUROC", f"{verdicts['ood_auroc']:.3f}")
    table.show_header = False
    console.print(table)
    console.print()
    _show_places(console, out)
    console.print(f"Report:   {escape(str(page))} (open it in a browser)", soft_wrap=True)
    _show_warnings(trained["warnings"])


def show_list(titles: dict[str, str], what: str, about: str, hint: str) -> None:
    """Show names with the purpose of each, and a hint."""
    console = open_console()
    table = plain_table(what, about)
    for name, title in titles.items():
        table.add_row(name, escape(title))
    console.print(table)
    console.print(f"\n{hint}")


def show_facts(rows: list[dict[str, Any]], columns: dict[str, str], about: str, hint: str) -> None:
    """Like `show_list`, with several facts each; empty columns are omitted."""
    console = open_console()
    shown = {key: title for key, title in columns.items() if any(row[key] for row in rows)}
    table = plain_table(*shown.values(), about)
    for row in rows:
        table.add_row(*(escape(_fact(row[key])) for key in shown), escape(row["title"]))
    console.print(table)
    console.print(f"\n{hint}")


def _fact(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else value


def show_predictions(found: Predicted, source: str) -> None:
    """Show the number of accepted samples per class, or the prediction for a single sample.

    If the table went to standard output, this goes to standard error.
    """
    console = open_console(stderr=found.out is None)
    place = (
        f"Predictions: {escape(str(found.out))}"
        if found.out is not None
        else "Predictions: on standard output"
    )
    counts = found.counts()
    if found.samples == 1 and found.last is not None:
        console.print(f"{escape(source)}: {escape(_predicted(found.last))}\n", soft_wrap=True)
        _show_scores(console, found.scores)
        console.print(place, soft_wrap=True)
        _show_warnings(found.warnings)
        return
    lost = f", {found.unreadable:,} can't be read" if found.unreadable else ""
    console.print(
        f"{escape(source)}: {found.samples:,} samples, {found.ood:,} of them rejected as OOD{lost}\n",
        soft_wrap=True,
    )
    shown = plain_table("class", "samples")
    for name, count in counts["known"].items():
        shown.add_row(escape(str(name)), f"{count:,}")
    console.print(shown)
    console.print()
    if found.promised is not None:
        console.print(f"Of samples of the known classes {_percent(found.promised)} are rejected too.\n")
    _show_scores(console, found.scores)
    console.print(place, soft_wrap=True)
    _show_warnings(found.warnings)


def _show_scores(console: Console, scores: dict[str, Any] | None) -> None:
    """Show scores against the labels of the new data, if it has any."""
    if scores is None:
        return
    if scores["known"]:
        right, rejected = _percent(scores["accuracy"]), _percent(scores["known_rejected"])
        console.print(
            f"Of {scores['known']:,} under a known label {right} are classified right, {rejected} rejected."
        )
    if scores["ood"]:
        names = [escape(name) for name in scores["other_labels"]]
        others = ", ".join(names[:FIRST_SHOWN]) + (", …" if len(names) > FIRST_SHOWN else "")
        apart = f" (AUROC {scores['auroc']:.3f})" if scores["auroc"] is not None else ""
        rejected = _percent(scores["ood_rejected"])
        which = f"{scores['ood']:,} under another label ({others})"
        console.print(f"Of {which} {rejected} are rejected{apart}.", soft_wrap=True)
    console.print()


def _predicted(row: pd.Series[Any]) -> str:
    if row.verdict == Verdict.UNREADABLE:
        return "can't be read"
    best = f"{row.predicted_label}, probability {row.probability:.2f}"
    return best if row.verdict == "known" else f"rejected as OOD; the nearest class is {best}"


def show_report(out: Path, size: int, notes: list[str]) -> None:
    """Show the path of the page, and what it omits."""
    console = open_console()
    console.print(f"Report: {escape(str(out))} ({size / 1e6:.1f} MB; open it in a browser)", soft_wrap=True)
    _show_warnings(notes)


def show_review(address: str, path: Path) -> None:
    """Show the address, at the end of a line to be clicked or copied, and how to end the review."""
    console = open_console()
    console.print(f"Review: {escape(address)}", soft_wrap=True)
    console.print(f"Saved as you go, in {escape(str(path))}. Ctrl-C ends the review.", soft_wrap=True)


def show_reviewed(count: int, run: Path) -> None:
    """Show the number of decisions, and how to apply them."""
    samples = "sample" if count == 1 else "samples"
    open_console().print(
        f"\n{count:,} {samples} decided. Carry it out: graphclean apply {_argument(run)}", soft_wrap=True
    )


def show_merged(
    added: int, agreed: int, conflicts: list[dict[str, Any]], gone: list[str], notes: int
) -> None:
    """Show what was merged from another reviewer's file, the conflicts, and what is not in this run."""
    console = open_console()
    decisions = "decision" if added == 1 else "decisions"
    console.print(f"{added:,} {decisions} merged, {agreed:,} the same, {len(conflicts):,} different.")
    if notes:
        console.print(f"{notes:,} {'note' if notes == 1 else 'notes'} merged.")
    if conflicts:
        table = plain_table("id", "ours", "theirs", "kept (the later)")
        for conflict in conflicts:
            ours, theirs = (conflict[side] or "no class" for side in ("ours", "theirs"))
            table.add_row(escape(conflict["id"]), escape(ours), escape(theirs), conflict["taken"])
        console.print()
        console.print(table)
    if gone:
        samples = "1 sample that is" if len(gone) == 1 else f"{len(gone):,} samples that are"
        some = ", ".join(gone[:FIRST_SHOWN]) + (", …" if len(gone) > FIRST_SHOWN else "")
        _show_warnings(
            [f"what was decided on {samples} not in this run, or more than once, is left out: {some}"]
        )


def show_export(exported: dict[str, Any]) -> None:
    """Show the file, its inputs and outputs, and how to serve it; `exported` is as `--json` prints it."""
    console = open_console()
    out, checked, given = exported["out"], exported["checked"], exported["input"]
    console.print(f"Model: {escape(out)} ({exported['bytes'] / 2**20:.1f} MiB)", soft_wrap=True)
    console.print(f"Card:  {escape(exported['card'])}\n", soft_wrap=True)
    rows = [("input", given["name"], given["expects"])]
    rows += [("output", name, meaning) for name, meaning in exported["outputs"].items()]
    for kind, name, meaning in rows:
        console.print(f"{kind:<8}{name:<15}{escape(meaning)}", soft_wrap=True)
    console.print(
        f"\nonnxruntime and PyTorch agree on {checked['inputs']} inputs: "
        f"they differ by {checked['largest_difference']:.1g} at most.",
        soft_wrap=True,
    )
    run = f"onnxruntime.InferenceSession({escape(repr(out))}).run(None, {{{given['name']!r}: x}})"
    console.print(f"Serve: {run}", soft_wrap=True)
    _show_warnings(exported["warnings"])


def show_applied(
    table: pd.DataFrame, counts: dict[str, int], out: Path, changed: int, notes: list[str], *, dry_run: bool
) -> None:
    """Show how many samples were kept, relabeled and removed; on a dry run also the first few of each."""
    console = open_console()
    shown = plain_table("action", "samples")
    for action, count in counts.items():
        shown.add_row(action, f"{count:,}")
    console.print(shown)
    console.print()
    if dry_run:
        first = plain_table("action", "id", "reason")
        for action in counts:
            for row in table[table["action"] == action].head(FIRST_SHOWN).itertuples():
                first.add_row(action, escape(str(row.id)), escape(str(row.reason)))
        console.print(first)
        console.print(
            f"\nNothing was written; files to change in {escape(str(out))}: {changed:,}", soft_wrap=True
        )
    elif changed:
        console.print(f"Cleaned: {escape(str(out))} (files changed: {changed:,})", soft_wrap=True)
    else:
        console.print(f"Nothing to change: {escape(str(out))} is as it should be", soft_wrap=True)
    _show_warnings(notes)


def _show_findings(console: Console, summary: Summary) -> None:
    table = plain_table("verdict", "samples", "", "right, by its own estimate")
    for name, count in summary.verdicts.items():
        if count == 0 and name in (Verdict.UNLABELED, Verdict.UNREADABLE):
            continue
        right = summary.expected_right.get(name)
        estimate = "too unsure to say" if count and Verdict(name).is_estimated else ""
        if right is not None:
            estimate = f"about {round(100 * right)} of 100"
        table.add_row(name, f"{count:,}", Verdict(name).meaning, estimate)
    console.print(table)
    console.print()
    rates = describe_rates(summary.noise_rate, summary.ood_rate, summary.possible_ood_rate)
    if rates is not None:
        console.print(f"Estimated: {rates}.", soft_wrap=True)
    if summary.k_tried:
        tried = ", ".join(str(k) for k in summary.k_tried)
        console.print(
            f"Neighbors: k = {summary.k}, under which the given labels are most likely (of {tried})."
            if len(summary.k_tried) > 1
            else f"Neighbors: k = {summary.k}.",
            soft_wrap=True,
        )
    if summary.scaling == "raw":
        console.print("Features: as they are; standardized, they would make the given labels less likely.")
    if summary.photo_issues:
        found = ", ".join(f"{count:,} {name}" for name, count in summary.photo_issues.items())
        console.print(f"Photos, as pictures: {found} (photo_issues in the table).", soft_wrap=True)
    if summary.confused:
        console.print("\nMost often relabeled:")
        pairs = plain_table("given", "proposed", "samples")
        for pair in summary.confused[:CONFUSED_SHOWN]:
            pairs.add_row(escape(str(pair["given"])), escape(str(pair["proposed"])), f"{pair['count']:,}")
        console.print(pairs)
    console.print()


def _show_changes(console: Console, changes: RerunRecord | None, out: Path) -> None:
    """Show the effect of the review decisions."""
    if changes is None:
        return
    held, rest = f"{changes['decided']:,} decisions held", changes["changed_undecided"]
    console.print(
        f"Since {escape(changes['run'])}: {held}; {rest:,} other samples have another verdict or proposal "
        f"({escape(str(out / 'changes.csv'))}).",
        soft_wrap=True,
    )
    table = plain_table("before", "after", "samples", "of them decided")
    table.columns[-1].justify = "right"
    for count in changes["verdicts"]:
        if count["before"] != count["after"]:
            cells = f"{count['samples']:,}", f"{count['decided']:,}"
            table.add_row(count["before"], count["after"], *cells)
    if table.row_count:
        console.print(table)
    console.print()


def _show_trained(console: Console, trained: dict[str, Any]) -> None:
    """Show the training time, and what the detector will do with new inputs."""
    training, detector = trained["training"], trained["detector"]
    accuracy = training["validation_accuracy"]
    right = f", {_percent(accuracy)} of the validation samples right" if accuracy is not None else ""
    console.print(
        f"Trained {training['epochs']} epochs in {describe_seconds(training['seconds'])} on "
        f"{training['device']}: {trained['selected']:,} samples selected{right}.",
        soft_wrap=True,
    )
    _show_detector(console, detector)


def _show_places(console: Console, out: Path) -> None:
    console.print(f"Verdicts: {escape(str(out / 'verdicts.csv'))} (and .parquet)", soft_wrap=True)
    console.print(f"Model:    {escape(str(out / 'model.safetensors'))}", soft_wrap=True)


def _show_warnings(messages: list[str]) -> None:
    console = open_console(stderr=True)
    for message in messages:
        console.print(f"[yellow]warning:[/yellow] {escape(message)}", soft_wrap=True)


def plain_table(*columns: str) -> Table:
    """A table without lines; numbers of samples and seconds are right-aligned."""
    table = Table(box=None, padding=(0, 2), pad_edge=False)
    for name in columns:
        table.add_column(name, justify="right" if name in ("samples", "seconds") else "left")
    return table


def _argument(path: Path) -> str:
    """A path as typed in a shell."""
    return escape(shlex.quote(str(path)))


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"
