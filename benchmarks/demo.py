"""Run `graphclean demo` for seeds 0 to 4, which were not used to choose any setting, and record its scores.

python benchmarks/demo.py
"""

import tempfile
import time
from pathlib import Path

from common import save
from graphclean.runs.demo import demo

SEEDS = range(5)


def main() -> None:
    runs = []
    for seed in SEEDS:
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            done = demo(Path(folder) / "run", seed=seed)
            seconds = time.perf_counter() - started
        runs.append({"seed": seed, "facts": done.facts, **done.scores, "seconds": seconds})
        print(seed, done.scores, f"{seconds:.1f} s", flush=True)
    print(save("demo", {"runs": runs}))


if __name__ == "__main__":
    main()
