"""UNICON: equally many labels of every class, those closest to the predictions, and contrastive learning."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ..training.losses import contrastive_losses
from ..training.method import Batch, MethodInfo, TrainerContext
from .blocks.semi_supervised import SEMI_SUPERVISED_FOLLOWS, SemiSupervised, SemiSupervisedSettings
from .blocks.small_loss import smallest_of_class

CERTAIN = 0.5
"""Divergence below which a label counts as certain."""
MOST_UNLABELED, UNLABELED_GRADES = 2.0, 8
"""Maximum number of unlabeled samples per step, as a multiple of the labeled ones, and number of size grades.
"""


@dataclass(frozen=True)
class UniconSettings(SemiSupervisedSettings):
    """The defaults are the paper's for CIFAR-10."""

    lambda_u: float = 30.0
    """Weight of the unlabeled loss, which ramps up from 0 over 16/300 of the epochs after the warm-up."""
    lambda_contrast: float = 0.025
    """Weight of the contrastive loss of the strong views of unlabeled samples."""
    tau: float = 0.05
    """Temperature of the contrastive loss."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.lambda_contrast >= 0:
            raise ValueError("lambda_contrast must be at least 0")
        if not self.tau > 0:
            raise ValueError("tau must be above 0")


class Unicon(SemiSupervised):
    """Two networks judge jointly; labels are guessed from weak views, and strong views are trained on."""

    info = MethodInfo(
        name="unicon",
        title="Uniform selection and contrastive learning (UNICON)",
        kind="semi-supervised",
        paper="Karim et al., UNICON: Combating Label Noise Through Uniform Selection and Contrastive "
        "Learning, CVPR 2022",
        networks=2,
        cost=9.3,
        follows="the paper and its release, except that the release's second cutoff, which no divergence "
        "reaches, is left out; the contrastive loss is on z, as in all methods; at most twice as many "
        "unlabeled as labeled samples per step; strong views are those of the training settings; "
        f"{SEMI_SUPERVISED_FOLLOWS}",
    )
    Settings = UniconSettings
    settings: UniconSettings
    judges_each_part = True

    def setup(self, run: TrainerContext) -> None:
        """Create the networks and the decision, and set the weight of the contrastive loss."""
        super().setup(run)
        self.weights = {**self.weights, "contrast": self.settings.lambda_contrast}

    def judge(self, run: TrainerContext, logits: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Accept the labels that diverge least from the mean prediction, equally many of every class."""
        labeled = run.given >= 0
        p = torch.stack(logits).softmax(2).mean(0)
        divergence = jensen_shannon(p, run.given)
        count = labeled.sum().clamp(min=1)
        cut = (divergence * labeled).sum() / count
        share = ((divergence < cut) & labeled).sum() / count
        quota = (share * count / run.n_classes).round().clamp(min=1)
        taken = smallest_of_class(divergence, run.given, run.n_classes, quota)
        clean = torch.where(divergence < CERTAIN, 1, 1 - divergence) * labeled
        if run.decided is not None:
            clean = clean.where(~labeled | (run.decided < 0), 1.0)
        return clean.expand(len(self.members), -1).clone(), taken

    def split(self, run: TrainerContext) -> Tensor:
        """The accepted labels, for both networks."""
        return self.selected & (run.given >= 0)

    def unlabeled_size(self, labeled: Tensor, size: int) -> int:
        """As many as make half of all samples in an epoch; rounded, so that there are few distinct sizes."""
        share = float(labeled.double().mean().clamp(min=1 / (2 * MOST_UNLABELED)))
        grade = max(1, size // UNLABELED_GRADES)
        return max(1, round(size / (2 * share) / grade)) * grade

    def views(self, run: TrainerContext, batch: Batch) -> tuple[Tensor, Tensor]:
        """Two weak views of each sample, and two strong ones."""
        pairs = [run.views(batch.inputs).chunk(2) for _ in range(2)]
        weak, strong = (torch.cat(views) for views in zip(*pairs, strict=True))
        return weak, strong

    def mixmatch(
        self, run: TrainerContext, x: Batch, of_x: tuple[Tensor, Tensor], of_u: tuple[Tensor, Tensor]
    ) -> dict[str, Tensor]:
        """MixMatch's losses, and the contrastive loss between both strong views of the unlabeled samples."""
        found = super().mixmatch(run, x, of_x, of_u)
        (out,) = run.forward(of_u[1], network=self.members[run.part])
        first, second = out.z.chunk(2)
        none = torch.zeros(len(first), dtype=torch.long, device=run.device)
        forth, back = (
            contrastive_losses(*pair, none, none, tau_inst=self.settings.tau, positives="paper").inst
            for pair in ((first, second), (second, first))
        )
        return found | {"contrast": (forth + back) / 2}


def jensen_shannon(p: Tensor, given: Tensor) -> Tensor:
    """Jensen-Shannon divergence of predictions (N, K) from the given labels: 0 if equal, ln 2 if disjoint.

    For a one-hot label y it depends on p_y alone. Unlabeled samples count as class 0.
    """
    own = p.gather(1, given.clamp(min=0).unsqueeze(1)).squeeze(1)
    mean = (1 + own) / 2
    return (torch.xlogy(own, own) - torch.xlogy(1 + own, mean) + (1 - own) * math.log(2)) / 2
