"""The two views of a batch that training compares, made on the batch's device."""

import torch
from torch import Generator, Tensor

from ..config import TrainingSettings
from ..distributed.group import ALONE, Group
from ..errors import InputError
from .augment import (
    apply_augmix,
    apply_crops,
    apply_resized_crops,
    draw_augmix,
    draw_crops,
    draw_resized_crops,
)
from .autoaugment import Parts, apply_autoaugment, draw_autoaugment
from .compile import Compiled
from .networks import PIXEL_CENTER, PIXEL_SCALE


class Views:
    """Weak views of a batch, then strong ones, as one tensor of twice the length, scaled for the network."""

    def __init__(
        self,
        settings: TrainingSettings,
        generator: Generator,
        *,
        compiled: bool = False,
        group: Group = ALONE,
    ) -> None:
        self.settings = settings
        self.generator = generator
        self.group = group
        self._make = Compiled(make_views) if compiled else make_views

    def __call__(self, batch: Tensor, *, strong: bool = True, smallest: float = 1) -> Tensor:
        """Crop, flip and strongly augment images (uint8); add noise to features (float).

        Without `strong`, the second half are weak views too. With `smallest` below 1, a view is a resized
        crop of at least that fraction of the image; otherwise `training.crop_scale` says whether.
        """
        s = self.settings
        if batch.is_floating_point():
            return self._add_noise(batch.repeat(2, 1))
        smallest = smallest if smallest < 1 else s.crop_scale
        crops = self._draw_crops(2 * len(batch), smallest)
        draws: Tensor | Parts | None = None
        if strong and s.strong_augmentation == "autoaugment":
            draws = draw_autoaugment(len(batch), self.generator)
        elif strong and s.strong_augmentation != "off":
            draws = draw_augmix(len(batch), self.generator)
        last = s.strong_augmentation == "augmix-last-chain"
        group, n = self.group, len(batch)
        if not group.several or draws is None:
            views: Tensor = self._make(batch, crops, draws, s.crop_padding, smallest, last, s.crop_size)
            return views
        # Random numbers are drawn for all rows; strong views, which cost time, are made of this part only.
        own = group.part(n)
        crops = torch.cat([crops[:n][own], crops[n:][own]]) if crops is not None else None
        draws = Parts(*(each[:, own] for each in draws)) if isinstance(draws, Parts) else draws[own]
        part = self._make(batch[own], crops, draws, s.crop_padding, smallest, last, s.crop_size)
        return torch.cat([group.gather(each, n) for each in part.chunk(2)])

    def weak(self, batch: Tensor) -> Tensor:
        """One weak view of each input."""
        s = self.settings
        if batch.is_floating_point():
            return self._add_noise(batch)
        crops = self._draw_crops(len(batch), s.crop_scale)
        return scale(crop(batch, crops, s.crop_padding, s.crop_scale, s.crop_size))

    def _draw_crops(self, n: int, smallest: float) -> Tensor | None:
        """The random numbers of `n` crops; None if images are neither cropped nor flipped."""
        s = self.settings
        if smallest < 1:
            return draw_resized_crops(n, self.generator, flip=s.horizontal_flip)
        if s.crop_padding > 0 or s.crop_size > 0 or s.horizontal_flip:
            return draw_crops(n, self.generator, flip=s.horizontal_flip)
        return None

    def skip_weak(self, batch: int, shape: tuple[int, ...]) -> None:
        """Draw the random numbers of `weak` for a batch that another process views."""
        if len(shape) == 1:
            torch.empty(batch, *shape, device=self.generator.device).normal_(generator=self.generator)
        else:
            self._draw_crops(batch, self.settings.crop_scale)

    def _add_noise(self, features: Tensor) -> Tensor:
        return features + self.settings.feature_noise_std * torch.empty_like(features).normal_(
            generator=self.generator
        )


def make_views(
    images: Tensor,
    crops: Tensor | None,
    draws: Tensor | Parts | None,
    pad: int,
    smallest: float,
    last_chain: bool,
    size: int = 0,
) -> Tensor:
    """Both views, with AugMix or AutoAugment, from given random numbers, so that it can be compiled."""
    both = crop(images.repeat(2, 1, 1, 1), crops, pad, smallest, size)
    if draws is None:
        return scale(both)
    weak, strong = both.chunk(2)
    if isinstance(draws, Parts):
        return scale(torch.cat([weak, apply_autoaugment(strong, draws)]))
    strong = apply_augmix(strong, draws, variant="last-chain" if last_chain else "full", center=PIXEL_CENTER)
    return scale(torch.cat([weak.float(), strong]))


def crop(images: Tensor, crops: Tensor | None, pad: int, smallest: float, size: int) -> Tensor:
    """Weak views from given random numbers: resized crops if `smallest` is below 1, else shifted ones."""
    if crops is None:
        return images
    if smallest < 1:
        return apply_resized_crops(images, crops, smallest=smallest, size=size)
    return apply_crops(images, crops, pad=pad, size=size)


def scale(inputs: Tensor) -> Tensor:
    """Scale images from 0..255 to about −2..2, in the device's preferred layout; features are unchanged."""
    if inputs.ndim == 2:
        return inputs
    scaled = (inputs.float() - PIXEL_CENTER) / PIXEL_SCALE
    return scaled.contiguous(memory_format=torch.channels_last) if scaled.is_cuda else scaled


def check_views(shape: tuple[int, ...], settings: TrainingSettings) -> None:
    """Refuse images too small for the configured views, and flip TTA unless training flips images."""
    if settings.flip_tta and (len(shape) != 3 or not settings.horizontal_flip):
        raise InputError(
            "training.flip_tta needs training.horizontal_flip, so that training flips images too"
        )
    if len(shape) != 3:
        return
    size = "×".join(map(str, shape[1:]))
    if settings.crop_padding >= min(shape[1:]):
        raise InputError(
            f"training.crop_padding = {settings.crop_padding}: a crop could miss an image of {size} pixels"
        )
    if settings.crop_size > min(shape[1:]):
        raise InputError(f"training.crop_size = {settings.crop_size} is more than an image of {size} pixels")
    strong = settings.strong_augmentation
    if strong != "off" and min(shape[1:]) < 3:
        raise InputError(f"training.strong_augmentation = {strong} needs 3×3 pixels or more, not {size}")
