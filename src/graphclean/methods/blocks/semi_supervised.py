"""Methods that split the samples into labeled and unlabeled ones, and train on both with MixMatch."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from ...config.settings import Auto
from ...training.method import Batch, Method, Selected, Selection, TrainerContext, hold_decided
from ...training.networks import Ensemble
from .mixmatch import cycle_rows, mix_pairs, mixmatch_losses, sharpen
from .supervised import given_losses, labeled_mean

UNLABELED_RAMP = 16 / 300
"""Fraction of the epochs over which the weight of the unlabeled samples ramps up: 16 of 300."""
SEMI_SUPERVISED_FOLLOWS = (
    "warm-up and ramp are fractions of the epochs; both views of half a batch share a forward pass; "
    "network, optimizer and schedule are those of the training settings"
)
"""How all these methods deviate from their papers and releases."""


@dataclass(frozen=True)
class SemiSupervisedSettings:
    """The defaults are DivideMix's for CIFAR-10 with symmetric noise of 50 % or more."""

    warmup_epochs: int | Auto = "auto"
    """Epochs of cross-entropy before the first split; 30 for CIFAR-100.

    `auto`: a tenth of all epochs, but at least one and at most the paper's 10.
    """
    lambda_u: float = 25.0
    """Weight of the unlabeled loss, which ramps up from 0 over 16/300 of the epochs after the warm-up.

    0 for asymmetric noise or low noise rates, 50 at 90 % noise; for CIFAR-100, 25 at low rates and 150
    otherwise.
    """
    temperature: float = 0.5
    """Temperature of guessed labels; below 1 it sharpens them."""
    mixup_alpha: float = 4.0
    """λ ~ Beta(alpha, alpha) per batch, replaced by 1 − λ if that is larger; 0 turns mixup off."""
    confidence_penalty: bool = False
    """Subtract prediction entropy from the warm-up loss: for asymmetric noise, which is fitted too fast."""

    def __post_init__(self) -> None:
        if self.warmup_epochs != "auto" and not self.warmup_epochs >= 0:
            raise ValueError("warmup_epochs must be auto, or at least 0")
        for name in ("lambda_u", "mixup_alpha"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} must be at least 0")
        if not self.temperature > 0:
            raise ValueError("temperature must be above 0")


class SemiSupervised(Method):
    """Networks that are trained one after the other in each epoch, each on a split of its own.

    A subclass judges the labels; everything else, from label guessing to the losses, is implemented here.
    """

    detector = "msp"
    members: ClassVar[tuple[str, ...]] = ("main", "second")
    longest_warmup: ClassVar[int] = 10
    """Warm-up epochs of the paper for CIFAR-10, of 300 or more epochs in all."""
    judges_each_part: ClassVar[bool] = False
    """Whether labels are judged again before the second network is trained."""
    settings: Any
    clean: Tensor
    steps: Tensor
    labels: Tensor
    selected: Tensor

    def setup(self, run: TrainerContext) -> None:
        """Create the networks, each network's probability that a label is right, and the last decision."""
        self.networks = nn.ModuleDict({name: run.new_network() for name in self.members})
        self.weights = {"ce": 1.0, "consistency": self.settings.lambda_u, "prior": 1.0}
        if self.settings.confidence_penalty:
            self.weights |= {"penalty": 1.0}
        self.register_buffer("clean", torch.zeros(len(self.members), len(run.given), device=run.device))
        self.register_buffer("steps", torch.zeros((), device=run.device))
        self.register_buffer("labels", run.given.clamp(min=0))
        self.register_buffer("selected", run.given >= 0)

    def judge(self, run: TrainerContext, logits: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Each network's probability that a label is right (networks, N), and which labels to accept."""
        raise NotImplementedError

    def split(self, run: TrainerContext) -> Tensor:
        """The samples that count as labeled for the network of this part."""
        raise NotImplementedError

    def warmup_end(self, run: TrainerContext) -> int:
        """The first epoch after the warm-up, counted from 0."""
        start = self.phases(run.settings.epochs)[-1]
        if self.settings.warmup_epochs != "auto":
            return start + int(self.settings.warmup_epochs)
        return start + min(self.longest_warmup, max(1, (run.settings.epochs - start) // 10))

    def parts(self, epoch: int) -> int:  # noqa: ARG002
        """One part for each network."""
        return len(self.members)

    def peer(self, run: TrainerContext) -> int:
        """The index of the network whose judgment trains the network of this part: the other one, if any."""
        return len(self.members) - 1 - run.part

    def begin_epoch(self, run: TrainerContext) -> tuple[Tensor, ...]:
        """All samples in warm-up; then the samples that count as labeled, and unlabeled ones."""
        if run.epoch < self.warmup_end(run):
            return (run.shuffle(),)
        if run.part == 0 or self.judges_each_part:
            self.decide(run)
        return self.draw(run, self.split(run))

    def decide(self, run: TrainerContext) -> None:
        """Judge all labels; those not accepted are replaced by the networks' prediction."""
        logits = [run.embed(name).logits for name in self.members]
        self.clean, taken = self.judge(run, logits)
        predicted = torch.stack(logits).softmax(2).mean(0).argmax(1)
        found = Selected(torch.where(taken, run.given.clamp(min=0), predicted), taken)
        decision = hold_decided(found, run.decided, run.n_classes)
        self.labels, self.selected = decision.labels, decision.selected

    def draw(self, run: TrainerContext, labeled: Tensor) -> tuple[Tensor, ...]:
        """Each labeled sample once, with unlabeled ones for each step; all samples if a set is empty."""
        ood = run.decided == run.n_classes if run.decided is not None else torch.zeros_like(labeled)
        sets = [mask.nonzero().squeeze(1) for mask in (labeled, ~labeled & ~ood)]
        x, u = (rows if len(rows) else torch.arange(len(labeled), device=run.device) for rows in sets)
        size = max(1, run.batch_size // 2)
        steps = -(-len(x) // size)
        self.steps.fill_(steps)
        return tuple(
            cycle_rows(rows, (steps, count), run.generator)
            for rows, count in ((x, size), (u, self.unlabeled_size(labeled, size)))
        )

    def unlabeled_size(self, labeled: Tensor, size: int) -> int:  # noqa: ARG002
        """Number of unlabeled samples per step, for `size` labeled ones."""
        return size

    def losses(self, run: TrainerContext, *batches: Batch) -> dict[str, Tensor]:
        """Cross-entropy of one view in warm-up, then MixMatch on a labeled and an unlabeled batch."""
        if len(batches) == 1:
            return self.warm_up(run, batches[0])
        of_x, of_u = (self.views(run, batch) for batch in batches)
        return self.mixmatch(run, batches[0], of_x, of_u)

    def warm_up(self, run: TrainerContext, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy of the given labels, minus the prediction entropy if `confidence_penalty` is set."""
        (out,) = run.forward(run.weak_view(batch.inputs), network=self.members[run.part])
        labeled = batch.given >= 0
        found = {"ce": labeled_mean(given_losses(out.logits, batch.given), labeled)}
        if self.settings.confidence_penalty:
            log_p = out.logits.float().log_softmax(1)
            found["penalty"] = labeled_mean((log_p.exp() * log_p).sum(1), labeled)
        return found

    def views(self, run: TrainerContext, batch: Batch) -> tuple[Tensor, Tensor]:
        """Two views of each sample to guess labels from, and two to train on; here they are the same."""
        both = run.views(batch.inputs, strong=False)
        return both, both

    def mixmatch(
        self, run: TrainerContext, x: Batch, of_x: tuple[Tensor, Tensor], of_u: tuple[Tensor, Tensor]
    ) -> dict[str, Tensor]:
        """Guess labels, mix all samples in pairs, and classify the mixtures."""
        guessed = self.guess(run, x, of_x[0], of_u[0])
        targets = torch.cat([part.repeat(2, 1) for part in guessed])
        images, targets = mix_pairs(
            torch.cat([of_x[1], of_u[1]]), targets, self.settings.mixup_alpha, run.generator
        )
        (out,) = run.forward(images, network=self.members[run.part])
        losses = mixmatch_losses(out.logits, targets, 2 * len(x.index))
        past = run.epoch - self.warmup_end(run) + run.step / self.steps
        ramp = (past / (UNLABELED_RAMP * run.settings.epochs)).clamp(max=1)
        return losses | {"consistency": ramp * losses["consistency"]}

    @torch.no_grad()
    def guess(self, run: TrainerContext, x: Batch, of_x: Tensor, of_u: Tensor) -> tuple[Tensor, Tensor]:
        """Sharpened soft labels of both batches, from two views of each sample.

        For labeled samples, the given label and the network's own prediction, weighted by the probability
        that the label is right; for unlabeled samples, the mean prediction of all networks. The network being
        trained guesses in training mode.
        """
        own = self.members[run.part]
        for name, network in self.networks.items():
            if network.training != (name == own):
                network.train(name == own)
        p, q = (mean_of_views(out.logits) for out in run.forward(of_x, of_u, network=own))
        for name in self.members:
            if name != own:
                (out,) = run.forward(of_u, network=name)
                q = (q + mean_of_views(out.logits)) / 2
        right = self.clean[self.peer(run), x.index].unsqueeze(1)
        given = one_hot(x.given.clamp(min=0), run.n_classes)
        p = right * given + (1 - right) * p
        return sharpen(p, self.settings.temperature), sharpen(q, self.settings.temperature)

    def selection(self, run: TrainerContext) -> Selection:  # noqa: ARG002
        """Accepted labels are kept; the other samples get the networks' prediction."""
        return Selected(self.labels, self.selected)

    def predictor(self) -> nn.Module:
        """An ensemble of all networks."""
        return Ensemble(self.networks.values()) if len(self.members) > 1 else self.networks["main"]

    def notes(self, run: TrainerContext) -> list[str]:
        """Report if there was no split."""
        if run.settings.epochs <= self.warmup_end(run):
            return ["all epochs were warm-up: this is cross-entropy on the given labels"]
        return []


def mean_of_views(logits: Tensor) -> Tensor:
    """The mean prediction (B, K) over two concatenated views (2B, K)."""
    first, second = logits.float().softmax(1).chunk(2)
    return (first + second) / 2
