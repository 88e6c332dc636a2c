"""Cross-entropy on the given labels: the baseline for all methods."""

from dataclasses import dataclass

from torch import Tensor

from ..training.method import Batch, Method, MethodInfo, TrainerContext, join_state, split_state
from .blocks.classification import MixupClassification


@dataclass(frozen=True)
class CrossEntropySettings:
    """Plain cross-entropy by default."""

    mixup_alpha: float = 0.0
    """λ ~ Beta(alpha, alpha) per batch; 0 turns mixup off."""

    def __post_init__(self) -> None:
        if not self.mixup_alpha >= 0:
            raise ValueError("mixup_alpha must be at least 0")


class CrossEntropy(Method):
    """Classify both views of every labeled sample."""

    info = MethodInfo(
        name="cross-entropy",
        title="Cross-entropy on the given labels, optionally with mixup",
        kind="baseline",
        paper="mixup: Zhang et al., mixup: Beyond Empirical Risk Minimization, ICLR 2018",
        cost=2.0,
    )
    Settings = CrossEntropySettings
    detector = "msp"
    settings: CrossEntropySettings

    def setup(self, run: TrainerContext) -> None:
        """Create the network."""
        super().setup(run)
        self.mixup = MixupClassification(self.settings.mixup_alpha)

    def begin_epoch(self, run: TrainerContext) -> tuple[Tensor, ...]:
        """All samples in random order, with labeled ones spread evenly."""
        labeled = run.given >= 0
        batches = run.shuffle(labeled)
        self.mixup.begin_epoch(run, labeled[batches])
        return (batches,)

    def losses(self, run: TrainerContext, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy of both views."""
        mix = self.mixup.mix(run, run.views(batch.inputs), batch.given.clamp(min=0), batch.given >= 0)
        if mix is None:
            return {}
        (out,) = run.forward(mix.images)
        return {"ce": mix.loss(out.logits)}

    def save_state(self) -> dict[str, Tensor]:
        """The network, and the batch shapes of this epoch."""
        return super().save_state() | join_state({"mixup": self.mixup.save_state()})

    def load_state(self, state: dict[str, Tensor]) -> None:
        """Restore the saved state."""
        parts = split_state(state)
        self.mixup.load_state(parts.pop("mixup"))
        super().load_state(join_state(parts))
