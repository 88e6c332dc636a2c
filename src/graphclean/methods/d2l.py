"""D2L: once the dimensionality of features grows, predictions gradually replace the given labels."""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..training.method import Batch, Method, MethodInfo, TrainerContext
from .blocks.dimensionality import local_dimensionality
from .blocks.supervised import given_losses, labeled_mean

LID_NEIGHBORS, LID_BATCH, LID_BATCHES = 20, 128, 10
"""The paper's number of neighbors, size of the sets in which they are found, and number of these sets."""
TURNING_DEVIATIONS = 2
"""Standard deviations above the mean of the last epochs that define a turning point."""


@dataclass(frozen=True)
class D2LSettings:
    """The defaults are the paper's for CIFAR-10."""

    warmup_fraction: float = 0.33
    """Fraction of the epochs without a search for the turning point: 40 of 120."""
    window: int = 5
    """Number of previous epochs that an epoch is compared with, after that fraction."""

    def __post_init__(self) -> None:
        if not 0 <= self.warmup_fraction <= 1:
            raise ValueError("warmup_fraction must be from 0 to 1")
        if self.window < 1:
            raise ValueError("window must be at least 1")


class D2L(Method):
    """Cross-entropy; after the turning point, targets lie between the given label and the predicted class."""

    info = MethodInfo(
        name="d2l",
        title="Dimensionality-Driven Learning (D2L)",
        kind="loss",
        paper="Ma et al., Dimensionality-Driven Learning with Noisy Labels, ICML 2018",
        cost=1.0,
        follows="the paper: cross-entropy, not the symmetric one of later releases, and at the turning point "
        "weights are reset to those of the previous epoch, where the release reads weights that it has just "
        "written; momentum is kept; network, optimizer and schedule are those of the training settings, "
        "without drops of the learning rate, which look like turning points",
    )
    Settings = D2LSettings
    detector = "msp"
    settings: D2LSettings
    lids: Tensor
    turned: Tensor
    alpha: Tensor

    def setup(self, run: TrainerContext) -> None:
        """Create the network, its copy from the previous epoch, and the dimensionality before every epoch."""
        super().setup(run)
        self.before = copy.deepcopy(self.networks["main"]).requires_grad_(False)
        self.register_buffer("lids", torch.zeros(run.settings.epochs))
        self.register_buffer("turned", torch.tensor(-1))
        self.register_buffer("alpha", torch.ones((), device=run.device))

    def begin_epoch(self, run: TrainerContext) -> tuple[Tensor, ...]:
        """Measure; at the turning point go back an epoch; then weight given labels by the growth since."""
        self.lids[run.epoch] = self._measure(run)
        network, now = self.networks["main"], self.lids[: run.epoch + 1]
        if int(self.turned) < 0 and self._turns(run, now):
            self.turned.fill_(run.epoch)
            network.load_state_dict(self.before.state_dict())
        else:
            self.before.load_state_dict(network.state_dict())
        if int(self.turned) >= 0:
            self.alpha.fill_(given_weight(now, run.epoch / run.settings.epochs))
        return super().begin_epoch(run)

    def _measure(self, run: TrainerContext) -> float:
        """Mean dimensionality of random samples' features; that of the previous epoch if it is undefined.

        The samples depend only on the seed and the epoch.
        """
        n, count = len(run.given), min(LID_BATCH, len(run.given))
        generator = torch.Generator().manual_seed(1_000_003 * run.settings.seed + run.epoch)
        order = torch.randperm(n, generator=generator)[: n // count * count][: LID_BATCHES * count]
        features = run.embed(features=True, rows=order.to(run.device)).features
        assert features is not None
        k = min(LID_NEIGHBORS, count - 1)
        last = float(self.lids[run.epoch - 1]) if run.epoch else 0.0
        if k < 2:
            return last
        found = float(local_dimensionality(features.view(-1, count, features.shape[1]), k).mean())
        return found if 0 < found < torch.inf else last

    def _turns(self, run: TrainerContext, lids: Tensor) -> bool:
        """Whether the last value is far above those of the window before it."""
        s = self.settings
        if run.epoch < max(round(s.warmup_fraction * run.settings.epochs), 1) + s.window:
            return False
        window = lids[-s.window - 1 : -1]
        return bool(lids[-1] - window.mean() > TURNING_DEVIATIONS * window.std(correction=0))

    def losses(self, run: TrainerContext, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy with weight `alpha` on the given label and the rest on the predicted class."""
        (out,) = run.forward(run.weak_view(batch.inputs))
        given = given_losses(out.logits, batch.given)
        predicted = given_losses(out.logits, out.logits.argmax(1))
        each = self.alpha * given + (1 - self.alpha) * predicted
        return {"ce": labeled_mean(each, batch.given >= 0)}

    def metrics(self, run: TrainerContext) -> dict[str, Any]:
        """The dimensionality before the epoch, and the weight of the given labels in it."""
        return {"lid": float(self.lids[run.epoch]), "alpha": float(self.alpha)}

    def notes(self, run: TrainerContext) -> list[str]:  # noqa: ARG002
        """Report if no turning point was found."""
        if int(self.turned) >= 0:
            return []
        return [
            "the dimensionality of features had no turning point: training used the given labels to the end"
        ]


def given_weight(lids: Tensor, progress: float) -> float:
    """exp(−progress · last / minimum of the values before it), given the dimensionality at each epoch."""
    least = lids[:-1].min() if len(lids) > 1 else lids[-1]
    return float((-progress * lids[-1] / least.clamp(min=1e-6)).exp())
