"""The findings of a run and the next steps, in plain words."""

import shlex
from dataclasses import dataclass
from pathlib import Path

from ..data.verdict import Verdict, describe_rates
from ..runs.folder import recorded_data
from ..runs.inputs import IN_PYTHON, recorded_options
from ..runs.photos import DEFAULT_EMBEDDER
from ..runs.schema import ConfigFile, SummaryFile
from .samples import Samples


@dataclass(frozen=True)
class Step:
    """A next step and its command."""

    text: str
    command: str | None = None


REVIEWING = Step(
    "Go through the suspects below: accept, reject, or choose another label. Decisions are saved as you go, "
    "and you can stop at any time."
)


@dataclass(frozen=True)
class Words:
    """The summary at the top of the page."""

    headline: list[tuple[str, str]]
    """Pieces of text, each with the verdict it refers to, or ""."""
    lead: str
    steps: list[Step]


def describe_things(kind: str, count: int) -> str:
    """What samples are called, by kind of source."""
    name = {"photos": "photo", "images": "image"}.get(kind, "sample")
    return name if count == 1 else f"{name}s"


def describe_run(
    run: Path, config: ConfigFile, summary: SummaryFile, samples: Samples, *, reviewing: bool = False
) -> Words:
    """The summary of a run; on a review page, the review step refers to the page itself."""
    kind = str(config.get("source", {}).get("kind", "features"))
    counts = {name: int(samples.where(name).sum()) for name in Verdict}
    named = int((samples.where(Verdict.UNLABELED) & samples.selected).sum())
    steps = _steps(run, config, counts, kind, named, reviewing=reviewing)
    return Words(_headline(counts, kind, len(samples)), _lead(summary, kind), steps)


def _headline(counts: dict[Verdict, int], kind: str, total: int) -> list[tuple[str, str]]:
    wrong, ood = counts[Verdict.RELABEL], counts[Verdict.OOD]
    judged = total - counts[Verdict.UNLABELED] - counts[Verdict.UNREADABLE]
    if judged and counts[Verdict.UNCERTAIN] == judged:
        return [("These features can’t separate right labels from wrong ones.", "")]
    if wrong == 0 and ood == 0:
        return [(f"None of {judged:,} labels looks wrong.", "")]
    look = "looks" if wrong == 1 else "look"
    first = [(f"{wrong:,}", Verdict.RELABEL), (f" of {judged:,} labels {look} wrong. ", "")]
    if ood == 0:
        return [*first, (f"All {describe_things(kind, 2)} seem to fit a class.", "")]
    seem = "seems" if ood == 1 else "seem"
    return [
        *first,
        (f"{ood:,}", Verdict.OOD),
        (f" {describe_things(kind, ood)} {seem} to fit no class.", ""),
    ]


def _lead(summary: SummaryFile, kind: str) -> str:
    things = describe_things(kind, 2)
    text = f"Every label was weighed against what the nearest {things} say."
    rates = describe_rates(
        summary.get("noise_rate"), summary.get("ood_rate"), summary.get("possible_ood_rate"), things
    )
    if rates is None:
        return f"{text} These labels agree no better than at random, so there are no verdicts."
    return f"{text} By the method’s own estimate {rates}."


def _steps(
    run: Path, config: ConfigFile, counts: dict[Verdict, int], kind: str, named: int, *, reviewing: bool
) -> list[Step]:
    """The next steps; `named` is the number of unlabeled samples that get a label when the verdicts are
    applied.
    """
    place = shlex.quote(str(run))
    check = Step(
        "Check the most confident cases below, then review them one by one: accept, reject, or choose "
        "another label.",
        f"graphclean review {place}",
    )
    flagged = counts[Verdict.RELABEL] + counts[Verdict.OOD]
    judged = sum(counts.values()) - counts[Verdict.UNREADABLE] - counts[Verdict.UNLABELED]
    if judged and counts[Verdict.UNCERTAIN] == judged:
        return [
            Step(
                "Use features that show the subject: another embedder, or a network trained on similar data."
            ),
            Step("If there are none, check the samples by hand."),
        ]
    predict, train = f"graphclean predict {place} NEW", f"graphclean train {_arguments(run, config)}"
    if "probe" in config.get("source", {}):  # a command can't pass a function
        data = recorded_data(run, config["source"])
        predict = f'graphclean.Run.load({str(run)!r}).predict("NEW", embedder=FUNCTION)'
        train = f"graphclean.train({str(data)!r}, embedder=FUNCTION)"
    steps = []
    if flagged:
        steps.append(REVIEWING if reviewing else check)
        relabeled = counts[Verdict.RELABEL] + named
        removed = counts[Verdict.OOD] + counts[Verdict.UNREADABLE] + counts[Verdict.UNLABELED] - named
        steps.append(
            Step(
                f"Apply the verdicts: {relabeled:,} relabeled, {removed:,} removed, the rest kept, unless a "
                "review decides otherwise. Your own files are never touched.",
                f"graphclean apply {place}",
            )
        )
    if counts[Verdict.UNCERTAIN]:
        unsure = counts[Verdict.UNCERTAIN]
        many = f"{unsure:,} {describe_things(kind, unsure)}"
        steps.append(Step(f"Look at the {many} that can’t be decided; until you do, they keep their labels."))
    if config.get("kind") == "train":
        steps.append(Step("Use the classifier; it rejects inputs of unknown classes.", predict))
    else:
        steps.append(
            Step(
                "Classify new data with these verdicts, or train a classifier on this data.",
                f"{predict}\n{train}",
            )
        )
    return steps


def run_again(run: Path, config: ConfigFile) -> str | None:
    """The command to which a setting can be added: it resumes a run of `train`, or repeats one of `clean`.
    None for runs made in Python.
    """
    source = config.get("source", {})
    if source.get("data") == IN_PYTHON or "probe" in source:
        return None
    if config.get("kind") != "train":
        return f"graphclean clean {shlex.quote(str(run))}"
    return f"graphclean train {_arguments(run, config)} --out {shlex.quote(str(run))} --resume"


def _arguments(run: Path, config: ConfigFile) -> str:
    """The data of a run and the options it was read with, as typed in a shell."""
    source = config.get("source", {})
    asked = recorded_options(source)
    if asked.get("embedder") == DEFAULT_EMBEDDER:
        del asked["embedder"]  # `train` chooses what to train by whether it is given
    options = [word for name, value in asked.items() for word in (f"--{name.replace('_', '-')}", value)]
    return shlex.join([str(recorded_data(run, source)), *options])
