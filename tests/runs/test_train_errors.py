"""`graphclean train` on bad input, and what may go wrong on the way: one line, and nothing lost."""

from pathlib import Path

import numpy as np
import pytest
import torch

from graphclean.config import load_preset
from graphclean.data.digits import noisy_digits
from graphclean.runs.interrupts import one_line_errors
from graphclean.training import DivergedError
from tests.builders import Cli, Refuse
from tests.runs.tiny import TINY, metrics, results, save_digits

pytestmark = pytest.mark.usefixtures("one_thread")


def bad_inputs(folder: Path) -> dict[str, tuple[list[str], str]]:
    """Name -> arguments, and what the one line must say."""
    images, labels = noisy_digits().images[:60], noisy_digits().labels[:60]
    features = noisy_digits().pixels[:60]
    spoiled = features.copy()
    spoiled[3, 3] = np.nan
    np.savez(folder / "good.npz", x=images, y=labels)
    np.savez(folder / "features.npz", z=features, y=labels)
    np.savez(folder / "nan.npz", z=spoiled, y=labels)
    np.savez(folder / "float.npz", x=features.reshape(-1, 8, 8), y=labels)
    np.savez(folder / "short.npz", x=images, y=labels[:-1])
    np.savez(folder / "one.npz", x=images, y=np.zeros(60, int))
    np.savez(folder / "none.npz", x=images, y=np.full(60, -1))
    np.savez(folder / "both.npz", x=images, z=features, y=labels)
    np.savez(folder / "small.npz", x=images[:, :, :6], y=labels)
    np.savez(folder / "other.npz", x=images, y=labels + 100)
    np.save(folder / "flat.npy", labels)
    np.save(folder / "bare.npy", images)
    return {
        "no-file": (["absent.npz"], "absent.npz: no such file"),
        "nan": (["nan.npz"], "NaN or infinite values in 1 row of 60"),
        "float": (["float.npz"], "values from 0 to 16 are neither 0 to 1 nor 0 to 255"),
        "labels": (["short.npz"], "there are 59 labels for 60 samples"),
        "one-class": (["one.npz"], "the labels name one class (0); at least two"),
        "no-class": (["none.npz"], "the labels name no class; at least two"),
        "both": (["both.npz"], "choose with --images-key or --features-key"),
        "flat": (
            ["flat.npy", "--labels", "flat.npy"],
            "a table of rows and columns, not an array of shape (60,)",
        ),
        "unlabeled": (["bare.npy"], "no labels in it; give them with --labels"),
        "preset": (
            ["good.npz", "--preset", "cifar-lond"],
            "no preset cifar-lond; did you mean cifar10-lond?",
        ),
        "head": (
            ["good.npz", "--preset", "embeddings"],
            "preset embeddings: method.name=sampled-labels takes embeddings",
        ),
        "images": (["features.npz", "--preset", "demo"], "preset demo: this network takes images"),
        "network": (["good.npz", "--set", "training.network=smallconv"], "did you mean small-conv?"),
        "setting": (["good.npz", "--set", "training.epoch=3"], "did you mean training.epochs?"),
        "threshold": (
            ["good.npz", "--set", "ood.threshold=high"],
            "threshold must be auto, conformal or a number",
        ),
        "threshold-inf": (
            ["good.npz", "--set", "ood.threshold=inf"],
            "threshold must be auto, conformal or a number",
        ),
        "device": (["good.npz", "--device", "gpu"], "'gpu' is not one of"),
        "validation": (["good.npz", "--validation", "features.npz"], "good.npz was made from images"),
        "trusted-absent": (["absent.npz", "--validation", "gone.npz"], "gone.npz: no such file or folder"),
        "trusted-shape": (
            ["good.npz", "--validation", "small.npz"],
            "small.npz: its samples have the shape (1, 6, 8)",
        ),
        "trusted-labels": (["good.npz", "--validation", "other.npz"], "not one validation label is a class"),
        "key": (["good.npz", "--images-key", "w"], "no array 'w' in it"),
        "column": (["good.npz", "--label-column", "y"], "--label-column does not apply to a .npz file"),
        "both-ways": (["good.npz", "--resume", "--overwrite"], "give one of them"),
        "out": (["good.npz", "--out", "good.npz"], "there is a file of that name"),
    }


@pytest.mark.parametrize("case", [
    *("no-file", "nan", "float", "labels", "one-class", "no-class", "both", "flat", "unlabeled"),
    *("preset", "head", "images", "network", "setting", "threshold", "threshold-inf", "device"),
    *("validation", "trusted-absent", "trusted-shape", "trusted-labels", "key", "column", "both-ways", "out"),
])  # fmt: skip
def test_bad_input_is_one_line_and_nothing_is_created(refuse: Refuse, tmp_path: Path, case: str) -> None:
    arguments, message = bad_inputs(tmp_path)[case]
    refuse(["train", *arguments], message)


def test_cuda_is_refused_where_there_is_none(
    refuse: Refuse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_digits(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    refuse("train digits.npz --device cuda", "--device cuda: this machine has no CUDA device")


@pytest.mark.slow
def test_divergence_is_one_line_and_keeps_the_checkpoint(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_digits(tmp_path)
    done = cli(
        "train",
        "digits.npz",
        *TINY,
        "--set",
        "training.lr=1e18",
        "--set",
        "training.lr_warmup_epochs=0",
        "--quiet",
    )
    assert done.code == 1
    assert "the loss is no longer a number in epoch 1: ce" in done.err
    assert "there is no checkpoint yet" in done.err
    assert "training.lr=1e+18 usually helps" in done.err
    assert done.err.count("\n") == 1
    assert "its training has not finished" in cli("predict", "runs/digits-train", "new.npz").err

    def diverge(*_: object) -> None:
        raise DivergedError("the loss is no longer a number in epoch 2: inst")

    with monkeypatch.context() as patch:
        patch.setattr(
            "graphclean.cli.progress.StageProgress.epoch", lambda _, m, __: m["epoch"] < 2 or diverge()
        )
        late = cli("train", "digits.npz", *TINY, "--overwrite", "--quiet")
    assert (late.code, late.err.count("\n")) == (1, 1)
    assert "in epoch 2: inst; the last good checkpoint is kept" in late.err
    assert cli("train", "digits.npz", "--resume", "--quiet").code == 0
    assert len(metrics(tmp_path / "runs/digits-train")) == 3


def test_too_small_a_gpu_is_one_line(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.\nmore lines")

    save_digits(tmp_path)
    for place, advice in (
        (
            "graphclean.training.trainer.Trainer._step",
            "training.batch_size, which is 64, as with training.batch_size=32",
        ),
        ("graphclean.graph.cleaner.divide_neighbors", "graph.k, which is 8, as with graph.k=4"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, full)
            done = cli("train", "digits.npz", *TINY, "--overwrite", "--quiet")
        assert done.code == 1
        assert f"lower {advice} and --overwrite" in done.err
        assert done.err.count("\n") == 1


def test_other_errors_are_not_taken_for_a_lack_of_memory() -> None:
    with pytest.raises(RuntimeError, match="odd"), one_line_errors(load_preset("demo"), Path("none")):
        raise RuntimeError("odd")


@pytest.mark.slow
def test_a_full_disk_is_one_line(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    save_digits(tmp_path)
    cli("train", "digits.npz", *TINY, "--out", "whole", "--quiet")
    for place in ("graphclean.training.checkpoint.save_tensors", "safetensors.torch.save_file"):
        with monkeypatch.context() as patch:
            patch.setattr(place, full)
            done = cli("train", "digits.npz", *TINY, "--quiet", "--overwrite")
        assert "can't be written: No space left on device" in done.err
        assert (done.code, done.err.count("\n")) == (2, 1)
    assert cli("train", "digits.npz", *TINY, "--resume", "--quiet").code == 0
    assert results(tmp_path / "runs/digits-train") == results(tmp_path / "whole")
