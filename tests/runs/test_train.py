"""`graphclean train` as a person uses it: what it writes, says, accepts and refuses."""

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open

from graphclean._files import load_tensors
from graphclean.cleaning.inputs import encode_labels
from graphclean.config import apply_settings, load_preset
from graphclean.data.digits import noisy_digits
from graphclean.data.tables import Names
from graphclean.graph import Cleaned, GraphCleaner
from graphclean.methods import build_method
from graphclean.report.text import run_again
from graphclean.runs.inputs import read_source
from graphclean.runs.predict import load_model
from graphclean.training.fit import fit
from graphclean.training.model import NetworkModel
from tests.builders import Cli
from tests.cleaning.test_pipeline import blobs
from tests.runs.tiny import SETTINGS, TINY, metrics, results, save_digits

pytestmark = pytest.mark.usefixtures("one_thread")


def test_the_run_folder_and_the_screen(cli: Cli, tmp_path: Path) -> None:
    save_digits(tmp_path)
    done = cli("train", "digits.npz", *TINY)
    assert done.code == 0
    out = tmp_path / "runs" / "digits-train"
    assert {path.name for path in out.iterdir()} == {
        *("config.json", "env.json", "metrics.jsonl", "checkpoint", "summary.json"),
        *("verdicts.parquet", "verdicts.csv", "model.safetensors", "prototypes.safetensors"),
        "points.safetensors",
    }
    config = json.loads((out / "config.json").read_text())
    assert (config["kind"], config["preset"]) == ("train", "demo")
    assert set(config["settings"]) == {"cleaning", "graph", "training", "method", "ood"}
    assert config["settings"]["training"]["epochs"] == 3
    assert config["settings"]["method"]["name"] == "ngc"
    assert config["settings"]["method"]["warmup_epochs"] == 1
    table = pd.read_parquet(out / "verdicts.parquet")
    summary = json.loads((out / "summary.json").read_text())
    assert summary["selected"] == table.selected.sum() == sum(table.selected)
    lines = metrics(out)
    assert [line["epoch"] for line in lines] == [1, 2, 3]
    for line in lines:
        assert line["estimated_noise"] == pytest.approx(1 - (line["selected"] - line["relabeled"]) / 160)
        assert line["loss"] == pytest.approx(sum(line["losses"].values()))
    assert "digits.npz: 160 images of 1 × 8 × 8, 8 classes; preset demo, epochs: 3, device: cpu" in done.err
    assert f"epoch 3 of 3, loss {lines[-1]['loss']:.3f}" in done.err
    for verdict, count in table.verdict.value_counts().items():
        assert f"{verdict} " in done.out
        assert str(count) in done.out
    detector = summary["detector"]
    assert detector == {"name": "prototypes", **load_tensors(out / "prototypes.safetensors", values=False)[1]}
    assert (
        f"Detector (prototypes): threshold {detector['threshold']:.3f}, found on the training set."
        in done.out
    )
    assert f"({100 * detector['rejected_known']:.1f} % of the known training samples)" in done.out
    assert "graphclean predict runs/digits-train NEW" in done.out


def test_the_command_line_and_python_agree(cli: Cli, tmp_path: Path) -> None:
    save_digits(tmp_path)
    assert cli("train", "digits.npz", *TINY, "--quiet").out == ""
    digits = noisy_digits(noise=0.3)
    config = apply_settings(load_preset("demo"), SETTINGS)
    result = fit(digits.images[:160], encode_labels(digits.labels[:160]), config, build_method(config))
    written = pd.read_parquet(tmp_path / "runs/digits-train/verdicts.parquet")
    assert written.verdict.tolist() == result.cleaning.verdicts.verdict.tolist()
    assert written.selected.tolist() == result.cleaning.verdicts.selected.tolist()
    np.testing.assert_array_equal(written.ood_score, result.cleaning.verdicts.ood_score)
    assert cli("predict", "runs/digits-train", "new.npz", "--out", "p.parquet").code == 0
    new = pd.read_parquet(tmp_path / "p.parquet")
    by_python = result.predict(digits.images[160:320])
    np.testing.assert_array_equal(new.predicted_label, by_python.classes)
    np.testing.assert_array_equal(new.probability, by_python.probability)
    np.testing.assert_array_equal(new.ood_score, by_python.ood_score)
    threshold = result.model.found.threshold
    assert new.verdict.tolist() == ["ood" if s > threshold else "known" for s in by_python.ood_score]


@pytest.mark.slow
def test_features_choose_their_preset_and_are_standardized(cli: Cli, tmp_path: Path) -> None:
    z, labels, truth = blobs([60] * 3, noise=0.3, ood=60)
    spread = np.linspace(0.01, 5000, 16)
    names = np.array(["ant", "bee", "cat"])[labels]
    np.savez(tmp_path / "plain.npz", z=z, y=names)
    np.savez(tmp_path / "spread.npz", z=z * spread + spread, y=names)
    settings = "training.epochs=8", "method.warmup_epochs=2", "cleaning.scaling=standardized"
    few = [word for setting in settings for word in ("--set", setting)]
    for name in ("plain", "spread"):
        done = cli("train", f"{name}.npz", *few)
        assert "16 features, 3 classes; preset embeddings, epochs: 8" in done.err
        assert "Detector (learned from OOD samples): threshold 0." in done.out
    tables = [
        pd.read_parquet(tmp_path / f"runs/{name}-train/verdicts.parquet") for name in ("plain", "spread")
    ]
    assert (tables[0].verdict == tables[1].verdict).mean() > 0.97  # but for rounding
    known = truth >= 0
    expected = np.array(["ant", "bee", "cat"])[truth[known]]
    assert (tables[1].proposed_label[known] == expected).mean() > 0.9
    np.savez(tmp_path / "new.npz", z=z[known] * spread + spread)
    cli("predict", "runs/spread-train", "new.npz")
    new = pd.read_csv(tmp_path / "runs/spread-train/predictions/new.csv")
    assert (new.predicted_label == expected).mean() > 0.9
    loaded = load_model(tmp_path / "runs/spread-train")
    assert isinstance(loaded, NetworkModel)
    assert loaded.class_means is not None
    by_python = loaded.predict(z[known] * spread + spread)
    np.testing.assert_allclose(new.ood_score, by_python.ood_score, atol=1e-6)
    np.testing.assert_allclose(new.probability, by_python.probability, atol=1e-6)
    with safe_open(tmp_path / "runs/spread-train/model.safetensors", framework="pt") as file:
        np.testing.assert_allclose(file.get_tensor("mean"), (z * spread + spread).mean(0), rtol=1e-5)


def test_images_take_the_paper_s_preset(cli: Cli, tmp_path: Path) -> None:
    save_digits(tmp_path)
    options = ["training.epochs=1", "training.network=small-conv", "training.crop_padding=1", "cleaning.k=10"]
    done = cli("train", "digits.npz", *(word for option in options for word in ("--set", option)))
    assert done.code == 0
    assert "preset cifar10-lond, epochs: 1, device: cpu" in done.err
    assert "takes very long" not in done.err


@pytest.mark.parametrize("preset", ["paper", "release"])
def test_what_a_preset_leaves_open_is_said(cli: Cli, tmp_path: Path, preset: str) -> None:
    save_digits(tmp_path)
    small = [setting for setting in SETTINGS if not setting.startswith(("graph.k", "method.warmup"))]
    sets = [word for setting in small for word in ("--set", setting)]
    start = ("train", "digits.npz", "--preset", preset, *sets, "--set", "training.network=small-conv")
    chosen = ("--set", "graph.k=10", "--set", "method.warmup_epochs=1")
    done = cli(*start, *chosen)
    assert f"preset {preset} leaves to you what the paper chose for each data set" in done.err
    assert "not set, it is graph.eta=0.8\n" in done.err
    again = cli(*start, *chosen, "--set", "graph.eta=0.7", "--overwrite")
    assert again.code == 0
    assert "leaves to you" not in again.err


def test_a_large_network_without_a_gpu_is_warned_of(cli: Cli, tmp_path: Path) -> None:
    digits = noisy_digits()
    np.savez(tmp_path / "few.npz", images=digits.images[:24], labels=digits.labels[:24])
    options = [
        "training.epochs=1",
        "method.warmup_epochs=1",
        "training.strong_augmentation=off",
        "graph.k=5",
        "cleaning.k=5",
    ]
    done = cli(
        *("train", "few.npz", "--preset", "cifar10-lond", "--device", "cpu"),
        *(word for option in options for word in ("--set", option)),
    )
    assert done.code == 0
    assert (
        "preact-resnet18 takes very long without a GPU; preset small-images has a small network" in done.err
    )


def test_every_kind_of_image_array_is_the_same_training_set(tmp_path: Path) -> None:
    digits = noisy_digits()
    gray = digits.images[:50]
    gray[0, 0, 0, :2] = 0, 255
    labels = digits.labels[:50]
    kinds = {
        "first": gray,
        "last": np.moveaxis(gray, 1, 3),
        "flat": gray[:, 0],
        "deep": gray.astype(np.uint16) * 257,
        "unit": gray / 255,
        "color": np.repeat(gray, 3, 1),
        "rgba": np.concatenate([np.repeat(gray, 3, 1), np.full_like(gray, 255)], 1),
    }
    marks = {}
    for name, array in kinds.items():
        np.savez(tmp_path / f"{name}.npz", x=array, y=labels)
        marks[name] = read_source(tmp_path / f"{name}.npz", Names(), images=True).fingerprint()
    assert len({marks[name] for name in ("first", "last", "flat", "deep", "unit")}) == 1
    assert marks["color"] == marks["rgba"] != marks["first"]


def test_two_of_many_classes_unlabeled_samples_and_named_labels(cli: Cli, tmp_path: Path) -> None:
    digits = noisy_digits(noise=0.1)
    rows = np.flatnonzero(np.isin(digits.labels, (1, 6)))[:150]
    labels = digits.labels[rows].astype(float)
    labels[:20] = np.nan
    np.savez(tmp_path / "two.npz", x=digits.images[rows], y=labels)
    done = cli("train", "two.npz", *TINY)
    assert done.code == 0
    assert "20 samples are unlabeled" in done.err
    table = pd.read_parquet(tmp_path / "runs/two-train/verdicts.parquet")
    assert set(table.verdict[:20]) <= {"unlabeled", "ood"}
    assert table.given_label[:20].isna().all()
    assert set(table.proposed_label) == {1, 6}
    assert json.loads((tmp_path / "runs/two-train/summary.json").read_text())["classes"] == [1, 6]
    cli("predict", "runs/two-train", "two.npz", "--quiet")
    assert set(pd.read_csv(tmp_path / "runs/two-train/predictions/two.csv").predicted_label) <= {1, 6}
    line = metrics(tmp_path / "runs/two-train")[-1]
    assert line["estimated_noise"] == pytest.approx(1 - (line["selected"] - line["relabeled"]) / 130)


@pytest.mark.slow
def test_a_validation_set_is_watched_and_changes_nothing(cli: Cli, tmp_path: Path) -> None:
    save_digits(tmp_path)
    done = cli("train", "digits.npz", *TINY, "--validation", "new.npz")
    assert "31 validation samples have a class that the data lacks" in done.err
    assert "of the validation samples right" in done.out
    cli("train", "digits.npz", *TINY, "--out", "without", "--quiet")
    watched, plain = results(tmp_path / "runs/digits-train"), results(tmp_path / "without")
    assert watched["model.safetensors"] == plain["model.safetensors"]
    assert watched["verdicts.parquet"] == plain["verdicts.parquet"]
    accuracy = [line.pop("validation_accuracy") for line in watched["metrics"]]
    assert watched["metrics"] == plain["metrics"]
    cli("predict", "without", "new.npz", "--quiet")
    new = pd.read_csv(tmp_path / "without/predictions/new.csv")
    truth = noisy_digits().truth[160:320]
    assert accuracy[-1] == pytest.approx((new.predicted_label == truth)[truth < 8].mean())
    both = (*TINY, "--set", "training.prototype_ensemble=true", "--validation", "new.npz", "--out", "both")
    cli("train", "digits.npz", *both, "--quiet")
    cli("predict", "both", "new.npz", "--quiet")
    new = pd.read_csv(tmp_path / "both/predictions/new.csv")
    summary = json.loads((tmp_path / "both/summary.json").read_text())
    told = summary["training"]["validation_accuracy"]
    assert told == pytest.approx((new.predicted_label == truth)[truth < 8].mean())


@pytest.mark.slow
def test_a_run_goes_on_by_the_printed_command_or_with_what_it_was_told(cli: Cli, tmp_path: Path) -> None:
    with np.load(save_digits(tmp_path)) as data, np.load(tmp_path / "new.npz") as new:
        np.savez(tmp_path / "two.npz", a=data["images"], b=data["images"][::-1], y=data["labels"])
        np.savez(tmp_path / "right.npz", a=new["images"], y=new["labels"])
        np.savez(tmp_path / "y.npz", y=data["labels"], other=data["labels"][::-1])
    np.save(tmp_path / "x.npy", np.load(tmp_path / "two.npz")["a"])
    both = {
        "keys": ["two.npz", "--images-key", "a", "--validation", "right.npz"],
        "labels": ["x.npy", "--labels", "y.npz", "--labels-key", "other"],
    }
    for out, arguments in both.items():
        assert cli("train", *arguments, *TINY, "--out", out, "--quiet").code == 0
        before, config = results(tmp_path / out), (tmp_path / out / "config.json").read_bytes()
        printed = run_again(Path(out), json.loads(config))
        assert printed is not None
        for again in (shlex.split(printed)[1:], ["train", arguments[0], "--out", out, "--resume"]):
            (tmp_path / out / "summary.json").unlink()
            assert cli(*again, "--quiet").code == 0
            assert results(tmp_path / out) == before
            assert (tmp_path / out / "config.json").read_bytes() == config
    assert results(tmp_path / "keys")["summary"]["training"]["validation_accuracy"] is not None


def test_validation_features_may_be_of_any_width(cli: Cli, tmp_path: Path) -> None:
    z, labels, truth = blobs([30] * 2)
    pd.DataFrame(z).assign(label=labels).to_csv(tmp_path / "t.csv", index=False)
    pd.DataFrame(z).assign(label=truth).to_csv(tmp_path / "right.csv", index=False)
    short = ["--set", "training.epochs=2", "--set", "method.warmup_epochs=1", "--quiet"]
    assert cli("train", "t.csv", "--validation", "right.csv", *short, "--out", "run").code == 0
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert summary["training"]["validation_accuracy"] > 0.9


def test_a_table_of_features_goes_on_as_one(cli: Cli, tmp_path: Path) -> None:
    z, labels, _ = blobs([30] * 2)
    table = pd.DataFrame(z[:, :3], columns=["x", "y", "z"]).assign(label=labels)  # as few as in a manifest
    table.assign(path=[f"{row}.jpg" for row in range(len(z))]).to_csv(tmp_path / "t.csv", index=False)
    short = ["--set", "training.epochs=1", "--set", "method.warmup_epochs=1", "--quiet"]
    assert cli("train", "t.csv", "--embedder", "none", "--validation", "t.csv", *short).code == 0
    assert cli("train", "t.csv", "--resume", "--quiet").code == 0


@pytest.mark.slow
def test_an_empty_selection_is_survived_and_said(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_digits(tmp_path)
    plain = GraphCleaner.step

    def without(classes: int) -> Callable[..., Cleaned]:
        def step(self: GraphCleaner, *args: torch.Tensor, **options: Any) -> Cleaned:
            cleaned = plain(self, *args, **options)
            return replace(cleaned, selected=cleaned.selected & (cleaned.labels >= classes))

        return step

    monkeypatch.setattr(GraphCleaner, "step", without(2))
    two = cli("train", "digits.npz", *TINY, "--out", "two")
    assert two.code == 0
    assert "nothing selected of 2 classes" in two.err
    assert "classes without a selected sample, and so without a prototype: 0, 1" in two.err
    monkeypatch.setattr(GraphCleaner, "step", without(8))
    none = cli("train", "digits.npz", *TINY, "--out", "none")
    assert none.code == 0
    assert "3 steps of the last epoch had no selected sample" in none.err
    without = "not one sample was selected as clean: there is no detector, and nothing is rejected"
    assert without in none.err
    told = cli("predict", "none", "new.npz", "--out", "new.csv")
    assert (told.code, told.err) == (0, f"warning: {without}\n")
    new = pd.read_csv(tmp_path / "new.csv")
    assert set(new.verdict) == {"known"}
    assert (new.ood_score == 0).all()
    told = cli("predict", "none", "new.npz", "--out", "json.csv", "--json")
    assert json.loads(told.out)["warnings"] == [without]
    assert cli("report", "none", "--quiet").code == 0
    set_to = cli("train", "digits.npz", "--out", "none", "--resume", "--set", "ood.threshold=0.1", "--json")
    assert json.loads(set_to.out)["detector"]["rejected_known"] == 0
    assert cli("predict", "two", "new.npz", "--out", "two.csv").err == ""


def test_a_run_that_never_got_past_warm_up_says_so(cli: Cli, tmp_path: Path) -> None:
    save_digits(tmp_path)
    short = [*TINY, "--set", "method.warmup_epochs=9"]
    done = cli("train", "digits.npz", *short, "--out", "warm")
    assert "warning: all 3 epochs were warm-up on the labels as given (method.warmup_epochs=9)" in done.err
    plain = cli("train", "digits.npz", *short, "--set", "method.name=cross-entropy", "--out", "ce")
    assert "warm-up" not in plain.err


def test_the_threshold_can_be_set_and_results_made_again_with_it(cli: Cli, tmp_path: Path) -> None:
    save_digits(tmp_path)
    cli("train", "digits.npz", *TINY, "--quiet")
    before = results(tmp_path / "runs/digits-train")
    done = cli("train", "digits.npz", "--resume", "--set", "ood.threshold=0.03")
    assert "threshold 0.030, as it was set" in done.out
    after = results(tmp_path / "runs/digits-train")
    assert after["summary"]["detector"]["how"] == "fixed"
    assert after["model.safetensors"] == before["model.safetensors"]
    cli("predict", "runs/digits-train", "new.npz", "--quiet")
    new = pd.read_csv(tmp_path / "runs/digits-train/predictions/new.csv")
    assert ((new.verdict == "ood") == (new.ood_score > 0.03)).all()


@pytest.mark.slow
def test_method_and_detector_have_options_of_their_own(cli: Cli, tmp_path: Path) -> None:
    """Also one that is given the network itself: everything but the export works."""
    save_digits(tmp_path)
    of_all = [setting for setting in SETTINGS if not setting.startswith("method.")]
    options = ["--preset", "demo", *(word for setting in of_all for word in ("--set", setting))]
    chosen = ("--method", "cross-entropy", "--detector", "odin")
    assert cli("train", "digits.npz", *options, *chosen, "--out", "run", "--quiet").code == 0
    settings = json.loads((tmp_path / "run" / "config.json").read_text())["settings"]
    assert (settings["method"]["name"], settings["ood"]["detector"]) == ("cross-entropy", "odin")
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["detector"]["name"] == "odin"
    assert cli("predict", "run", "new.npz", "--quiet").code == 0
    score = pd.read_csv(tmp_path / "run" / "predictions" / "new.csv").ood_score
    assert ((score > -1 / 7) & (score < -1 / 8)).all()
    assert cli("report", "run", "--quiet").code == 0
    refused = cli("export", "run")
    assert refused.code == 2
    assert refused.err.count("\n") == 1
    assert "the detector odin runs the network several times" in refused.err
    twice = cli("train", "digits.npz", "--detector", "knn", "--set", "ood.detector=vim", "--out", "other")
    assert twice.err == ("graphclean: --detector knn, and the setting ood.detector=vim another; drop one\n")
    assert not (tmp_path / "other").exists()


def test_json_is_all_that_is_printed(cli: Cli, tmp_path: Path) -> None:
    save_digits(tmp_path)
    done = cli("train", "digits.npz", *TINY, "--json")
    assert done.err == ""
    summary = json.loads(done.out)
    assert summary["run"] == "runs/digits-train"
    assert summary["training"]["epochs"] == 3
    assert summary["detector"]["how"] == "auto"
