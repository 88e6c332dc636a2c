"""Labels sampled from the verdicts on good features, instead of cleaning with the network's own graph."""

import torch
from torch import Tensor

from ..errors import InputError
from ..graph import Cleaned
from ..training.method import MethodInfo, Prior, Selected, Selection, TrainerContext, join_state, split_state
from .ngc import NGC

POSTERIOR_TOLERANCE = 1e-3
"""Tolerance for posteriors recomputed from the same data, due to the order of sums."""


class SampledLabels(NGC):
    """In every epoch, sample each sample's class, or OOD, from the posterior of the verdicts.

    Over the epochs, the losses see each sample under every possible label, as often as it is probable. A head
    cleaned by its own z would instead adapt to the labels that it was first given. Features without a class
    signal have no verdicts; then the graph of z decides as in NGC.
    """

    info = MethodInfo(
        name="sampled-labels",
        title="Labels sampled from the verdicts on the given features",
        kind="contrastive",
        cost=3.0,
        needs=("verdicts",),
        follows="ours: NGC's losses, with labels from the verdicts instead of the graph of z",
    )

    def setup(self, run: TrainerContext) -> None:
        """Set up NGC, with the posterior of the verdicts."""
        super().setup(run)
        self.prior = run.prior

    def decide(self, run: TrainerContext) -> Cleaned:
        """The labels sampled for this epoch; they depend only on the seed and the epoch."""
        if self.prior is None:
            return super().decide(run)
        posterior = self.prior.posterior
        generator = torch.Generator(posterior.device).manual_seed(1_000_003 * run.settings.seed + run.epoch)
        sampled = torch.multinomial(posterior, 1, generator=generator).squeeze(1)
        selected = sampled < run.n_classes
        labels = torch.where(selected, sampled, posterior[:, :-1].argmax(1))
        return Cleaned(selected, labels, posterior[:, :-1], selected, torch.zeros_like(labels))

    def conclude(self, run: TrainerContext, z: Tensor, logits: Tensor) -> Selection:
        """The verdicts' own selection instead of the last sampled labels."""
        if self.prior is None:
            return super().conclude(run, z, logits)
        return Selected(self.prior.posterior[:, :-1].argmax(1), self.prior.selected)

    def save_state(self) -> dict[str, Tensor]:
        """NGC's state, with the posterior."""
        prior = {"posterior": self.prior.posterior} if self.prior is not None else {}
        return super().save_state() | join_state({"prior": prior})

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore the saved state; refuse that of other verdicts."""
        super().load_state(state)
        saved, now = split_state(state).get("prior", {}).get("posterior"), self.prior
        if saved is None or now is None:
            return
        saved = saved.to(now.posterior.device)
        if saved.shape != now.posterior.shape or not torch.allclose(
            saved, now.posterior, atol=POSTERIOR_TOLERANCE
        ):
            raise InputError(
                "the checkpoint was made with other verdicts on the features; resume with the same cleaning "
                "settings, or start again"
            )
        self.prior = Prior(saved, now.selected)
