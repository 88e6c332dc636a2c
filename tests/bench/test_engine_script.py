"""benchmarks/engine.py drives the trainer by its inner parts; here on a cell of a few images."""

import importlib
import json
import sys
from pathlib import Path

import pytest

from tests.bench.builders import MIXED, POOL, QUICK, TRAIN

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.slow
@pytest.mark.skipif(not BENCHMARKS.exists(), reason="needs the source tree")
def test_times_and_growth_are_measured_and_kept(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    script = importlib.import_module("engine")
    settings = [word for setting in (*QUICK, "training.batch_size=16") for word in ("--set", setting)]
    options = ["--cell", MIXED.name, "--data-root", str(root), "--device", "cpu", "--epochs", "3"]
    monkeypatch.setattr(
        sys, "argv", ["engine.py", *options, *settings, "--sizes", "80", "--out", str(tmp_path)]
    )
    script.main()
    found = json.loads((tmp_path / "engine-cpu.json").read_text())
    assert found["samples"] == TRAIN + MIXED.n_ood <= TRAIN + POOL
    parts = found["cleaning"] + found["augmentation"] + found["network"]
    assert parts == pytest.approx(found["epoch"])
    assert 0 < found["embedding"] < found["epoch"]
    assert found["images_per_second"] <= found["filled_images_per_second"]
    assert found["network_alone_images_per_second"] > 0
    assert found["first_step"] > 0
    growth = json.loads((tmp_path / "engine-growth-cpu.json").read_text())["growth"]
    assert [part["samples"] for part in growth] == [80]
    assert growth[0]["cleaning"] < growth[0]["epoch"]
