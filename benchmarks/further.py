"""Compare `clean` with other cleaners on further sets."""

from typing import Any

import numpy as np

from audit_sets import further_draws
from common import cpu_timed
from graphclean.cleaning import infer_verdicts
from peers import FURTHER_COLUMNS, Found, ask_peers, score

Array = np.ndarray
PEERS = ("cleanlab", "cleanlab_best", "datalab", "dataeval", "selfclean")
LEVEL = 0.005
"""Largest difference of means that counts as level."""


def score_further(cifar: dict[str, Array], pairs: dict[str, Array] | None) -> dict[str, Any]:
    """Score `clean` and its peers on every further set, averaged over the draws."""
    draws = list(further_draws(cifar, pairs))
    infer_verdicts(draws[0].features, draws[0].labels)  # warm-up
    results = []
    for draw in draws:
        cleaning, seconds = cpu_timed(lambda: infer_verdicts(draw.features, draw.labels))  # noqa: B023
        table = cleaning.verdicts
        verdict, proposed = table.verdict.to_numpy(), table.proposed_label.to_numpy()
        found = Found(
            proposed != draw.labels,
            proposed,
            verdict == "ood",
            1 - table.label_quality.to_numpy(),
            table.ood_score.to_numpy(),
        )
        results.append(
            {
                "group": draw.group,
                "draw": draw.name,
                "samples": len(draw.labels),
                "ours": {**score(draw, found), "seconds": seconds},
                "class_means": cleaning.class_means is not None,
                **ask_peers(draw),
            }
        )
        print(draw.group, draw.name, results[-1]["ours"], flush=True)
    summary = summarize_further(results)
    for group, places in wins_and_losses(summary).items():
        print(group, places)
    return {"summary": summary, "draws": results}


def summarize_further(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Means by set and cleaner."""
    summary: dict[str, Any] = {}
    for group in dict.fromkeys(result["group"] for result in results):
        members = [result for result in results if result["group"] == group]
        entry: dict[str, Any] = {"draws": len(members), "samples": members[0]["samples"]}
        for who in ("ours", *PEERS):
            rows = [member[who] for member in members if member.get(who)]
            columns = [c for c in (*FURTHER_COLUMNS, "seconds") if rows and all(c in row for row in rows)]
            entry[who] = {c: float(np.mean([row[c] for row in rows])) for c in columns}
        summary[group] = entry
    return summary


def wins_and_losses(summary: dict[str, Any]) -> dict[str, dict[str, list[tuple[str, float, str]]]]:
    """By set: the columns in which `clean` is ahead of all peers, level with the best, or behind.

    Each with the gain over the best peer, and that peer.
    """
    found = {}
    for group, entry in summary.items():
        places: dict[str, list[tuple[str, float, str]]] = {"ahead": [], "level": [], "behind": []}
        for c in FURTHER_COLUMNS:
            sign = -1 if c == "false_flags" else 1
            peers = {who: sign * entry[who][c] for who in PEERS if c in entry[who]}
            if c not in entry["ours"] or not peers:
                continue
            who = max(peers, key=lambda name: peers[name])
            gain = sign * entry["ours"][c] - peers[who]
            place = "ahead" if gain > LEVEL else "behind" if gain < -LEVEL else "level"
            places[place].append((c, gain, who))
        found[group] = places
    return found
