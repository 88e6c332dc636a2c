"""New inputs go through the network as the training set does."""

import dataclasses

import pytest
import torch

from graphclean.errors import InputError
from graphclean.training import Trainer
from graphclean.training.batches import ResidentInputs
from graphclean.training.inference import describe_network, embed_new, rebuild_network
from graphclean.training.networks import Ensemble, build_network
from tests.training.test_trainer import TINY, digits, ngc


@pytest.mark.parametrize("network", ["small-conv", "preact-resnet18", "embedding-head"])
def test_the_same_numbers_as_in_training_and_from_saved_weights(network: str) -> None:
    pixels, labels, _ = digits(40)
    inputs = pixels.flatten(1).float() / 16 if network == "embedding-head" else pixels
    settings = dataclasses.replace(TINY, network=network, epochs=1, trunk="release")
    trainer = Trainer(ResidentInputs(inputs), labels, 8, settings, ngc())
    trained = trainer.train()
    logits, z, _ = embed_new(trained.network, inputs)
    torch.testing.assert_close(z, trained.z)
    torch.testing.assert_close(logits, trained.logits)
    again = rebuild_network(
        describe_network(settings, trained.network), trained.network.state_dict(), 8, tuple(inputs.shape[1:])
    )
    assert torch.equal(embed_new(again, inputs).logits, logits)


@pytest.mark.slow
@pytest.mark.parametrize("network", ["small-conv", "preact-resnet18"])
def test_flip_tta_is_the_mean_of_an_image_and_its_mirror_image(network: str) -> None:
    """After training alone: until then images are seen once, as without it."""
    pixels, labels, _ = digits(40)
    settings = dataclasses.replace(TINY, network=network, epochs=2, horizontal_flip=True)
    plain = Trainer(ResidentInputs(pixels), labels, 8, settings, ngc()).train()
    settings = dataclasses.replace(settings, flip_tta=True)
    flip_tta = Trainer(ResidentInputs(pixels), labels, 8, settings, ngc()).train()
    for ours, theirs in zip(flip_tta.network.parameters(), plain.network.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    looks = [embed_new(plain.network, images)[:2] for images in (pixels, pixels.flip(-1))]
    logits, z = (sum(parts) / 2 for parts in zip(*looks, strict=True))
    assert not torch.allclose(logits, plain.logits, atol=1e-3)
    z = z / z.norm(dim=1, keepdim=True)
    torch.testing.assert_close(flip_tta.z, z)
    torch.testing.assert_close(flip_tta.logits, logits)
    again = rebuild_network(
        describe_network(settings, flip_tta.network),
        flip_tta.network.state_dict(),
        8,
        tuple(pixels.shape[1:]),
    )
    for found, expected in zip(embed_new(again, pixels)[:2], (logits, z), strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("flip_tta", [False, True])
def test_an_ensemble_is_the_mean_of_its_members_also_from_saved_weights(flip_tta: bool) -> None:
    pixels, _, _ = digits(30)
    settings = dataclasses.replace(TINY, flip_tta=flip_tta)
    members = [build_network("small-conv", 8, input_shape=(1, 8, 8)) for _ in range(2)]
    for member in members:
        member.flip_tta = flip_tta
    ensemble = Ensemble(members)
    looks, found = [embed_new(member, pixels) for member in members], embed_new(ensemble, pixels)
    torch.testing.assert_close(found.logits, (looks[0].logits + looks[1].logits) / 2)
    similarity = [look.z @ look.z.T for look in looks]
    torch.testing.assert_close(found.z @ found.z.T, (similarity[0] + similarity[1]) / 2)
    again = rebuild_network(describe_network(settings, ensemble), ensemble.state_dict(), 8, (1, 8, 8))
    assert torch.equal(embed_new(again, pixels).logits, found.logits)
    assert torch.equal(embed_new(again, pixels).z, found.z)


def test_flip_tta_needs_images_that_training_mirrors() -> None:
    pixels, labels, _ = digits(40)
    flip_tta = dataclasses.replace(TINY, flip_tta=True)
    for inputs, settings in (
        (pixels, dataclasses.replace(flip_tta, horizontal_flip=False)),
        (
            pixels.flatten(1).float(),
            dataclasses.replace(flip_tta, horizontal_flip=True, network="embedding-head"),
        ),
    ):
        with pytest.raises(InputError, match=r"needs training\.horizontal_flip"):
            Trainer(ResidentInputs(inputs), labels, 8, settings, ngc())
