"""mixup: cross-entropy of images and labels mixed in pairs, which are harder to memorize."""

from dataclasses import dataclass

from torch import Tensor

from ..training.method import Batch, Method, MethodInfo, TrainerContext
from .blocks.supervised import classify_weak


@dataclass(frozen=True)
class MixupSettings:
    """The default is the release's."""

    mixup_alpha: float = 1.0
    """λ ~ Beta(alpha, alpha) per batch; larger values mix more, and 0 is plain cross-entropy of one view.

    Arazo et al. (ICML 2019) found 32 best under label noise.
    """

    def __post_init__(self) -> None:
        if not self.mixup_alpha >= 0:
            raise ValueError("mixup_alpha must be at least 0")


class Mixup(Method):
    """Classify one weak view of every labeled sample, mixed with that of another."""

    info = MethodInfo(
        name="mixup",
        title="Cross-entropy with mixup",
        kind="baseline",
        paper="Zhang et al., mixup: Beyond Empirical Risk Minimization, ICLR 2018",
        cost=1.0,
        follows="the paper; network, optimizer and schedule are those of the training settings",
    )
    Settings = MixupSettings
    detector = "msp"
    settings: MixupSettings

    def losses(self, run: TrainerContext, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy of the mixed views."""
        return {"ce": classify_weak(run, batch, self.settings.mixup_alpha)}
