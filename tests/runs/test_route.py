"""What `train` does where no preset is named."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from graphclean.config import load_preset
from graphclean.data.digits import noisy_digits
from graphclean.runs.route import ENOUGH, choose_route
from graphclean.training.networks import takes_features
from tests.builders import Cli

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("kind", "count", "device", "network", "preset", "why"),
    [
        ("features", 10, CPU, None, "embeddings", None),
        ("features", 10**6, GPU, None, "embeddings", None),
        ("images", ENOUGH - 1, GPU, None, "cifar10-lond", None),
        ("images", ENOUGH, GPU, None, "cifar10-lond-fast", "20,000 images or more, so 60 epochs will do"),
        ("images", 10, CPU, None, "small-images", "no GPU, so a small network is trained"),
        ("images", 10, CPU, "preact-resnet18", "cifar10-lond", None),
        ("photos", 10**6, CPU, None, "embeddings", "no GPU, so heads are trained on pretrained features"),
        ("photos", ENOUGH - 1, GPU, None, "embeddings", "under 20,000 photos, so heads are trained"),
        ("photos", ENOUGH, GPU, None, "photos", "a GPU and 20,000 photos or more, so the whole network"),
        ("photos", 10, CPU, "timm:resnet18", "photos", "timm:resnet18 is trained on the photos themselves"),
        ("photos", ENOUGH, GPU, "embedding-head", "embeddings", None),
    ],
)
def test_routes(
    kind: str, count: int, device: torch.device, network: str | None, preset: str, why: str | None
) -> None:
    route = choose_route(kind, count, device, network)
    assert route.preset == preset
    assert (route.why is None) if why is None else (route.why or "").startswith(why)
    learned = load_preset(route.preset).training.network
    assert takes_features(learned) == (preset == "embeddings")


@pytest.mark.usefixtures("one_thread")
def test_the_route_is_said_and_kept(cli: Cli, tmp_path: Path) -> None:
    digits = noisy_digits(noise=0.3)
    np.savez(tmp_path / "few.npz", images=digits.images[:80], labels=digits.labels[:80])
    options = ["training.epochs=2", "method.warmup_epochs=1", "graph.k=5", "cleaning.k=5"]
    words = [word for option in options for word in ("--set", option)]
    done = cli("train", "few.npz", "--device", "cpu", *words)
    assert done.code == 0
    assert "preset small-images" in done.err
    line = choose_route("images", 80, CPU).why
    assert line is not None
    assert done.err.count(line) == 1
    run = tmp_path / "runs/few-train"
    assert json.loads((run / "summary.json").read_text())["training"]["route"] == line
    (run / "summary.json").unlink()
    assert cli("train", "few.npz", "--device", "cpu", "--resume", "--quiet").code == 0
    assert json.loads((run / "summary.json").read_text())["training"]["route"] == line
    done = cli("train", "few.npz", "--device", "cpu", "--preset", "demo", "--out", "other", *words)
    assert "no GPU, so" not in done.err
    assert json.loads((tmp_path / "other/summary.json").read_text())["training"]["route"] is None
