"""The mentor that is fitted to trusted samples, and how training comes by these."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import expit, log_softmax

from graphclean.bench.cells import get_cell, make_method
from graphclean.cleaning.inputs import encode_labels
from graphclean.config import apply_settings, load_preset
from graphclean.data.digits import noisy_digits
from graphclean.errors import InputError
from graphclean.methods import build_method
from graphclean.methods.mentornet_dd import MentorNetDD, MentorNetDDSettings, fit_mentor
from graphclean.training import Trainer
from graphclean.training.batches import ResidentInputs
from graphclean.training.fit import prepare
from tests.builders import Cli
from tests.methods.test_conditions import SHORT, given, make
from tests.runs.tiny import N, results, save_digits
from tests.training.test_fit import blobs
from tests.training.test_trainer import digits

pytestmark = pytest.mark.usefixtures("one_thread")

K = 4
ASKED = ["--preset", "demo", "--set", "training.epochs=3", "--set", "method.name=mentornet-dd"]


def trusted(n: int = 50, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits, right labels, and a transition matrix."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, K, n)
    logits = rng.normal(0, 1, (n, K)) + 2 * np.eye(K)[labels]
    return logits.astype(np.float32), labels, 0.6 * np.eye(K) + 0.4 * rng.dirichlet(np.ones(K), K)


@pytest.mark.parametrize("level", [0.0, 1.5])
def test_the_mentor_is_the_most_probable_logistic_regression(level: float) -> None:
    """Its likelihood, weighted by label and with a prior of deviation 1 on the slope, has no gradient."""
    logits, labels, transition = trusted()
    intercept, slope = fit_mentor(
        torch.tensor(logits), torch.tensor(labels), torch.tensor(transition), torch.tensor(level)
    )
    over = -log_softmax(logits.astype(np.float64), axis=1) - level
    error = transition[labels] * (np.eye(K)[labels] - expit(float(intercept) + float(slope) * over))
    assert error.sum() == pytest.approx(0, abs=1e-2)
    assert (error * over).sum() == pytest.approx(float(slope), abs=1e-2)
    assert slope < 0, "a larger loss is less probably right"


def test_without_noise_every_label_is_right() -> None:
    logits, labels, _ = trusted()
    intercept, slope = fit_mentor(torch.tensor(logits), torch.tensor(labels), torch.eye(K), torch.tensor(0.0))
    assert float(torch.sigmoid(intercept + slope * 5)) > 0.99


def test_after_the_burn_in_weights_are_the_mentors_probabilities() -> None:
    class Watched(MentorNetDD):
        def mentor(self, run: Any, over: torch.Tensor) -> torch.Tensor:
            weights = super().mentor(run, over)
            expected = expit(float(self.intercept) + float(self.slope) * over.double().numpy())
            np.testing.assert_allclose(weights, expected, atol=1e-5)
            seen.append(run.epoch)
            return weights

    seen: list[int] = []
    settings = dataclasses.replace(SHORT, epochs=6)
    made = make(Watched(MentorNetDDSettings(noise_rate=0.4)), given(40), settings=settings)
    notes = made.train().notes
    assert sorted(set(seen)) == [2, 3, 4, 5], "of six epochs the first two are the burn-in"
    assert float(made.method.slope) != 0
    assert notes == [
        "the mentor was fitted to 60 trusted samples, and accuracy on them is no independent score"
    ]


@pytest.mark.parametrize(("epoch", "dropout"), [(0, 0.5), (17, 0.5), (18, 0.05), (94, 0.05), (95, 0.9)])
def test_most_samples_are_left_out_at_the_end(epoch: int, dropout: float) -> None:
    made = make(MentorNetDD(), given(), settings=dataclasses.replace(SHORT, epochs=100))
    made.epoch = epoch
    method = made.method
    assert isinstance(method, MentorNetDD)
    assert method.dropout(made) == dropout


def test_without_trusted_samples_it_is_refused() -> None:
    pixels, labels, _ = digits(40)
    with pytest.raises(InputError, match=r"method\.name=mentornet-dd .* takes them as validation$"):
        Trainer(ResidentInputs(pixels), labels, 8, SHORT, MentorNetDD())
    with pytest.raises(InputError, match="mentornet-dd takes samples with trusted labels, which no cell has"):
        make_method(get_cell("cifar10/sym50"), settings=["method.name=mentornet-dd"])


def test_the_command_line_says_what_is_missing(cli: Cli, tmp_path: Path) -> None:
    save_digits(tmp_path)
    done = cli("train", "digits.npz", *ASKED)
    assert done.code == 2
    assert "takes them as --validation" in done.err.strip().splitlines()[-1]
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_it_learns_from_validation_samples_and_no_other_method_does(cli: Cli, tmp_path: Path) -> None:
    save_digits(tmp_path)
    with np.load(tmp_path / "new.npz") as data:
        np.savez(tmp_path / "few.npz", images=data["images"][:30], labels=data["labels"][:30])
    for out, name in (("all", "new.npz"), ("few", "few.npz")):
        assert cli("train", "digits.npz", *ASKED, "--validation", name, "--out", out, "--quiet").code == 0
    found = [results(tmp_path / out) for out in ("all", "few")]
    assert found[0]["model.safetensors"] != found[1]["model.safetensors"]
    known = int((noisy_digits().truth[N : N + 30] < 8).sum())
    assert any(f"fitted to {known} trusted" in warning for warning in found[1]["summary"]["warnings"])


def test_trusted_features_are_standardized_as_those_of_training_are() -> None:
    features, labels, _ = blobs()
    config = apply_settings(load_preset("embeddings"), ["method.name=mentornet-dd"])
    method = build_method(config)
    codes = encode_labels(labels).codes
    known = codes >= 0
    made = prepare(
        features, encode_labels(labels), config, method, trusted=(features[known][:9], codes[known][:9])
    )
    assert made.trainer.trusted is not None
    assert made.standardizer is not None
    (seen,) = made.trainer.trusted.inputs.stream(torch.arange(9).view(1, -1))
    torch.testing.assert_close(seen, made.standardizer.rescale(features[known][:9]))
    other = apply_settings(load_preset("embeddings"), ["method.name=elr"])
    plain = prepare(
        features, encode_labels(labels), other, build_method(other), trusted=(features[:9], codes[:9])
    )
    assert plain.trainer.trusted is None, "lent to a method that needs them alone"


def test_a_run_goes_on_with_the_same_trusted_samples(tmp_path: Path) -> None:
    made = make(MentorNetDD(), given(), checkpoint=tmp_path)
    made.train()
    again = make(MentorNetDD(), given(), checkpoint=tmp_path)
    assert again.trusted is not None
    again.trusted.labels[0] += 1
    with pytest.raises(InputError, match="trusted samples"):
        again.train(resume=True)


@pytest.mark.parametrize("bad", [{"final_dropout": 1.0}, {"noise_rate": 1.0}, {"burn_in": 2.0}])
def test_settings_out_of_range_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(bad))} must be"):
        MentorNetDDSettings(**bad)  # type: ignore[arg-type]
