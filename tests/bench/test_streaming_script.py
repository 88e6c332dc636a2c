"""benchmarks/streaming.py measures every stage wherever it is run; here with a few photos on the CPU."""

import importlib
import json
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.slow
@pytest.mark.skipif(not BENCHMARKS.exists(), reason="needs the source tree")
def test_stages_and_busy_shares_are_measured_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.delenv("GRAPHCLEAN_DATA", raising=False)
    script, section = importlib.import_module("streaming"), importlib.import_module("sections.streaming")
    options = ["--count", "6", "--size", "32", "--batch", "3", "--epochs", "1", "--networks", "18"]
    where = ["--workers", "1", "--device", "cpu", "--out", str(tmp_path)]
    monkeypatch.setattr(script, "REPEATS", 1)
    monkeypatch.setattr(sys, "argv", ["streaming.py", *options, *where])
    script.main()
    found = json.loads((tmp_path / "streaming-cpu.json").read_text())
    assert [entry["keep"] for entry in found["epochs"]] == ["disk", "encoded", "decode"]
    for entry in found["epochs"]:
        (epoch,) = entry["epochs"]
        assert 0 < epoch["waited"] < epoch["seconds"]
        assert entry["busy"] == pytest.approx(1 - epoch["waited"] / epoch["seconds"])
    # Nothing is decoded a second time where pixels are on the disk.
    later = {keep: found["reading"][keep]["later"]["images_per_second"] for keep in ("disk", "decode")}
    assert later["disk"] > later["decode"]
    assert "ResNet-18" not in section.streaming_section(found), "shares of a CPU mean nothing"
    machine = {**found["machine"], "gpu": "a GPU"}
    assert "ResNet-18" in section.streaming_section({**found, "device": "cuda", "machine": machine})


def test_the_networks_are_the_published_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    script = importlib.import_module("streaming")
    for depth, parameters in ((18, 11_689_512), (50, 25_557_032)):
        assert sum(weights.numel() for weights in script.resnet(depth).parameters()) == parameters
