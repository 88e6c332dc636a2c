"""What several processes cost and gain: an epoch alone, in a group of one, and in a group of several.

The three kinds alternate on one machine, several times, on images of random pixels. From the recorded times,
and the bytes that a step exchanges, the page also computes the growth to more GPUs.

    python benchmarks/processes.py --size 2
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from typing import Any

import torch

from common import load, save
from graphclean.config import GraphSettings, TrainingSettings
from graphclean.distributed.group import Group, use
from graphclean.distributed.launch import joined
from graphclean.graph import knn, propagation
from graphclean.methods.ngc import NGC, NgcSettings
from graphclean.runs.device import choose_device
from graphclean.training import Trainer
from graphclean.training.batches import ResidentInputs

KINDS = ("alone", "group of one", "group")
GRAPH_SIZES = (2_000, 10_000, 40_000)
CLASSES = 10


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=2, help="processes of the group")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--samples", type=int, default=4_000)
    parser.add_argument("--network", default="small-conv")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--worker", choices=(*KINDS, "graph"))
    return parser.parse_args()


def epoch_seconds(args: argparse.Namespace, group: Group) -> dict[str, Any]:
    """Seconds of the third epoch, the first after warm-up of everything that is warmed up once."""
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (args.samples, 3, 32, 32), dtype=torch.uint8, generator=generator)
    labels = torch.randint(0, CLASSES, (args.samples,), generator=generator)
    settings = TrainingSettings(network=args.network, epochs=4, batch_size=args.batch, compile="off")
    device = choose_device(args.device)
    with use(group):
        made = Trainer(
            ResidentInputs(images.to(device)),
            labels,
            CLASSES,
            settings,
            NGC(NgcSettings(warmup_epochs=1), GraphSettings(k=30)),
        )
    seconds: list[float] = []
    made.train(on_epoch=lambda report, _: seconds.append(report.seconds))
    weights = sum(each.numel() for each in made.method.networks.parameters())
    return {"seconds": seconds[2], "weights": weights, "device": device.type}


def graph_seconds(group: Group, device: torch.device) -> list[dict[str, Any]]:
    """Search and propagation, by one process or divided, for several numbers of samples."""
    found = []
    for n in GRAPH_SIZES:
        z = torch.randn(n, 64, generator=torch.Generator().manual_seed(0)).to(device)
        Y = torch.nn.functional.one_hot(torch.arange(n, device=device) % CLASSES, CLASSES).float()
        for divided in (False, True):
            knn.LEAST_DIVIDED_ROWS = 0 if divided else n + 1
            propagation.LEAST_DIVIDED = 0 if divided else sys.maxsize
            entry: dict[str, Any] = {"samples": n, "divided": divided}
            for name in ("search", "propagation"):
                times = []
                for _ in range(2):
                    group.all_say(None)
                    start = time.perf_counter()
                    if name == "search":
                        near = knn.divide_neighbors(z, 30, group)
                    else:
                        S = propagation.normalize_graph(propagation.weight_graph(knn.knn_graph(near)))
                        start = time.perf_counter()
                        propagation.gather_evidence(S, Y, group=group)
                    if device.type == "cuda":
                        torch.cuda.synchronize()
                    times.append(time.perf_counter() - start)
                entry[name] = min(times)
            found.append(entry)
    return found


def work(args: argparse.Namespace) -> None:
    """What each process does; the leading one prints the result."""
    with joined(forced=args.worker == "group of one") as group:
        if args.worker == "graph":
            result: Any = graph_seconds(group, choose_device(args.device))
        else:
            result = epoch_seconds(args, group)
        if group.leads:
            print(json.dumps(result), flush=True)


def start(args: argparse.Namespace, kind: str) -> Any:
    """Run one kind in processes of its own."""
    size = args.size if kind in ("group", "graph") else 1
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={size}"]
    own = ["--worker", kind, "--samples", str(args.samples), "--network", args.network]
    own += ["--batch", str(args.batch), "--device", args.device]
    done = subprocess.run([*command, __file__, *own], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    """Alternate the kinds and record medians; each device has an entry of its own."""
    args = options()
    if args.worker:
        work(args)
        return
    rounds = []
    for number in range(args.repeats):
        rounds.append({kind: start(args, kind) for kind in KINDS})
        print(number, {kind: each["seconds"] for kind, each in rounds[-1].items()}, flush=True)
    first = rounds[0]["alone"]
    result = {
        "size": args.size,
        "samples": args.samples,
        "network": args.network,
        "weights": first["weights"],
        "batch": args.batch,
        "command": "python benchmarks/processes.py " + " ".join(sys.argv[1:]),
        "rounds": [{kind: each["seconds"] for kind, each in one.items()} for one in rounds],
        "epoch": {kind: statistics.median(one[kind]["seconds"] for one in rounds) for kind in KINDS},
        "graph": start(args, "graph"),
    }
    earlier = load("processes")
    devices = earlier["devices"] if earlier is not None else {}
    print(save("processes", {"devices": {**devices, first["device"]: result}}))


if __name__ == "__main__":
    main()
