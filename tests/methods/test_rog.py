"""RoG: its classifier against the one by hand, what weighs its layers, and what it leaves out."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import logsumexp

from graphclean.methods.mixup import Mixup, MixupSettings
from graphclean.methods.rog import RoG, RogSettings, weigh_layers
from graphclean.training import Trainer
from graphclean.training.inference import describe_network, rebuild_network
from graphclean.training.method import Batch
from graphclean.training.predictors import LayerHeads
from graphclean.training.views import scale
from tests.methods.test_conditions import SHORT, given, make
from tests.training.test_trainer import digits

pytestmark = pytest.mark.usefixtures("one_thread")


def trained(settings: RogSettings, n: int = 60) -> tuple[RoG, Trainer]:
    method = RoG(settings)
    made = make(method, given(n))
    made.train()
    return method, made


def test_without_held_out_samples_the_network_is_that_of_cross_entropy() -> None:
    method, _ = trained(RogSettings(held_out=0))
    plain = Mixup(MixupSettings(mixup_alpha=0.0))
    make(plain, given(60)).train()
    ours, theirs = method.networks["main"].state_dict(), plain.networks["main"].state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_it_predicts_the_mean_of_the_discriminants_of_its_layers() -> None:
    """By hand, with all samples kept and held-out ones weighing the layers."""
    method, made = trained(RogSettings(keep=1.0, held_out=0.3), 100)
    network, predictor = method.networks["main"].eval(), method.predictor()
    assert isinstance(predictor, LayerHeads)
    pixels, _, _ = digits(100)
    learned = (made.given >= 0) & ~method.held_out
    y = made.given[learned].numpy()
    said = []
    with torch.no_grad():
        layers = network.forward_layers(scale(pixels))
        out = predictor(scale(pixels))
    for layer in layers:
        x = layer.double().numpy()
        means = np.stack([x[learned][y == c].mean(0) for c in range(8)])
        off = x[learned] - means[y]
        precision = np.linalg.pinv(off.T @ off / len(off), hermitian=True)
        scores = x @ precision @ means.T - np.einsum("ij,jk,ik->i", means, precision, means) / 2
        said.append(scores - logsumexp(scores, axis=1, keepdims=True))
    shares = predictor.shares.numpy()
    assert len(shares) == 3
    assert shares.sum() == pytest.approx(1)
    assert shares.std() > 0.01
    expected = logsumexp(np.stack(said) + np.log(shares)[:, None, None], axis=0)
    np.testing.assert_allclose(out.logits, expected, atol=1e-3)
    torch.testing.assert_close(out.z, torch.nn.functional.normalize(layers[-1], dim=1))


def test_the_layer_that_explains_the_labels_weighs_more() -> None:
    labels = torch.arange(200) % 4
    right = torch.nn.functional.one_hot(labels, 4).double() * 0.8 + 0.05
    useless = torch.full((200, 4), 0.25, dtype=torch.float64)
    wrong = torch.nn.functional.one_hot((labels + 1) % 4, 4).double()
    found = weigh_layers(torch.stack([useless, right, wrong]), labels, torch.Generator().manual_seed(0))
    assert found.sum() == pytest.approx(1)
    assert found[1] > 0.8


def test_held_out_samples_are_learned_from_by_nothing() -> None:
    method = RoG(RogSettings(held_out=0.5))
    labels = given(60)
    made = make(method, labels)
    assert 15 < method.held_out.sum() < 45
    images, index = digits(60)[0], torch.arange(60)
    state = made.generator.get_state()
    first = method.losses(made, Batch(index, images, labels))["ce"]
    other = labels.where(~method.held_out, (labels + 1) % 8)
    made.generator.set_state(state)
    method.networks["main"].load_state_dict(method.networks["main"].state_dict())
    assert torch.equal(first, method.losses(made, Batch(index, images, other))["ce"])
    assert not torch.equal(first, method.losses(made, Batch(index, images, (labels + 1) % 8))["ce"])


def test_most_of_each_class_is_selected_in_the_end() -> None:
    method, made = trained(RogSettings(held_out=0), 100)
    counts = torch.bincount(made.given, minlength=8)
    kept = torch.bincount(made.given[method.kept], minlength=8)
    assert kept.tolist() == [int(0.7 * count) for count in counts.tolist()]


def test_a_saved_model_is_built_again() -> None:
    method, made = trained(RogSettings())
    predictor = method.predictor().eval()
    description = describe_network(made.settings, predictor)
    again = rebuild_network(description, predictor.state_dict(), 8, (1, 8, 8))
    images = scale(digits(20)[0])
    with torch.no_grad():
        for ours, theirs in zip(again(images), predictor(images), strict=True):
            assert torch.equal(ours, theirs)


def test_with_flip_tta_an_image_and_its_mirror_image_are_judged_alike() -> None:
    """In the fit of the layers' classifiers as in prediction."""
    method = RoG(RogSettings(held_out=0))
    settings = dataclasses.replace(SHORT, flip_tta=True, horizontal_flip=True)
    trained = make(method, given(60), settings=settings).train()
    pixels = scale(digits(60)[0])
    predictor = method.predictor().eval()
    with torch.no_grad():
        out, mirrored = predictor(pixels), predictor(pixels.flip(-1))
    torch.testing.assert_close(out.logits, mirrored.logits, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(out.logits, trained.logits, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("bad", [{"keep": 0.0}, {"keep": 1.1}, {"layers": 0}, {"held_out": 1.0}])
def test_settings_out_of_range_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        RogSettings(**bad)
