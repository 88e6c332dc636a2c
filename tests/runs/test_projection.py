"""What a run keeps of its samples for the report."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

from graphclean._files import read_tensors
from graphclean.config import Config
from graphclean.data.digits import noisy_digits
from graphclean.runs import projection as room
from graphclean.runs.clean import clean
from graphclean.runs.projection import gather_points
from graphclean.runs.train import train
from tests.runs.tiny import SETTINGS, N


def test_scores_of_clean_are_what_the_detector_counted(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(300) % 3
    z = 3 * np.eye(3, 6)[labels] + rng.normal(size=(300, 6))
    np.savez(tmp_path / "z.npz", z=z, y=labels)
    done = clean(tmp_path / "z.npz", tmp_path / "run", Config())
    points, _ = read_tensors(tmp_path / "run/points.safetensors")
    assert done.detection is not None
    np.testing.assert_allclose(points["ood_score"], done.detection.score, atol=1e-5)
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["detector"] == {"name": "distance", **asdict(done.detection.found)}
    above = points["ood_score"].numpy() > summary["detector"]["threshold"]
    assert above.mean() == pytest.approx(summary["detector"]["rejected_known"], abs=1e-6)
    assert above.sum() == 14, "of 300 samples all but the 286 = ⌈301 × 0.95⌉ smallest"


@pytest.mark.parametrize("kind", ["images", "features"])
def test_scores_of_training_are_what_the_detector_counted(tmp_path: Path, kind: str) -> None:
    """The share of known samples above the threshold is the recorded one, of z and of features."""
    digits = noisy_digits(noise=0.3)
    data = digits.images if kind == "images" else digits.pixels
    np.savez(tmp_path / "d.npz", **{kind: data[:N], "labels": digits.labels[:N]})
    settings = SETTINGS if kind == "images" else ["training.epochs=2", "cleaning.k=10,20"]
    preset = "demo" if kind == "images" else "embeddings"
    done = train(tmp_path / "d.npz", tmp_path / "run", preset=preset, settings=settings, device="cpu")
    assert (done.result.model.class_means is not None) == (kind == "features")
    points, _ = read_tensors(tmp_path / "run/points.safetensors")
    found = done.result.model.found
    known = done.cleaning.verdicts["ood_score"].to_numpy() <= 0.5
    if found.rejected_ood is None:
        known[:] = True
    share = (points["ood_score"].numpy() > found.threshold)[known].mean()
    assert share == pytest.approx(found.rejected_known, abs=1e-4)


def test_few_dimensions_keep_the_distances_of_what_has_few() -> None:
    rng = np.random.default_rng(0)
    z = torch.nn.functional.normalize(
        torch.as_tensor(rng.normal(size=(80, 5)) @ rng.normal(size=(5, 90))), dim=1
    )
    points = gather_points(z, None)
    assert points["z"].shape == (80, 50)
    np.testing.assert_allclose(torch.cdist(points["z"], points["z"]), torch.cdist(z, z), atol=1e-3)


def test_many_are_sampled_alike_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MAPPED", 20)
    z = torch.randn(100, 4, generator=torch.Generator().manual_seed(0))
    first, second = gather_points(z, None), gather_points(z, None)
    assert len(first["rows"].unique()) == 20
    assert torch.equal(first["rows"], second["rows"])
    assert torch.equal(first["rows"], first["rows"].sort().values)


def test_samples_that_are_all_alike_are_no_warning(recwarn: pytest.WarningsRecorder) -> None:
    points = gather_points(torch.ones(20, 4), None)
    assert not recwarn.list
    assert torch.equal(points["z"], torch.zeros(20, 4))
