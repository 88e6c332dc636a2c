"""The measured parts of the page on several processes."""

import math
from typing import Any

from common import describe, load, seconds
from graphclean.bench.markdown import markdown_table
from graphclean.training.networks import build_network

LINKS = {"NVLink 4": 450e9, "InfiniBand NDR": 50e9, "100 Gbit Ethernet": 12.5e9}
"""Published bytes per second and direction."""
GPUS = (1, 2, 4, 8)
BATCH, IMAGE = 512, (3, 32, 32)
"""Samples of a GPU's step, and the shape of one."""
BYTES = 4
"""Of a weight and of a pixel of a view."""


def measured_section() -> str:
    """An epoch alone and in groups, and the graph step divided or not."""
    result = load("processes")
    if result is None:
        return "Not measured yet.\n"
    parts = [_device(name, entry, result) for name, entry in sorted(result["devices"].items())]
    if "cuda" not in result["devices"]:
        parts.append(
            "Not run on a GPU yet: neither the cost of a group of one over NCCL, nor two processes on one card.\n"
        )
    return "\n".join(parts)


def _device(name: str, entry: dict[str, Any], result: dict[str, Any]) -> str:
    alone = entry["epoch"]["alone"]
    rows = [
        [_kind(kind, entry), seconds(value), f"{value / alone:.2f}"] for kind, value in entry["epoch"].items()
    ]
    epochs = markdown_table(["an epoch of NGC", "seconds", "ratio"], rows)
    pairs = zip(entry["graph"][::2], entry["graph"][1::2], strict=True)
    graph = markdown_table(
        ["samples", "search", "divided", "propagation", "divided"],
        [
            [
                f"{one['samples']:,}",
                *(seconds(each[part]) for part in ("search", "propagation") for each in (one, two)),
            ]
            for one, two in pairs
        ],
    )
    cores = f", {result['machine']['cores']} cores for all processes" if name == "cpu" else ""
    return (
        f"On {'a GPU' if name == 'cuda' else 'a CPU'} ({entry['network']}, {entry['samples']:,} images of 32 pixels, "
        f"batches of {entry['batch']}, medians of {len(entry['rounds'])} rounds{cores}):\n\n{epochs}\n\n"
        f"The graph step by {entry['size']} processes, whole or divided:\n\n{graph}\n\n"
        f"{describe(result, gpu=name == 'cuda')}\n"
    )


def _kind(kind: str, entry: dict[str, Any]) -> str:
    names = {
        "alone": "one process",
        "group of one": "one process as a group",
        "group": f"{entry['size']} processes",
    }
    return names[kind]


def growth_section() -> str:
    """The epoch on several GPUs, computed from the recorded one and the bytes that a step exchanges."""
    engine = load("engine-cuda")
    if engine is None:
        return "Not recorded yet.\n"
    compute = engine["network"] + engine["augmentation"]
    steps = -(-engine["samples"] // BATCH)
    network = build_network("preact-resnet18", 10, input_shape=IMAGE)
    weights, pixels = sum(each.numel() for each in network.parameters()), math.prod(IMAGE)
    rows = []
    for gpus in GPUS:
        cells = [f"{gpus}"]
        for speed in LINKS.values():
            share = (gpus - 1) / gpus
            sent = share * BYTES * (2 * weights + 2 * BATCH * gpus * pixels)
            epoch = (compute + engine["embedding"]) / gpus + engine["graph"] + steps / gpus * sent / speed
            cells.append(f"{epoch:.2f} s, {100 * engine['epoch'] / (gpus * epoch):.0f} %")
        rows.append(cells)
    table = markdown_table(["GPUs", *LINKS], rows)
    return (
        f"Computed, not measured: {BATCH} samples a GPU and step, from the epoch of {engine['samples']:,} images recorded on "
        f"one {engine['machine']['gpu']} ({engine['epoch']:.2f} s, compiled), the bytes of gradients and views that a step "
        f"exchanges, and the published speed of each link. Each cell is the epoch, and the fraction of the GPUs' time that is "
        f"used. Latency, and what is not compiled in a group, come on top.\n\n{table}\n"
    )
