"""Self-supervised pretraining: the network learns to distinguish samples before any label is used."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from .losses import contrastive_losses
from .method import Batch, TrainerContext

TEMPERATURE = 0.3
"""Temperature of Eq. 5 in the paper, whose loss is InfoNCE, as in SimCLR."""


class SelfSupervisedStart:
    """Epochs of Eq. 5 on weak and strong views of all samples, which train the trunk and the projector.

    Implements the part of the `Method` interface that a training step needs. No label is used.
    """

    weights: Mapping[str, float] = {"inst": 1.0}

    def __init__(self, networks: Sequence[str]) -> None:
        self.networks = tuple(networks)
        """Names of the method's networks, each trained on its own."""

    def begin_epoch(self, run: TrainerContext) -> tuple[Tensor, ...]:
        """A random order of all samples, labeled or not."""
        return (run.shuffle(torch.ones_like(run.given, dtype=torch.bool)),)

    def losses(self, run: TrainerContext, batch: Batch) -> dict[str, Tensor]:
        """Eq. 5, summed over the networks."""
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
        """No per-sample state to update."""
