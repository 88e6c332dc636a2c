"""Attack graphclean for a given time and count failures: kills, full disks, broken inputs, requests.

python benchmarks/chaos.py                     20 minutes, recorded in benchmarks/results/chaos.json
python benchmarks/chaos.py --seconds 60 --only kill_at_times --seed 7 --no-record
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch

from attacks import failures, fuzzing, serving
from attacks.failures import Bench
from attacks.jobs import JOBS, lay_out
from attacks.tally import Clock, Tally
from common import RESULTS, save
from graphclean.runs.folder import find_commit

Attack = Callable[[Bench, int, Clock], Tally]
ATTACKS: dict[str, tuple[Attack, float]] = {
    "kill_at_changes": (failures.kill_at_changes, 0.25),
    "kill_at_times": (failures.kill_at_times, 0.15),
    "fill_disk_at_changes": (failures.fill_disk_at_changes, 0.15),
    "limit_files": (failures.limit_files, 0.1),
    "crowd": (failures.crowd, 0.1),
    "fuzz": (fuzzing.fuzz, 0.2),
    "ask_anything": (serving.ask_anything, 0.05),
    "kill_reviews": (serving.kill_reviews, 0.05),
    "ask_exported": (serving.ask_exported, 0.05),
}
"""Attack -> function, fraction of the time."""


def attack(asked: argparse.Namespace, say: Callable[[str], None]) -> list[Tally]:
    """Run all attacks, or the selected ones, in a temporary folder."""
    chosen = {name: ATTACKS[name] for name in (asked.only or ATTACKS)}
    whole = sum(share for _, share in chosen.values())
    found = []
    with tempfile.TemporaryDirectory(prefix="graphclean-chaos-") as folder:
        root = Path(folder)
        os.environ |= {"GRAPHCLEAN_CACHE": str(root / "cache"), "XDG_CONFIG_HOME": str(root / "config")}
        os.environ["GRAPHCLEAN_COMMIT"] = find_commit() or ""  # otherwise each child would run git
        _in_child(lambda: lay_out(root / "base"))
        bench = Bench(root / "base", root, [job for job in JOBS if not asked.jobs or job.name in asked.jobs])
        for work, share in chosen.values():
            tally = work(bench, asked.seed, Clock(asked.seconds * share / whole))
            found.append(tally)
            say(f"{tally.name}: {tally.cases} cases in {tally.seconds:.0f} s, {tally.failed} failed")
            for failure in tally.failures[:5]:
                say(f"    {failure['case']}: {failure['why']}")
    return found


def _in_child(work: Callable[[], None]) -> None:
    """Work in a child process, so that no library threads run where children are forked."""
    process = os.fork()
    if process == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        finally:
            os._exit(code)
    if os.waitpid(process, 0)[1]:
        raise RuntimeError("the material can't be made")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=1200, help="for all attacks together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=ATTACKS, default=[])
    parser.add_argument(
        "--jobs", nargs="+", choices=[job.name for job in JOBS], default=[], help="attack these alone"
    )
    parser.add_argument("--no-record", action="store_true", help="write no result")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the result")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    found = attack(asked, lambda text: print(text, flush=True))
    if not asked.no_record:
        save(
            "chaos",
            {"seconds": asked.seconds, "seed": asked.seed, "attacks": [asdict(one) for one in found]},
            asked.out,
        )
    return 1 if any(tally.failed for tally in found) else 0


if __name__ == "__main__":
    sys.exit(main())
