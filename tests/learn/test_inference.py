"""New inputs go through the network as the training set does."""

import dataclasses

import pytest
import torch

from graphclean.data.loader import ResidentInputs
from graphclean.learn import LearnSettings, Trainer
from graphclean.learn.inference import describe_network, embed_new, rebuild_network

from .test_engine import GRAPH, TINY, digits


@pytest.mark.parametrize("network", ["small-conv", "preact-resnet18", "embedding-head"])
def test_the_same_numbers_as_in_training_and_from_saved_weights(network: str) -> None:
    pixels, labels, _ = digits(40)
    inputs = pixels.flatten(1).float() / 16 if network == "embedding-head" else pixels
    settings = dataclasses.replace(TINY, network=network, epochs=1, final_norm=False)
    trainer = Trainer(ResidentInputs(inputs), labels, 8, settings, GRAPH)
    trained = trainer.train()
    z, logits = embed_new(trained.network, inputs)
    torch.testing.assert_close(z, trained.z)
    torch.testing.assert_close(logits, trained.logits)
    again = rebuild_network(
        describe_network(settings), trained.network.state_dict(), 8, tuple(inputs.shape[1:])
    )
    assert torch.equal(embed_new(again, inputs)[1], logits)


def test_progress_counts_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphclean.learn.inference.BATCH", 40)
    pixels, labels, _ = digits(100)
    trainer = Trainer(ResidentInputs(pixels), labels, 8, LearnSettings(network="small-conv"), GRAPH)
    told: list[tuple[int, int]] = []
    embed_new(trainer.network, pixels, lambda *step: told.append(step))
    assert told == [(40, 100), (80, 100), (100, 100)]
