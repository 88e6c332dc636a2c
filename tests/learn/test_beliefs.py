"""Labels drawn from beliefs: as often as they are likely, and the same again after a pause."""

import dataclasses
from pathlib import Path

import pytest
import torch

from graphclean.data.loader import ResidentInputs
from graphclean.errors import InputError
from graphclean.graph import GraphSettings
from graphclean.learn import InterruptedRun, LearnSettings, Trainer
from graphclean.learn.beliefs import DrawnLabels

NOTHING = torch.zeros(0)
HEAD = LearnSettings(network="embedding-head", epochs=3, warmup=0, batch=32, lr=0.05, noise=0.1)


def beliefs(n: int = 60) -> torch.Tensor:
    return torch.rand(n, 4, generator=torch.Generator().manual_seed(1)).softmax(1)


def test_a_sure_belief_is_always_drawn_and_a_sure_stranger_never() -> None:
    drawn = DrawnLabels(torch.tensor([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), seed=0)
    for _ in range(20):
        cleaned = drawn.step(NOTHING, NOTHING)
        assert cleaned.selected.tolist() == [True, False]
        assert cleaned.labels[0] == 1


def test_draws_come_as_often_as_they_are_believed() -> None:
    belief = torch.tensor([0.5, 0.2, 0.3])
    drawn = DrawnLabels(belief.repeat(20_000, 1), seed=3)
    first, second = drawn.step(NOTHING, NOTHING), drawn.step(NOTHING, NOTHING)
    counts = [float((first.selected & (first.labels == k)).float().mean()) for k in (0, 1)]
    assert counts == pytest.approx([0.5, 0.2], abs=0.015)
    assert float((~first.selected).float().mean()) == pytest.approx(0.3, abs=0.015)
    both = float((first.selected & second.selected).float().mean())
    assert both == pytest.approx(0.49, abs=0.015), "two epochs draw independently"
    other = DrawnLabels(belief.repeat(20_000, 1), seed=4).step(NOTHING, NOTHING)
    assert not torch.equal(other.labels, first.labels)


def test_a_saved_state_goes_on_with_the_same_draws() -> None:
    first, second = DrawnLabels(beliefs(), seed=0), DrawnLabels(beliefs() + 1e-6, seed=0)
    first.step(NOTHING, NOTHING)
    second.load_state_dict(first.state_dict())
    assert torch.equal(first.step(NOTHING, NOTHING).labels, second.step(NOTHING, NOTHING).labels)


def test_a_state_is_saved_again_as_it_was_found() -> None:
    """Before the first draw and after it: a run may be stopped twice in one epoch."""
    first = DrawnLabels(beliefs(), seed=0)
    for _ in range(2):
        again = DrawnLabels(beliefs(), seed=0)
        again.load_state_dict(first.state_dict())
        torch.testing.assert_close(again.state_dict(), first.state_dict())
        first.step(NOTHING, NOTHING)


@pytest.mark.parametrize("other", [beliefs().flip(0), beliefs(59)])
def test_the_state_of_other_beliefs_is_refused(other: torch.Tensor) -> None:
    with pytest.raises(InputError, match="other verdicts on the features"):
        DrawnLabels(other, seed=0).load_state_dict(DrawnLabels(beliefs(), seed=0).state_dict())


def test_a_run_stopped_within_an_epoch_ends_as_if_nothing_had_been(tmp_path: Path) -> None:
    inputs = torch.randn(60, 5, generator=torch.Generator().manual_seed(0))

    def make(folder: Path) -> Trainer:
        settings = dataclasses.replace(HEAD, batch=16)
        labels = torch.zeros(60, dtype=torch.long)
        return Trainer(
            ResidentInputs(inputs), labels, 3, settings, GraphSettings(), beliefs=beliefs(), checkpoint=folder
        )

    whole = make(tmp_path / "whole").train()
    first, steps = make(tmp_path / "parts"), 0
    step = first._step

    def count(*arguments: object) -> torch.Tensor:
        nonlocal steps
        steps += 1
        if steps == 6:
            first.request_stop()
        return step(*arguments)  # type: ignore[arg-type]

    first._step = count  # type: ignore[method-assign]
    with pytest.raises(InterruptedRun):
        first.train()
    resumed = make(tmp_path / "parts").train(resume=True)
    for name, value in whole.network.state_dict().items():
        assert torch.equal(value, resumed.network.state_dict()[name]), name
    other = Trainer(
        ResidentInputs(inputs), torch.zeros(60, dtype=torch.long), 3, dataclasses.replace(HEAD, batch=16),
        GraphSettings(), checkpoint=tmp_path / "parts",
    )  # fmt: skip
    with pytest.raises(InputError, match="labels drawn was True, is False"):
        other.train(resume=True)
