"""Mixup cross-entropy on the selected samples of a batch, with few distinct shapes for compiled code."""

from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from ...training.augment import draw_beta, mixup
from ...training.losses import mixup_cross_entropy
from ...training.method import TrainerContext

BUCKETS = 8
"""If compiled, the selected samples of a step are padded to a multiple of 1 / `BUCKETS` of the batch."""
RECOMPILE_THRESHOLD = 2_000_000
"""Number of images that compiling another size must save in a run: a GPU's throughput in its 20 s."""


MixedViews: TypeAlias = Literal["both", "weak"]
"""The views that are classified."""


class Mix(NamedTuple):
    """Mixed images and what their loss needs."""

    images: Tensor
    targets: Tensor
    partner_targets: Tensor
    lam: Tensor
    weight: Tensor

    def loss(self, logits: Tensor) -> Tensor:
        """Cross-entropy of the mixed images."""
        return mixup_cross_entropy(logits, self.targets, self.partner_targets, self.lam, self.weight)


class MixupClassification:
    """Mix both views of each step's selected samples, or the weak ones alone; λ ~ Beta(alpha, alpha), no
    mixing if alpha is 0.
    """

    def __init__(self, alpha: float, views: MixedViews = "both") -> None:
        self.alpha = alpha
        self.copies = 2 if views == "both" else 1
        """Number of views of a sample."""
        self.sizes: list[int] = []
        """Number of samples classified in each step of the epoch, including padding."""
        self._compiled: list[int] = []

    @property
    def empty_steps(self) -> int:
        """Number of steps of the epoch without a selected sample."""
        return self.sizes.count(0)

    def begin_epoch(self, run: TrainerContext, selected: Tensor) -> None:
        """Choose the sizes of all steps from the selection by batch (steps, size), with one device sync."""
        counts = selected.sum(1).tolist()
        self.sizes = self._pad(run, counts) if run.compiled and any(counts) else counts

    def _pad(self, run: TrainerContext, counts: list[int]) -> list[int]:
        sizes = self._compiled or [run.batch_size]
        part = -(-run.batch_size // BUCKETS)
        enough = min(run.batch_size, -(-max(counts) // part) * part)
        size = min(size for size in sizes if size >= enough)
        steps = (run.settings.epochs - run.epoch) * len(counts)
        if 2 * (size - enough) * steps >= RECOMPILE_THRESHOLD:
            size = enough
            sizes = [*sizes, size]
        self._compiled = sizes
        return [size if count else 0 for count in counts]

    def mix(self, run: TrainerContext, views: Tensor, targets: Tensor, selected: Tensor) -> Mix | None:
        """Mix the views of the selected samples; None for a step without any.

        Padding repeats samples with weight 0, since blank images would distort the batch statistics.
        """
        size = self.sizes[run.step]
        if not size:
            return None
        first = selected.to(torch.uint8).argsort(descending=True, stable=True)
        count = selected.sum()
        place = torch.arange(size, device=run.device)
        chosen = first[place % count]
        n = self.copies * size
        weight = (place < count).float().repeat(self.copies)
        images = views[torch.cat([chosen + view * len(targets) for view in range(self.copies)])]
        labels = targets[chosen].repeat(self.copies)
        if self.alpha <= 0:
            lam, partner = torch.ones((), device=run.device), torch.arange(n, device=run.device)
        else:
            lam = draw_beta(self.alpha, self.alpha, run.generator)
            partner = torch.randperm(n, generator=run.generator, device=run.device)
        mixed = mixup(images, labels, lam, partner)
        return Mix(mixed.images, mixed.targets, mixed.partner_targets, lam, weight)

    def save_state(self) -> dict[str, Tensor]:
        """The sizes of this epoch, and those already compiled."""
        return {"sizes": torch.tensor(self.sizes), "compiled": torch.tensor(self._compiled)}

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore the saved state."""
        self.sizes = [int(size) for size in state["sizes"]]
        self._compiled = [int(size) for size in state["compiled"]]
