"""Labels sampled from verdicts: as often as they are probable, and the same again after a pause."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from graphclean.config import TrainingSettings
from graphclean.errors import InputError
from graphclean.methods.ngc import NgcSettings
from graphclean.methods.sampled_labels import SampledLabels
from graphclean.training import InterruptedRun, Trainer
from graphclean.training.batches import ResidentInputs
from graphclean.training.method import Prior, TrainerContext
from tests.builders import assert_same_tensors

HEAD = TrainingSettings(network="embedding-head", epochs=3, batch_size=16, lr=0.05, feature_noise_std=0.1)


def posterior(n: int = 60) -> torch.Tensor:
    return torch.rand(n, 4, generator=torch.Generator().manual_seed(1)).softmax(1)


def make(
    posterior: torch.Tensor | None,
    method: SampledLabels | None = None,
    *,
    n: int = 60,
    seed: int = 0,
    checkpoint: Path | None = None,
) -> Trainer:
    """On features that say nothing, all under one label."""
    inputs = torch.randn(n, 5, generator=torch.Generator().manual_seed(0))
    prior = None
    if posterior is not None:
        prior = Prior(posterior, posterior[:, -1] < 0.5)
    method = method if method is not None else SampledLabels(NgcSettings(warmup_epochs=0))
    settings = dataclasses.replace(HEAD, seed=seed)
    classes = posterior.shape[1] - 1 if posterior is not None else 3
    labels = torch.zeros(n, dtype=torch.long)
    return Trainer(
        ResidentInputs(inputs), labels, classes, settings, method, prior=prior, checkpoint=checkpoint
    )


def sample(made: Trainer, epoch: int = 0) -> Any:
    made.epoch = epoch
    assert isinstance(made.method, SampledLabels)
    return made.method.decide(made)


def test_a_certain_label_is_always_sampled_and_a_certain_ood_sample_never() -> None:
    made = make(torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), n=2)
    for epoch in range(20):
        cleaned = sample(made, epoch)
        assert cleaned.selected.tolist() == [True, False]
        assert cleaned.labels[0] == 1


def test_labels_come_as_often_as_they_are_probable() -> None:
    believed, n = torch.tensor([0.5, 0.2, 0.3]), 20_000
    made = make(believed.repeat(n, 1), n=n, seed=3)
    first, second = sample(made, 0), sample(made, 1)
    counts = [float((first.selected & (first.labels == k)).float().mean()) for k in (0, 1)]
    assert counts == pytest.approx([0.5, 0.2], abs=0.015)
    assert float((~first.selected).float().mean()) == pytest.approx(0.3, abs=0.015)
    both = float((first.selected & second.selected).float().mean())
    assert both == pytest.approx(0.49, abs=0.015), "two epochs are sampled independently"
    other = sample(make(believed.repeat(n, 1), n=n, seed=4))
    assert not torch.equal(other.labels, first.labels)


def test_a_saved_state_continues_with_the_same_samples() -> None:
    first, second = make(posterior()), make(posterior() + 1e-6)
    first.method.begin_epoch(first)
    second.method.load_state(first.method.save_state())
    assert_same_tensors(sample(first, 1), sample(second, 1))


def test_a_state_is_saved_again_as_it_was_found() -> None:
    """A run may be stopped twice in one epoch."""
    first = make(posterior())
    for epoch in range(2):
        first.epoch = epoch
        first.method.begin_epoch(first)
        again = make(posterior())
        again.method.load_state(first.method.save_state())
        torch.testing.assert_close(again.method.save_state(), first.method.save_state(), atol=0, rtol=0)


@pytest.mark.parametrize("other", [posterior().flip(0), posterior(59)])
def test_the_state_of_other_verdicts_is_refused(other: torch.Tensor) -> None:
    first = make(posterior())
    first.method.begin_epoch(first)
    with pytest.raises(InputError, match="other verdicts on the features"):
        make(other).method.load_state(first.method.save_state())


def test_a_run_resumed_with_other_verdicts_is_refused_as_what_it_is(tmp_path: Path) -> None:
    """The checkpoint is whole, and must not be called damaged."""
    make(posterior(), checkpoint=tmp_path).train()
    with pytest.raises(InputError, match=r"^the checkpoint was made with other verdicts on the features"):
        make(posterior().flip(0), checkpoint=tmp_path).train(resume=True)


class Stopping(SampledLabels):
    """Asks to stop after the sixth step, in the second epoch."""

    def after_step(self, run: TrainerContext, *batches: Any) -> None:
        super().after_step(run, *batches)
        if (run.epoch, run.step) == (1, 1):
            assert isinstance(run, Trainer)
            run.request_stop()


def test_a_run_stopped_within_an_epoch_ends_as_if_nothing_had_been(tmp_path: Path) -> None:
    whole = make(posterior(), checkpoint=tmp_path / "whole").train()
    with pytest.raises(InterruptedRun):
        make(posterior(), Stopping(NgcSettings(warmup_epochs=0)), checkpoint=tmp_path / "parts").train()
    assert [path.name for path in (tmp_path / "parts").iterdir()] == ["epoch-00001-step-000002"]
    resumed = make(posterior(), checkpoint=tmp_path / "parts").train(resume=True)
    for name, value in whole.network.state_dict().items():
        assert torch.equal(value, resumed.network.state_dict()[name]), name
    assert_same_tensors(whole.selection, resumed.selection)
    with pytest.raises(InputError, match="verdicts on features was True, is False"):
        make(None, checkpoint=tmp_path / "parts").train(resume=True)
