"""Every method on the digits, next to cross-entropy."""

from statistics import fmean, stdev
from typing import Any

from common import Section, describe, shown
from graphclean.bench.markdown import markdown_table
from methods import BASELINE, NOISES, ONE_VIEW
from paper_runs import mean_over_seeds, over_seeds

UNCLAIMED = {
    ("mixup", "asym40"), ("d2l", "asym40"), ("mentornet-pd", "asym40"), ("decoupling", "asym40"),
}  # fmt: skip
"""Kinds of noise that a method's paper does not address."""


def methods_section(result: dict[str, Any]) -> Section:
    runs: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    for run in result["runs"]:
        runs.setdefault((run["method"], run["noise"]), {})[run["seed"]] = run
    names = list(dict.fromkeys(run["method"] for run in result["runs"]))
    rows = []
    behind: dict[str, list[str]] = {noise: [] for noise in NOISES}
    for name in names:
        cells, found = [], []
        for noise in NOISES:
            own, plain = runs.get((name, noise), {}), runs.get((ONE_VIEW, noise), {})
            cells.append(over_seeds([run["accuracy"] for run in own.values()], 1, 100))
            shared = sorted(own.keys() & plain.keys())
            gain = gain_over([(own[seed]["accuracy"], plain[seed]["accuracy"]) for seed in shared])
            cells.append(gain if name not in (BASELINE, ONE_VIEW) else "")
            if name not in (BASELINE, ONE_VIEW) and shared and not gain.startswith("**"):
                claimed = (name, noise) not in UNCLAIMED
                behind[noise].append(f"`{name}`{'' if claimed else ' (not claimed by its paper)'}")
            found += own.values()
        labels = [run["label_accuracy"] for run in found]
        seconds = mean_over_seeds([run["cpu_seconds"] for run in found], 1)
        title = f"`{name}`" if name != ONE_VIEW else name
        rows.append([title, f"{found[0]['cost']:g}", *cells, mean_over_seeds(labels, 1, 100), seconds])
    header = ["method", "cost", "sym: accuracy, %", "gain", "asym: accuracy, %", "gain"]
    header += ["final label accuracy, %", "CPU seconds"]
    given = {
        noise: [run["given_right"] for run in result["runs"] if run["noise"] == noise] for noise in NOISES
    }
    right = " and ".join(
        f"{mean_over_seeds(given[noise], 0, 100)} % ({what})"
        for noise, what in NOISES.items()
        if given[noise]
    )
    not_run = "; ".join(f"`{name}` {why}" for name, why in result["not_run"].items())
    lost = "\n".join(f"- {what}: {', '.join(behind[noise]) or 'none'}" for noise, what in NOISES.items())
    seeds = len({run["seed"] for run in result["runs"]})
    chart = f"""{shown("accuracy-cost", "Mean accuracy of each method on the digits against CPU seconds of training, under symmetric and under asymmetric noise")}
All methods on 1,200 noisy digits, on one CPU core: means over {seeds} seeds. Named are the methods that no cheaper one beats
under that noise, and the two kinds of cross-entropy. The digits are small and easy: take the order of costs from this plot, and measure accuracy on
your own data.

On CIFAR-10 and a GPU only NGC has been run so far. The gray points are variants of its presets:

{shown("accuracy-minutes", "Accuracy on CIFAR-10 against minutes of training on a GPU, for the recorded runs of NGC; the paper's accuracy as a line")}"""
    numbers = f"""{shown("bench-methods", "Mean accuracy of each method on the digits, under symmetric and asymmetric noise")}
Ten digits, 1,200 to train on and 597 to score, with the network, epochs and learning rate of the preset `demo`. Fraction of
given labels that are right: {right}.

- `{BASELINE}` is plain cross-entropy on two views of each sample. Its variant with one view memorizes less.
- Gain: points over cross-entropy with one view, on the same seed; mean ± standard deviation, bold above two standard errors.
- Settings are a method's defaults, or its paper's for the kind of noise. They were not chosen here; those of `ngc` are the
  preset's, from other seeds of these digits.
- Cost: training passes per sample and epoch. CPU seconds: of training, on one core.
- Final label accuracy: of the labels that a method ends with for all samples, over both kinds of noise.

{markdown_table(header, rows)}

No gain beyond chance, or a loss:

{lost}
{f"{chr(10)}Not run: {not_run}.{chr(10)}" if not_run else ""}
{describe(result)}
"""
    return Section("Every method on the digits", chart, numbers)


BUDGETS = {"up to 1.5 passes": 1.5, "up to 2 passes": 2.0, "any number": float("inf")}
KINDS_OF_NOISE = {"sym40": "symmetric noise (40 %)", "asym40": "asymmetric noise (40 % of five digits)"}


def choice_tables(result: dict[str, Any] | None, mistakes: dict[str, Any] | None) -> str:
    """The most accurate method for each kind of noise and cost, and then all of them, for the page of methods."""
    if result is None:
        return "Not recorded yet."
    found: dict[str, dict[str, list[float]]] = {}
    for run in result["runs"]:
        found.setdefault(run["method"], {}).setdefault(run["noise"], []).append(run["accuracy"])
    costs = {run["method"]: run["cost"] for run in result["runs"]}
    means = {name: {noise: fmean(values) for noise, values in row.items()} for name, row in found.items()}
    wholes = {name: row for name, row in means.items() if len(row) == len(NOISES)}
    asked = [
        *(
            (text, noise, {name: row[noise] for name, row in wholes.items()})
            for noise, text in KINDS_OF_NOISE.items()
        ),
        (
            "either; the worse of the two counts",
            None,
            {name: min(row.values()) for name, row in wholes.items()},
        ),
    ]
    choice = []
    for text, _, scores in asked:
        cells = []
        for limit in BUDGETS.values():
            shown_scores = {n: f"{100 * scores[n]:.1f}" for n in scores if costs[n] <= limit}
            best = shown_scores[max(shown_scores, key=lambda name: scores[name])]
            tied = sorted((n for n in shown_scores if shown_scores[n] == best), key=lambda name: costs[name])
            cells.append(f"{', '.join(f'`{name}`' for name in tied)}: {best}")
        choice.append([text, *cells])
    rows = [
        [
            f"`{name}`" if name != ONE_VIEW else name,
            f"{costs[name]:g}",
            *(over_seeds(row[noise], 1, 100) if noise in row else "–" for noise in NOISES),
        ]
        for name, row in sorted(found.items(), key=lambda item: -min(means[item[0]].values()))
    ]
    return f"""Test accuracy in % on handwritten digits without OOD samples, the best method by noise and cost, and those level with it (the
cheapest first). Cost is training passes per sample and epoch. Gaps smaller than the deviations in the second table may be
chance.

{markdown_table(["noise", *BUDGETS], choice)}
{_with_correction(mistakes)}

{shown("accuracy-cost", "Mean accuracy of each method on the digits against CPU seconds of training, under symmetric and under asymmetric noise")}
All methods, those first whose worse result is best; mean ± standard deviation over seeds, their number in brackets
([how measured](benchmark-tables.md#every-method-on-the-digits)):

{markdown_table(["method", "cost", *KINDS_OF_NOISE.values()], rows)}"""


def _with_correction(mistakes: dict[str, Any] | None) -> str:
    """NGC's accuracy with its correction of class-dependent noise, recorded elsewhere on the same digits."""
    if mistakes is None:
        return ""
    own = {
        on: [
            run["accuracy"]
            for run in mistakes["runs"]
            if run["case"] == "asym" and run["class_dependent_noise"] == on
        ]
        for on in (False, True)
    }
    off, on = (over_seeds(own[key], 1, 100) for key in (False, True))
    return f"""
`ngc` is shown with its defaults. With `graph.class_dependent_noise=true` it reaches {on} under the asymmetric
noise, with other random wrong labels on the same digits, network and epochs; without it, {off} on these labels
([measured](benchmark-tables.md#class-dependent-noise)). That is level with the best.
"""


def gain_over(pairs: list[tuple[float, float]]) -> str:
    """The gain of a method over another on the same seeds, in points; bold if beyond chance."""
    gains = [100 * (own - plain) for own, plain in pairs]
    if not gains:
        return "–"
    if len(gains) == 1:
        return f"{gains[0]:+.1f}"
    mean, deviation = fmean(gains), stdev(gains)
    text = f"{mean:+.1f} ± {deviation:.1f}"
    return f"**{text}**" if mean > 2 * deviation / len(gains) ** 0.5 else text
