"""Two views of each sample as in SimCLR, and a contrastive loss with all views as anchors."""

import torch
from torch import Tensor

from ...errors import InputError
from ...training.augment import apply_resized_crops, draw_resized_crops
from ...training.color_jitter import apply_jitter, draw_jitter
from ...training.losses import contrastive_losses
from ...training.method import TrainerContext
from ...training.views import scale


def simclr_views(run: TrainerContext, inputs: Tensor, smallest: float) -> Tensor:
    """Two views of each input, all first views before all second ones, in one tensor scaled for the network.

    Images are cropped to at least the fraction `smallest` of their area, with color jitter; features get
    noise.
    """
    if inputs.is_floating_point():
        return run.views(inputs, strong=False)
    if min(inputs.shape[2:]) < 3:
        size = "×".join(map(str, inputs.shape[2:]))
        raise InputError(f"the views of this method need images of 3×3 pixels or more, not {size}")
    draws = draw_resized_crops(2 * len(inputs), run.generator, flip=run.settings.horizontal_flip)
    views = inputs.repeat(2, 1, 1, 1)
    parts = apply_resized_crops(views, draws, smallest=smallest, size=run.settings.crop_size)
    return scale(apply_jitter(parts, draw_jitter(len(parts), run.generator)))


def supervised_contrast(first: Tensor, second: Tensor, given: Tensor, temperature: float) -> Tensor:
    """SupCon (Khosla et al., NeurIPS 2020) of two views' unit embeddings (B, d), with all 2B as anchors.

    The only positive of a sample with a label below 0 is its own other view; without any labels, this is
    NT-Xent.
    """
    both = [
        contrastive_losses(a, b, given, given >= 0, tau_subgraph=temperature, positives="release").subgraph
        for a, b in ((first, second), (second, first))
    ]
    return torch.stack(both).mean()
