"""Decoupling: the disagreement of two networks decides when to update, the labels decide how."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..training.method import Batch, Method, MethodInfo, TrainerContext
from .blocks.pair import WEIGHTS, new_pair, see

LEAST_DIVISOR = 0.1
"""Minimum fraction of a batch that losses are divided by, so that few samples don't weigh as much as many."""


@dataclass(frozen=True)
class DecouplingSettings:
    """The default is ours; the paper has none for images of many classes."""

    warmup_epochs: int = 1
    """Epochs of training on all samples: untrained networks disagree on everything."""

    def __post_init__(self) -> None:
        if self.warmup_epochs < 0:
            raise ValueError("warmup_epochs must be at least 0")


class Decoupling(Method):
    """Two networks that are trained only on samples on which their predictions differ."""

    info = MethodInfo(
        name="decoupling",
        title="Decoupling (update by disagreement)",
        kind="selection",
        paper="Malach & Shalev-Shwartz, Decoupling 'when to update' from 'how to update', NIPS 2017",
        networks=2,
        cost=2.0,
        follows="the release's masks and minimum divisor, a tenth of the batch; both networks see the same "
        "weak view; network, optimizer and schedule are those of the training settings",
    )
    Settings = DecouplingSettings
    detector = "msp"
    settings: DecouplingSettings
    disagreed: Tensor

    def setup(self, run: TrainerContext) -> None:
        """Create two networks, and whether they last disagreed on each sample."""
        self.networks, self.weights = new_pair(run), WEIGHTS
        self.register_buffer("disagreed", torch.zeros(len(run.given), dtype=torch.bool, device=run.device))

    def losses(self, run: TrainerContext, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy of both networks on the samples that they disagree on."""
        pair, labeled = see(run, batch.inputs, batch.given), batch.given >= 0
        self.disagreed[batch.index] = pair.disagree
        learned = labeled if run.epoch < self.settings.warmup_epochs else labeled & pair.disagree
        divisor = torch.maximum(learned.sum(), LEAST_DIVISOR * labeled.sum()).clamp(min=1)
        first, second = ((each * learned).sum() / divisor for each in pair.losses)
        return {"ce": first, "ce_second": second}

    def metrics(self, run: TrainerContext) -> dict[str, Any]:  # noqa: ARG002
        """The fraction of samples on which the networks disagreed."""
        return {"disagreement": float(self.disagreed.float().mean())}
