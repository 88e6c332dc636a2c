"""The result of the last recorded attack."""

from typing import Any

from common import describe, seconds
from graphclean.bench.markdown import markdown_table

ABOUT = {
    "kills at changes to the file system": "SIGKILL before the n-th file or folder that a command makes, renames or removes",
    "kills at random times": "SIGKILL at any time",
    "a full disk at a change": "`No space left on device` at the n-th change",
    "a full disk, mounted for it": "a file system in memory with room for a few pages of content, or for a few files",
    "files that can't grow": "a limit on the size of files (`RLIMIT_FSIZE`), which code outside of Python meets too",
    "two to five processes in one folder": "the same command at once, several times",
    "broken inputs": "data, run folders, checkpoints, models and settings with bits, words, values or shapes changed",
    "raw requests to the review server": "requests with wrong hosts, tokens, lengths, bodies and bytes",
    "reviews that are killed": "SIGKILL while decisions are sent",
    "inputs of an exported model": "batches of any size, with huge values, infinities and NaN, in onnxruntime",
}


def reliability_page(result: dict[str, Any] | None) -> str:
    """The whole page."""
    head = """# Reliability

Made by `benchmarks/tables.py` from `benchmarks/results/chaos.json`. `make chaos` attacks every command for 20 minutes, in two
processes, and counts what breaks; a short form of it is one of the tests.

"""
    if result is None:
        return f"{head}Not run.\n"
    attacks = result["attacks"]
    cases, failed = (sum(attack[name] for attack in attacks) for name in ("cases", "failed"))
    rows = [
        [
            attack["name"],
            ABOUT[attack["name"]],
            f"{attack['cases']:,}",
            f"{attack['failed']:,}",
            _per_second(attack),
        ]
        for attack in attacks
    ]
    table = markdown_table(
        ["attack", "what is done", "cases", "failures", "cases per second of processor time"], rows
    )
    return f"""{head}The last recorded run: seed {result["seed"]}, {result["seconds"]:,.0f} seconds, **{cases:,} cases, {failed:,} failures**.
{describe(result)}{_load(result)}

{table}

## What counts as a failure

- After a kill, a full disk or a crowd: the same command (`train` with `--resume`) does not end well, its results differ from
  those of an undisturbed run by a single bit, a run that was to be replaced is lost, an original has changed, or a lock or a draft is
  left behind.
- A broken input: anything but success or exit code 2 with one line on standard error; an exception from a function that may raise
  only `InputError`; more than a minute.
- A request: a status that means a bug, no answer in ten seconds, or a decision or a page without the token.
- A killed review: a decision that was answered as saved and is not on the disk.
- An exported model: an answer that differs from PyTorch's by more than 1e-4, or a crash.

{_details(attacks, _since(result))}"""


def _per_second(attack: dict[str, Any]) -> str:
    used = attack.get("cpu_seconds")  # unknown of records from before it was measured
    return f"{attack['cases'] / used:.3g}" if used else "–"


def _load(result: dict[str, Any]) -> str:
    if "load" not in result:
        return ""
    before, during = result["load"].values()
    return (
        f" {result['processes']} processes on {result['machine']['cores']} cores; load average "
        f"{before:.1f} in the five minutes before and {during:.1f} in the last fifteen of the run."
    )


def _places(attacks: list[dict[str, Any]]) -> str:
    """How many of the places of each command were tried."""
    tried = {attack["name"]: attack["facts"]["places"] for attack in attacks if "places" in attack["facts"]}
    if not tried:
        return ""
    jobs = sorted({job for places in tried.values() for job in places})
    sums = {
        name: {key: sum(place[key] for place in places.values()) for key in ("tried", "of")}
        for name, places in tried.items()
    }

    def cell(place: dict[str, int] | None) -> str:
        return f"{place['tried']:,} of {place['of']:,}" if place else "–"

    rows = [[job, *(cell(places.get(job)) for places in tried.values())] for job in jobs]
    rows.append(["all", *(cell(place) for place in sums.values())])
    return f"\n## Places tried, by command\n\n{markdown_table(['command', *tried], rows)}"


def _since(result: dict[str, Any]) -> str:
    """What became of the failures, if the record was given a note on that."""
    return f"{result['since']}\n\n" if "since" in result else ""


def _details(attacks: list[dict[str, Any]], since: str) -> str:
    facts = {attack["name"]: attack["facts"] for attack in attacks}
    parts = ["## Growth and coverage\n"]
    refused = facts.get("a full disk, mounted for it", {}).get("refused for lack of room")
    if refused:
        parts.append(
            f"- Of the cases on a disk mounted for them, {sum(refused.values()):,} ended for lack of room; the others had enough."
        )
    for name, found in facts.items():
        if "of" in found:  # of records from before places were counted by command
            done = next(attack["cases"] for attack in attacks if attack["name"] == name)
            parts.append(f"- {name}: {done:,} of {found['of']:,} places were tried.")
        if "not run" in found:
            parts.append(f"- {name}: not run: {found['not run']}")
    fuzzed = facts.get("broken inputs", {})
    if "median seconds, first quarter" in fuzzed:
        first, last = (fuzzed[f"median seconds, {which} quarter"] for which in ("first", "last"))
        early, late = fuzzed["memory in MiB after the first quarter"], fuzzed["memory in MiB at the end"]
        parts.append(
            f"- One process that reads broken inputs, one after the other: the median input takes {seconds(first)} in the first "
            f"quarter and {seconds(last)} in the last; memory goes from {early:,.0f} MiB after the first quarter to {late:,.0f} MiB."
        )
    served = facts.get("raw requests to the review server", {})
    if served:
        parts.append(
            f"- The review server took at most {seconds(served['longest answer in seconds'])} for an answer, and "
            f"{served['memory in MiB at most']:,.0f} MiB."
        )
    kept = facts.get("reviews that are killed", {}).get("decisions that were said to be kept")
    if kept is not None:
        parts.append(f"- Before reviews were killed, {kept:,} decisions had been answered as saved.")
    parts.append(_places(attacks))
    if "by reader" in fuzzed:
        rows = [[kind, f"{count:,}"] for kind, count in fuzzed["by reader"].items()]
        parts.append(f"\n## Broken inputs by reader\n\n{markdown_table(['file, reader', 'inputs'], rows)}")
    failures = [(attack["name"], failure) for attack in attacks for failure in attack["failures"]]
    if failures:
        listed = "\n".join(f"- {name}: {one['case']}: {one['why']}" for name, one in failures)
        parts.append(f"\n## Failures\n\n{since}{listed}")
    return "\n".join(parts) + "\n"
