"""Every method on the digits, next to cross-entropy."""

from statistics import fmean, stdev
from typing import Any

from common import describe, shown
from graphclean.bench.markdown import markdown_table
from methods import BASELINE, NOISES, ONE_VIEW
from paper_runs import mean_over_seeds, over_seeds

UNCLAIMED = {
    ("mixup", "asym40"), ("d2l", "asym40"), ("mentornet-pd", "asym40"), ("decoupling", "asym40"),
}  # fmt: skip
"""Kinds of noise that a method's paper does not address."""


def methods_section(result: dict[str, Any]) -> str:
    runs: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
    for run in result["runs"]:
        runs.setdefault((run["method"], run["noise"]), {})[run["seed"]] = run
    names = list(dict.fromkeys(run["method"] for run in result["runs"]))
    rows, behind = [], []
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
                behind.append(f"`{name}` ({noise}{'' if claimed else ', not claimed by its paper'})")
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
    return f"""## Every method on the digits

{shown("bench-methods", "Mean accuracy of each method on the digits, under symmetric and asymmetric noise")}
Ten digits, 1,200 to train on and 597 to score, with the network, epochs and learning rate of the preset `demo`. Fraction of
given labels that are right: {right}.
`{BASELINE}` is plain cross-entropy on two views of each sample. Gain: points over its variant with one view, which memorizes
less, on the same seed; mean ± standard deviation, bold above two standard errors. A method's settings are its defaults, or
its paper's for the kind of noise, and were not chosen here (those of `ngc` are the preset's, from other seeds of these
digits). Cost: training passes per sample and epoch. Final label accuracy: of the labels that a method ends with for all
samples, over both kinds of noise.

{markdown_table(header, rows)}

No gain beyond chance, or a loss: {", ".join(behind) if behind else "none"}.{f" Not run: {not_run}." if not_run else ""}

{describe(result)}
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
