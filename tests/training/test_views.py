"""Weak and strong views, and when a method takes which."""

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from graphclean.config.settings import StrongAugmentation
from graphclean.errors import InputError
from graphclean.training.augment import (
    apply_augmix,
    apply_crops,
    apply_resized_crops,
    draw_augmix,
    draw_crops,
    draw_resized_crops,
)
from graphclean.training.autoaugment import apply_autoaugment, draw_autoaugment
from graphclean.training.inference import describe_network, embed_new, rebuild_network
from graphclean.training.networks import PIXEL_CENTER
from graphclean.training.views import Views, scale
from tests.training.test_augment import pictures, seeded
from tests.training.test_trainer import TINY, ngc, trainer

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("kind", ["augmix", "augmix-last-chain", "autoaugment", "off"])
def test_the_strong_half_is_a_crop_and_its_augmentation(kind: StrongAugmentation) -> None:
    images = pictures("smooth", 20, 3, 16, 16)
    settings = dataclasses.replace(TINY, strong_augmentation=kind, crop_padding=2)
    weak, strong = Views(settings, seeded())(images).chunk(2)
    generator = seeded()
    crops = draw_crops(40, generator, flip=False)
    first, second = apply_crops(images.repeat(2, 1, 1, 1), crops, pad=2).chunk(2)
    assert torch.equal(weak, scale(first))
    expected: Tensor = second
    if kind == "autoaugment":
        expected = apply_autoaugment(second, draw_autoaugment(20, generator))
    elif kind != "off":
        draws = draw_augmix(20, generator)
        variant = "last-chain" if kind == "augmix-last-chain" else "full"
        expected = apply_augmix(second, draws, variant=variant, center=PIXEL_CENTER)  # type: ignore[arg-type]
    assert torch.equal(strong, scale(expected))
    both = Views(settings, seeded())(images, strong=False)
    assert torch.equal(both, scale(torch.cat([first, second])))


def test_resized_crops_take_the_place_of_shifted_ones() -> None:
    images = pictures("smooth", 20, 3, 16, 16)
    settings = dataclasses.replace(TINY, strong_augmentation="autoaugment", horizontal_flip=True)
    weak, strong = Views(settings, seeded())(images, smallest=0.3).chunk(2)
    generator = seeded()
    crops = draw_resized_crops(40, generator)
    first, second = apply_resized_crops(images.repeat(2, 1, 1, 1), crops, smallest=0.3).chunk(2)
    assert torch.equal(weak, scale(first))
    assert torch.equal(strong, scale(apply_autoaugment(second, draw_autoaugment(20, generator))))


def test_a_crop_scale_makes_them_the_usual_ones() -> None:
    images = pictures("smooth", 20, 3, 16, 16)
    settings = dataclasses.replace(TINY, strong_augmentation="off", crop_scale=0.3)
    views = Views(settings, seeded())
    both, alone, smaller = views(images), views.weak(images), views(images, smallest=0.1)
    generator = seeded()
    twice = images.repeat(2, 1, 1, 1)
    for found, of, smallest in ((both, twice, 0.3), (alone, images, 0.3), (smaller, twice, 0.1)):
        crops = draw_resized_crops(len(of), generator, flip=False)
        assert torch.equal(found, scale(apply_resized_crops(of, crops, smallest=smallest)))


@pytest.mark.parametrize(("area", "size"), [(0.4, 0), (0.4, 12), (1, 12)])
def test_settings_choose_size_and_kind_of_crops(area: float, size: int) -> None:
    images = pictures("smooth", 20, 3, 16, 16)
    options = {"crop_scale": area, "crop_size": size, "crop_padding": 0, "strong_augmentation": "off"}
    settings = dataclasses.replace(TINY, horizontal_flip=False, **options)  # type: ignore[arg-type]
    generator, twice = seeded(), images.repeat(2, 1, 1, 1)
    if area < 1:
        crops = draw_resized_crops(40, generator, flip=False)
        expected = apply_resized_crops(twice, crops, smallest=area, size=size)
    else:
        expected = apply_crops(twice, draw_crops(40, generator, flip=False), pad=0, size=size)
    views = Views(settings, seeded())(images)
    assert views.shape[2:] == (size or 16, size or 16)
    assert torch.equal(views, scale(expected))
    one = Views(settings, seeded()).weak(images)
    assert one.shape == (20, 3, *views.shape[2:])
    started = Views(settings, seeded())(images, smallest=0.2)
    crops = draw_resized_crops(40, seeded(), flip=False)
    assert torch.equal(started, scale(apply_resized_crops(twice, crops, smallest=0.2, size=size)))


def test_crops_larger_than_the_images_are_refused() -> None:
    with pytest.raises(InputError, match=r"training\.crop_size = 9 is more than an image of 8×8 pixels"):
        trainer(dataclasses.replace(TINY, crop_size=9))


@pytest.mark.slow
def test_training_on_crops_predicts_from_the_center() -> None:
    """In training, in a saved description of the network, and for new images."""
    settings = dataclasses.replace(TINY, epochs=1, crop_size=6, crop_padding=0, crop_scale=0.5)
    made = trainer(settings, ngc(warmup_epochs=0))
    trained = made.train()
    images = made.inputs.inputs  # type: ignore[attr-defined]
    torch.testing.assert_close(embed_new(trained.network, images).z, trained.z)
    torch.testing.assert_close(embed_new(trained.network, images[:, :, 1:7, 1:7]).z, trained.z)
    described = describe_network(settings, trained.network)
    assert described["options"] == {"crop_size": 6}
    again = rebuild_network(described, trained.network.state_dict(), made.n_classes, made.inputs.shape)
    assert torch.equal(embed_new(again, images).z, embed_new(trained.network, images).z)


@pytest.mark.parametrize(("kind", "warmup"), [("augmix", True), ("autoaugment", False)])
def test_warm_up_takes_no_autoaugment(
    kind: StrongAugmentation, warmup: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its labels are the noisy ones; what is judged is never augmented."""
    asked: list[tuple[int, bool]] = []
    made = trainer(dataclasses.replace(TINY, strong_augmentation=kind, epochs=2), ngc(warmup_epochs=1))
    plain = made._views.__class__.__call__

    def watch(self: Views, batch: Tensor, *, strong: bool = True, smallest: float = 1) -> Tensor:
        assert smallest == 1
        asked.append((made.epoch, strong))
        return plain(self, batch, strong=strong)

    monkeypatch.setattr(Views, "__call__", watch)
    judged: list[Tensor] = []
    embed = made._embed

    def watch(*args: Any, **options: Any) -> Any:
        judged.append(args[1].inputs)
        return embed(*args, **options)

    monkeypatch.setattr(made, "_embed", watch)
    made.train()
    steps = len(asked) // 2
    assert asked == [(0, warmup)] * steps + [(1, True)] * steps
    assert all(inputs is made.inputs.inputs for inputs in judged)  # type: ignore[attr-defined]
