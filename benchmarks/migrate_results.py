"""Move the recorded results to today's names and layout, once: python benchmarks/migrate_results.py.

File names: `[METHOD--]PRESET[--CHANGE…]` for `ngc[--CHANGE…]`; settings: the method's own section; arrays:
what a figure or an ensemble is drawn from, small; draws: made again by their seed, so that a digest is enough.
"""

import json
import re
from pathlib import Path

import numpy as np

from graphclean.bench.epoch_log import KINDS
from graphclean.bench.map import make_map
from graphclean.bench.results import _lay_out, result_path, shrink

RESULTS = Path(__file__).parents[1] / "results"
RENAMED = {
    "learn.warmup": "method.warmup_epochs",
    "learn.mixup": "method.mixup_alpha",
    "learn.lambda_inst": "method.lambda_inst",
    "learn.lambda_subgraph": "method.lambda_subgraph",
    "learn.tau_inst": "method.tau_inst",
    "learn.tau_subgraph": "method.tau_subgraph",
    "learn.subgraph_positives": "method.subgraph_positives",
    "learn.gate_from": "method.ood_gate_start",
}


def rename_settings(config):
    """The recorded settings by their names of today; those that are gone stay as they are."""
    learn, method = {}, {}
    for key, value in config["learn"].items():
        new = RENAMED.get(f"learn.{key}")
        if key == "method":
            assert value == "ngc"
        elif key == "labels_from":
            assert value == "graph"
        elif key == "batch_stats":
            method["joint_batch_norm"] = {"together": True, "separate": False}[value]
        elif new is not None:
            method[new.removeprefix("method.")] = value
        else:
            learn[key] = value
    assert set(config) == {"graph", "learn"}
    return {"graph": config["graph"], "learn": learn, "method": {"name": "ngc", **method}}


def rename_parts(texts, between):
    """Settings followed by `between` and a value."""
    found = [
        re.sub(rf"^([a-z]+\.\w+)(?={between})", lambda m: RENAMED.get(m[1], m[1]), text) for text in texts
    ]
    settings = iter(sorted(text for text in found if re.match(r"[a-z]+\.", text)))
    return [next(settings) if re.match(r"[a-z]+\.", text) else text for text in found]


def rename_method(record):
    """The name that a run is filed by from now on."""
    first, *parts = record["method"].split("--")
    return "--".join([record["preset"] if first == "ngc" else first, *rename_parts(parts, "-")])


def small_arrays(path, record, first, ensemble):
    """What is drawn from the arrays of a run: the map from those of a method's first seed."""
    with np.load(path) as file:
        old = dict(file)
    truth, arrays = old["truth"], {}
    if first:
        points = make_map(old["z"].astype(np.float32))
        assert points is not None
        arrays = {"map": points, "kind": np.array([KINDS.index(kind) for kind in old["kind"]])}
    if ensemble:
        arrays |= {"truth": truth, "logits": old["logits"][truth >= 0]}
    if record["cell"].count("/") == 2:
        arrays |= {"truth": truth, "predicted": old["logits"].argmax(1), "similarity": old["similarity"]}
    return {name: shrink(array) for name, array in arrays.items()}


def main():
    for path in sorted(RESULTS.glob("*/*/*.json")):
        record = json.loads(path.read_text())
        method = rename_method(record)
        new = record | {
            "method": method,
            "changes": rename_parts(record["changes"], "="),
            "config": rename_settings(record["config"]),
        }
        target = result_path(RESULTS, record["cell"], record["split"], method, record["seed"])
        arrays = path.with_suffix(".npz")
        pair = record["split"] == "test" and len(list(path.parent.glob("[0-9]*.json"))) > 1
        small = None
        if arrays.is_file():
            small = small_arrays(arrays, record, record["seed"] == 0, pair and record["seed"] < 2)
            arrays.unlink()
        path.unlink()
        path.with_suffix(".draw.npz").unlink(missing_ok=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        assert not target.exists()
        target.write_text(_lay_out(new), encoding="utf-8")
        if small is not None:
            np.savez_compressed(target.with_suffix(".npz"), **small)
        if not any(path.parent.iterdir()):
            path.parent.rmdir()
        print(path.relative_to(RESULTS), "->", target.relative_to(RESULTS), flush=True)


if __name__ == "__main__":
    main()
