"""M-correction: mixup, with labels shifted toward predictions as far as losses suggest they are wrong."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ..errors import check_choice
from ..training.augment import draw_beta
from ..training.method import Batch, Method, MethodInfo, Selected, Selection, TrainerContext
from .blocks.beta_mixture import LossModel, fit_loss_model, no_loss_model
from .blocks.mixmatch import divergence_from_uniform
from .blocks.supervised import classify_weak, given_losses, labeled_mean, labeled_partners

Correction = Literal["m-dyr-h", "m-dyr-s", "md-dyr-sh"]

LEAST_NOISY = 1e-4
"""Minimum probability that a label is wrong, and that it is right."""
UNCORRECTED = 5 / 300
"""Fraction of the epochs in which `md-dyr-sh` mixes by noise but does not correct labels yet."""
COOLING = 89 / 300
"""Fraction of the epochs over which its predictions are then sharpened."""
COLDEST = 0.001


@dataclass(frozen=True)
class MCorrectionSettings:
    """The defaults are the paper's for CIFAR-10, as fractions of its 300 epochs."""

    variant: Correction = "m-dyr-h"
    """`m-dyr-h` corrects with the predicted class, `m-dyr-s` with predicted probabilities. `md-dyr-sh` gives
    more weight to the sample whose label is more probably right, and sharpens its predictions: better on
    CIFAR-100 and at 90 % noise.
    """
    mixup_alpha: float = 32.0
    """λ ~ Beta(alpha, alpha) per batch: close to 1/2, which prevents labels from being memorized."""
    correct_from: float = 0.35
    """Fraction of the epochs after which labels are corrected: 105 of 300."""
    lambda_prior: float = 1.0
    """Weight of the prior of equally frequent classes; without it, predictions may collapse to one class."""

    def __post_init__(self) -> None:
        check_choice("variant", self.variant, Correction)
        if not self.mixup_alpha > 0:
            raise ValueError("mixup_alpha must be above 0")
        if not 0 <= self.correct_from <= 1:
            raise ValueError("correct_from must be from 0 to 1")
        if not self.lambda_prior >= 0:
            raise ValueError("lambda_prior must be at least 0")


class MCorrection(Method):
    """Mixup; then with labels between the given one and the prediction, by a beta mixture of losses."""

    info = MethodInfo(
        name="m-correction",
        title="Loss correction by a beta mixture, with bootstrapping and mixup (M-correction)",
        kind="relabel",
        paper="Arazo et al., Unsupervised Label Noise Modeling and Loss Correction, ICML 2019",
        cost=1.7,
        follows="the paper, with the release's ten EM iterations, its 100 bins of losses, and its equal "
        "weights of both labels in md-dyr-sh; its phases are fractions of the epochs; network, optimizer and "
        "schedule are those of the training settings, where the release drops the learning rate before it "
        "corrects labels",
    )
    Settings = MCorrectionSettings
    detector = "msp"
    settings: MCorrectionSettings
    low: Tensor
    high: Tensor
    table: Tensor
    labels: Tensor

    def setup(self, run: TrainerContext) -> None:
        """Create the network, the mixture, and the corrected labels."""
        super().setup(run)
        self.weights = {"ce": 1.0, "prior": self.settings.lambda_prior}
        for name, value in no_loss_model(run.device)._asdict().items():
            self.register_buffer(name, value)
        self.register_buffer("labels", run.given.clamp(min=0))

    def _start(self, run: TrainerContext, after: float = 0.0) -> int:
        """The first epoch that corrects labels, delayed by a fraction `after` of the epochs."""
        return round((self.settings.correct_from + after) * run.settings.epochs)

    def begin_epoch(self, run: TrainerContext) -> tuple[Tensor, ...]:
        """Fit the mixture to the losses of weak views, and correct labels by it."""
        if run.epoch >= self._start(run):
            logits = run.embed(weak=True).logits
            model = fit_loss_model(given_losses(logits, run.given)[run.given >= 0])
            self.low, self.high, self.table = model
            self.labels = self._correct(run, logits)
        return super().begin_epoch(run)

    def _noisy(self, logits: Tensor, given: Tensor) -> Tensor:
        """The probability that each given label is wrong."""
        model = LossModel(self.low, self.high, self.table)
        return model.noisy(given_losses(logits, given)).clamp(LEAST_NOISY, 1 - LEAST_NOISY)

    def _correct(self, run: TrainerContext, logits: Tensor) -> Tensor:
        """The given label, or the predicted one if it is missing or more probably wrong than right."""
        noisy = self._noisy(logits, run.given) > 0.5
        return torch.where(noisy | (run.given < 0), logits.argmax(1), run.given)

    def losses(self, run: TrainerContext, batch: Batch) -> dict[str, Tensor]:
        """Mixup; then mixup with two labels for each sample, the given one and the prediction."""
        if run.epoch < self._start(run):
            return {"ce": classify_weak(run, batch, self.settings.mixup_alpha)}
        labeled, views = batch.given >= 0, run.weak_view(batch.inputs)
        noisy, guess = self._judge(run, views, batch.given)
        lam = draw_beta(self.settings.mixup_alpha, self.settings.mixup_alpha, run.generator)
        partner = labeled_partners(labeled, run.generator)
        of_image = lam
        if self.settings.variant == "md-dyr-sh":
            of_image = mixing_weight(noisy, noisy[partner]).view(-1, *[1] * (views.ndim - 1))
            if run.epoch < self._start(run, UNCORRECTED):
                noisy = torch.zeros_like(noisy)
            else:
                lam = torch.full_like(lam, 0.5)
        (out,) = run.forward(of_image * views + (1 - of_image) * views[partner])
        logits = out.logits.float()
        own = bootstrap(logits, batch.given, guess, noisy)
        other = bootstrap(logits, batch.given[partner], guess[partner], noisy[partner])
        return {
            "ce": labeled_mean(lam * own + (1 - lam) * other, labeled),
            "prior": divergence_from_uniform(logits.log_softmax(1)),
        }

    @torch.no_grad()
    def _judge(self, run: TrainerContext, views: Tensor, given: Tensor) -> tuple[Tensor, Tensor]:
        """The probability that each label is wrong, and predictions in training mode, as in the release."""
        (out,) = run.forward(views)
        guess = self._guess(run, out.logits.float())
        network = self.networks["main"]
        network.eval()
        (out,) = run.forward(views)
        network.train()
        return self._noisy(out.logits, given), guess

    def _guess(self, run: TrainerContext, logits: Tensor) -> Tensor:
        """Predicted probabilities, the predicted class as one-hot, or sharpened probabilities, by variant."""
        if self.settings.variant == "m-dyr-h":
            return one_hot(logits.argmax(1), run.n_classes).to(logits.dtype)
        if self.settings.variant == "m-dyr-s":
            return logits.softmax(1)
        done = run.epoch - self._start(run, UNCORRECTED)
        past = min(max(done / max(COOLING * run.settings.epochs - 1, 1), 0), 1)
        return (logits / (1 + (COLDEST - 1) * past)).softmax(1)

    def selection(self, run: TrainerContext) -> Selection:
        """Every labeled sample, with its corrected label."""
        return Selected(self.labels, run.given >= 0)

    def conclude(self, run: TrainerContext, z: Tensor, logits: Tensor) -> Selection:  # noqa: ARG002
        """The same with the final predictions."""
        return Selected(self._correct(run, logits), run.given >= 0)


def mixing_weight(noisy: Tensor, partner: Tensor) -> Tensor:
    """Each sample's weight in the mixture with its partner: larger if its label is more probably right."""
    return (1 - noisy) / (2 - noisy - partner)


def bootstrap(logits: Tensor, given: Tensor, guess: Tensor, noisy: Tensor) -> Tensor:
    """Cross-entropy with weight 1 − `noisy` on the given label, and `noisy` on the prediction."""
    return (1 - noisy) * given_losses(logits, given) - noisy * (guess * logits.log_softmax(1)).sum(1)
