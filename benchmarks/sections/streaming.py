"""Photos that stream: images a second by stage, and busy shares."""

from typing import Any

from common import describe, load
from graphclean.bench.markdown import markdown_table

PLACES = {
    "disk": "pixels on the disk",
    "encoded": "files in memory",
    "decode": "decoded in every epoch",
}
DEVICES = {"cpu": "a CPU", "cuda": "a GPU"}


def streaming_sections() -> str:
    """What was measured on each kind of device, or that it was not."""
    parts = []
    for device, kind in DEVICES.items():
        result = load(f"streaming-{device}")
        parts.append(streaming_section(result) if result is not None else f"### On {kind}\n\nNot run yet.\n")
    return "\n".join(parts)


def streaming_section(result: dict[str, Any]) -> str:
    """Its tables; on a CPU, which also computes the network, only those of decoding and of views."""
    photos, settings = result["photos"], result["settings"]
    one = [[f"{name}: {what}", _rate(of[part])] for name, of, part, what in _decoded(result["one_core"])]
    reading = [
        [PLACES[keep], _rate(result["reading"][keep]["first"]), _rate(result["reading"][keep]["later"])]
        for keep in PLACES
    ]
    work = [[f"views: {name}", _rate(found)] for name, found in result["views"].items()]
    epochs = [
        [
            entry["network"],
            PLACES[entry["keep"]] + (" and the GPU" if entry["way"] == "ResidentInputs" else ""),
            f"{100 * entry['busy']:.1f} %",
        ]
        for entry in result["epochs"]
    ]
    decoded = markdown_table(["decoding, on one core", "images/s"], one)
    head = f"""### On {DEVICES[result["device"]]}

{photos["count"]:,} JPEGs ({photos["what"]}, {photos["mean_bytes"] / 1000:.0f} kB on average) as squares of {settings["size"]} px."""
    if result["device"] == "cpu":
        return f"""{head} Whether a network is kept
busy doesn't show on a CPU, which also computes the network, nor on so few photos; so only the stages that run on the CPU
anyway are shown. Compare the rows, not the machine with yours.

{decoded}

{markdown_table(["strong and weak views", "images/s"], work)}

{describe(result)}
"""
    work += [[f"step, {name}", _rate(found)] for name, found in result["steps"].items()]
    return f"""{head} Batches of
{settings["batch"]} with two views, {settings["workers"]} processes that decode. A network is busy except while a step waits
for its batch with nothing else to do; the goal is {100 * result["goal"]:.0f} % from the second epoch on.

{markdown_table(["network", "photos", "busy, from the second epoch on"], epochs)}

{markdown_table(["photos", "first time, images/s", "later, images/s"], reading)}

{decoded}

{markdown_table(["on the device", "images/s"], work)}

{describe(result, gpu=True)}
"""


def _decoded(one_core: dict[str, Any]) -> list[tuple[str, dict[str, Any], str, str]]:
    rows = []
    for decoder in ("pillow", "simplejpeg"):
        if decoder in one_core:
            rows.append((decoder, one_core[decoder], "whole", "whole photos"))
            rows.append((decoder, one_core[decoder], "squares", "squares, shrunk while decoding"))
            rows.append((decoder, one_core[decoder], "measured", "squares, and measures of the photo"))
    return rows


def _rate(found: dict[str, Any]) -> str:
    return f"{found['images_per_second']:,.0f}"
