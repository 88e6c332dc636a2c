"""Attack graphclean for a given time and count failures: kills, full disks, broken inputs, requests.

python benchmarks/chaos.py     20 minutes on two cores, recorded in benchmarks/results/chaos.json
python benchmarks/chaos.py --seconds 60 --only kill_at_times --seed 7 --no-record

The sources must not change meanwhile: children import what they need when they need it.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch

from attacks import disks, failures, fuzzing, serving
from attacks.children import fork, join
from attacks.failures import Bench
from attacks.jobs import JOBS, lay_out
from attacks.tally import Clock, Tally, merge
from common import RESULTS, save
from graphclean.report import map
from graphclean.runs.folder import find_commit

Attack = Callable[[Bench, int, Clock], Tally]
ATTACKS: dict[str, tuple[Attack, float]] = {
    "kill_at_changes": (failures.kill_at_changes, 0.36),
    "fill_disk_at_changes": (failures.fill_disk_at_changes, 0.36),
    "fill_disks": (disks.fill_disks, 0.08),
    "limit_files": (failures.limit_files, 0.04),
    "kill_at_times": (failures.kill_at_times, 0.02),
    "crowd": (failures.crowd, 0.02),
    "ask_anything": (serving.ask_anything, 0.01),
    "kill_reviews": (serving.kill_reviews, 0.01),
    "ask_exported": (serving.ask_exported, 0.01),
    "fuzz": (fuzzing.fuzz, 0.09),
}
"""Attack -> function, fraction of the time. What the first ones leave of theirs goes to the others."""


def attack(asked: argparse.Namespace, say: Callable[[str], None]) -> list[Tally]:
    """Run all attacks, or the selected ones, in a temporary folder."""
    chosen = {name: ATTACKS[name] for name in (asked.only or ATTACKS)}
    whole = Clock(asked.seconds)
    left = sum(share for _, share in chosen.values())
    found = []
    with tempfile.TemporaryDirectory(prefix="graphclean-chaos-") as folder:
        root = Path(folder)
        os.environ |= {"GRAPHCLEAN_CACHE": str(root / "cache"), "XDG_CONFIG_HOME": str(root / "config")}
        os.environ["GRAPHCLEAN_COMMIT"] = find_commit() or ""  # otherwise each child would run git
        map.ITERATIONS = 250  # the fewest of t-SNE: most of the time of `report` and `demo`
        join([fork(lambda: lay_out(root / "base"))])
        bench = Bench(root / "base", root, [job for job in JOBS if not asked.jobs or job.name in asked.jobs])
        for job in bench.jobs:
            bench.measure(job)
        for work, share in chosen.values():
            tally = _in_parts(work, bench, asked.seed, Clock(whole.left * share / left), asked.processes)
            left -= share
            found.append(tally)
            say(
                f"{tally.name}: {tally.cases} cases in {tally.seconds:.0f} s, "
                f"{tally.cpu_seconds:.0f} s of CPU, {tally.failed} failed"
            )
            for failure in tally.failures[:5]:
                say(f"    {failure['case']}: {failure['why']}")
    return found


def _in_parts(work: Attack, bench: Bench, seed: int, clock: Clock, parts: int) -> Tally:
    """Share the cases of an attack between processes."""

    def one(part: int) -> None:
        bench.part, bench.parts = part, parts
        tally = work(bench, seed, clock)
        (bench.work / f"part-{part}.json").write_text(json.dumps(asdict(tally)))

    join([fork(lambda part=part: one(part)) for part in range(parts)])
    return merge(
        [Tally(**json.loads((bench.work / f"part-{part}.json").read_text())) for part in range(parts)]
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1200, help="for all attacks together")
    parser.add_argument("--processes", type=int, default=2, help="that share the cases of each attack")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=ATTACKS, default=[])
    parser.add_argument(
        "--jobs", nargs="+", choices=[job.name for job in JOBS], default=[], help="attack these alone"
    )
    parser.add_argument("--no-record", action="store_true", help="write no result")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the result")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    before = os.getloadavg()[1]
    found = attack(asked, lambda text: print(text, flush=True))
    if not asked.no_record:
        record = {
            "seconds": asked.seconds,
            "processes": asked.processes,
            "load": {"five minutes before": before, "last fifteen minutes": os.getloadavg()[2]},
            "seed": asked.seed,
            "attacks": [asdict(one) for one in found],
        }
        save("chaos", record, asked.out)
    return 1 if any(tally.failed for tally in found) else 0


if __name__ == "__main__":
    sys.exit(main())
