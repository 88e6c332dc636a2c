"""The time that compilation costs a run, without and with the cached code of an earlier run.

Each run is a separate process on random images, with a cache folder that starts empty and is removed
afterwards.

    python benchmarks/compile.py                                             on a GPU
    python benchmarks/compile.py --device cpu --samples 512 --set training.network=small-conv
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from torch._dynamo.utils import counters

from common import RESULTS, save
from graphclean.config import apply_settings, load_preset
from graphclean.methods import build_method
from graphclean.runs.device import choose_device
from graphclean.training import EpochReport, Trainer
from graphclean.training.batches import place_inputs
from graphclean.training.code_cache import list_code

EPOCHS = 4
"""The first epoch is not compiled, the second compiles, and the others show the time per compiled epoch."""


def train(options: argparse.Namespace) -> dict[str, Any]:
    """Train a few epochs of a compiled run in this process."""
    started = time.perf_counter()
    changes = [f"training.epochs={EPOCHS}", "training.compile=on", "method.warmup_epochs=1"]
    config = apply_settings(load_preset(options.preset), [*changes, *options.settings])
    device, generator = choose_device(options.device), torch.Generator().manual_seed(0)
    shape = (options.samples, 3, options.side, options.side)
    images = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
    labels = torch.randint(0, 10, (options.samples,), generator=generator)
    trainer = Trainer(place_inputs(images, device), labels, 10, config.training, build_method(config))
    plain, first = trainer._step, [0.0]

    def step(*args: Any) -> torch.Tensor:
        terms = plain(*args)
        if trainer.epoch == 1 and not first[0]:
            terms.sum().item()
            first[0] = time.perf_counter() - began[-1]
        return terms

    reports: list[EpochReport] = []
    began = [started]

    def watch(report: EpochReport, _: object) -> None:
        reports.append(report)
        began.append(time.perf_counter())

    trainer._step = step  # type: ignore[method-assign]
    trainer.train(on_epoch=watch)
    seconds = [report.seconds for report in reports]
    return {
        "network": config.training.network,
        "first_compiled_step": first[0],
        "epochs": seconds,
        "lost": seconds[1] - seconds[-1],
        "total": time.perf_counter() - started,
        "graphs": counters["stats"]["unique_graphs"],
        "found": counters["aot_autograd"]["autograd_cache_hit"] + counters["inductor"]["fxgraph_cache_hit"],
        "kept_bytes": sum(entry.size for entry in list_code()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", default="cifar10-lond-fast")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--samples", type=int, default=20_480)
    parser.add_argument("--side", type=int, default=32, help="pixels")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(train(options)))
        return
    found: dict[str, Any] = {"preset": options.preset, "settings": options.settings}
    found |= {"samples": options.samples, "side": options.side}
    with tempfile.TemporaryDirectory() as cache:
        for name in ("cold", "warm"):
            command = [sys.executable, *sys.argv, "--child"]
            environment = {**os.environ, "GRAPHCLEAN_CACHE": cache}
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
            found[name] = json.loads(done.stdout.splitlines()[-1])
            print(name, found[name], flush=True)
    device = choose_device(options.device)
    print(save(f"compile-{device.type}", found, options.out))


if __name__ == "__main__":
    main()
