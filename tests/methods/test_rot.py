"""Rot and Rot+: their losses by hand, the head that their detectors get, and what they refuse."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from graphclean.cleaning.inputs import encode_classes
from graphclean.config import Config
from graphclean.errors import InputError
from graphclean.methods.rot import Rot, RotPlus, RotPlusSettings
from graphclean.training.fit import fit, prepare
from graphclean.training.method import Batch
from tests.methods.test_conditions import SHORT, given, make
from tests.training.test_trainer import digits

pytestmark = pytest.mark.usefixtures("one_thread")


def config(**training: Any) -> Config:
    return Config(training=dataclasses.replace(SHORT, **training))


def test_the_losses_of_rot_plus_by_hand() -> None:
    """All rotations in one pass, so that norms see them together; the class of upright images alone."""
    labels = given(8)
    labels[2] = -1
    method = RotPlus()
    made = make(method, labels, settings=dataclasses.replace(SHORT, crop_padding=0))
    images = digits(8)[0]
    found = method.losses(made, Batch(torch.arange(8), images, labels))
    x = (images.float() - 127.5) / 64
    out = method.networks["main"](torch.cat([torch.rot90(x, turns, (2, 3)) for turns in range(4)]))
    rows = labels >= 0
    torch.testing.assert_close(found["ce"], cross_entropy(out.logits[:8][rows], labels[rows]))
    told = method.heads["transformations"](out.features)
    turns = torch.tensor([turn for turn in range(4) for _ in range(8)])
    torch.testing.assert_close(found["transformations"], cross_entropy(told, turns))


def test_labels_have_no_part_in_rot() -> None:
    weights = []
    for labels in (given(), given().flip(0)):
        method = Rot()
        make(method, labels).train()
        weights.append(method.networks["main"].state_dict())
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_rot_learns_to_tell_transformations() -> None:
    method = Rot()
    losses: list[float] = []
    settings = dataclasses.replace(SHORT, epochs=12, batch_size=32)
    made = make(method, torch.zeros(200, dtype=torch.long), settings=settings)
    made.train(on_epoch=lambda report, _: losses.append(report.loss))
    assert losses[0] == pytest.approx(np.log(72), abs=0.6)
    assert losses[-1] < losses[0] - 0.5


@pytest.mark.slow
@pytest.mark.parametrize("method", [Rot, RotPlus])
def test_its_detector_has_the_head_that_was_trained(method: Any) -> None:
    images, labels, _ = digits(60)
    made = method()
    result = fit(images.numpy(), encode_classes(labels.numpy(), 60), config(epochs=1), made)
    detector: Any = result.model.detector
    assert detector.name == made.info.name
    assert torch.equal(detector.weight, made.heads["transformations"].weight)
    assert torch.equal(detector.bias, made.heads["transformations"].bias)
    found = result.model.score(images.numpy())
    np.testing.assert_allclose(found.ood_score, result.ood_score, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("method", [Rot, RotPlus])
def test_embeddings_and_mirrored_predictions_are_refused(method: Any) -> None:
    images, labels, _ = digits(60)
    given_labels = encode_classes(labels.numpy(), 60)
    name = method.info.name
    head = config(network="embedding-head")
    with pytest.raises(InputError, match=f"method.name={name} takes images, these are embeddings"):
        prepare(images.flatten(1).float().numpy(), given_labels, head, method())
    mirrored = config(flip_tta=True, horizontal_flip=True)
    with pytest.raises(InputError, match=f"training.flip_tta=true: {name} tells turned"):
        prepare(images.numpy(), given_labels, mirrored, method())


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="lambda_rotation"):
        RotPlusSettings(lambda_rotation=-1.0)
