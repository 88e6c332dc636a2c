"""A start without labels: the network learns to tell samples apart before anything asks what they are."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from .losses import contrastive_losses
from .method import Batch, TrainerContext

TEMPERATURE = 0.3
"""That of Eq. 5 in the paper; its loss is InfoNCE, the one of SimCLR."""


class SelfSupervisedStart:
    """Epochs of Eq. 5 on the weak and strong views of all samples: the trunk and the projector learn by it.

    It has the part of a method that the trainer needs for a step, and no label has a part in it.
    """

    weights: Mapping[str, float] = {"inst": 1.0}

    def __init__(self, networks: Sequence[str]) -> None:
        self.networks = tuple(networks)
        """Of the method, each trained by itself."""

    def begin_epoch(self, run: TrainerContext) -> tuple[Tensor, ...]:
        """A random order of everything, in which labeled and unlabeled samples are alike."""
        return (run.shuffle(torch.ones_like(run.given, dtype=torch.bool)),)

    def losses(self, run: TrainerContext, batch: Batch) -> dict[str, Tensor]:
        """Eq. 5, of all networks."""
        views = run.views(batch.inputs, smallest=run.settings.self_supervised_crop)
        none = torch.zeros_like(batch.index)
        total = torch.zeros((), device=run.device)
        for name in self.networks:
            (out,) = run.forward(views, network=name)
            weak, strong = out.z.chunk(2)
            found = contrastive_losses(weak, strong, none, none, tau_inst=TEMPERATURE, positives="paper")
            total = total + found.inst
        return {"inst": total}

    def after_step(self, run: TrainerContext, *batches: Batch) -> None:
        """Nothing is kept of a sample."""
