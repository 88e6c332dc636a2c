"""INCV: select labels that networks trained on other samples predict; then run co-teaching on them."""

import copy
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ..config.settings import Auto
from ..errors import check_choice
from ..training.method import Batch, Method, MethodInfo, Selected, Selection, TrainerContext
from .blocks.cross_validation import CrossValidation, draw_batches
from .blocks.noise_rate import check_noise_rate
from .blocks.pair import PAIRED, WEIGHTS, keep_small, new_pair, see, teach
from .blocks.small_loss import remaining
from .blocks.supervised import given_losses, labeled_mean

NoisePattern = Literal["symmetric", "asymmetric"]
MUCH, SOME = 0.6, 0.3
"""Noise rates above which later iterations use their last epoch: wrong labels would pick the best one."""


@dataclass(frozen=True)
class IncvSettings:
    """The defaults are the paper's; the epochs are divided roughly by the cost of its phases."""

    noise_rate: float | Auto = "auto"
    """Fraction of wrong labels; `auto`: from how many labels networks predict in the first iteration."""
    noise: NoisePattern = "symmetric"
    """`asymmetric` if classes are mistaken for specific others: then large losses are not removed."""
    iterations: int = 4
    """Number of times the remaining samples are split in half; each iteration takes at least one epoch."""
    selection_fraction: float = 0.33
    """Fraction of the epochs for all iterations together, each with a full learning rate schedule."""
    chosen_alone: float = 0.2
    """Fraction of the other epochs before remaining samples are used; doubled if asymmetric or high noise."""
    ramp: float = 0.05
    """Fraction of the other epochs over which the drop rate grows to the chosen samples' noise rate."""

    def __post_init__(self) -> None:
        check_noise_rate(self.noise_rate)
        check_choice("noise", self.noise, NoisePattern)
        if self.iterations < 1:
            raise ValueError("iterations must be at least 1")
        if not 0 < self.selection_fraction < 1:
            raise ValueError("selection_fraction must be between 0 and 1")
        for name in ("chosen_alone", "ramp"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be from 0 to 1")


class INCV(Method):
    """In each iteration, each of two networks trains on one half of the samples and judges the other half.

    Samples predicted as labeled are chosen, and then belong to both halves. Every iteration, and finally
    co-teaching, starts from the initial weights.
    """

    info = MethodInfo(
        name="incv",
        title="Iterative Noisy Cross-Validation (INCV) with co-teaching",
        kind="selection",
        paper="Chen et al., Understanding and Utilizing Deep Neural Networks Trained with Noisy Labels, "
        "ICML 2019",
        networks=2,
        cost=2.4,
        needs=("noise rate",),
        follows="the paper, except that both halves are trained on at once, by one network each; phases "
        "are fractions of the run's epochs, and each epoch has as many steps as there are batches of all "
        "samples; network, optimizer and schedule are those of the training settings",
    )
    Settings = IncvSettings
    detector = "msp"
    settings: IncvSettings
    drop: Tensor
    kept: Tensor

    def setup(self, run: TrainerContext) -> None:
        """Create two networks, a copy of their initial weights, and masks of chosen and kept samples."""
        self.networks, self.weights = new_pair(run), WEIGHTS
        self.initial = copy.deepcopy(self.networks).requires_grad_(requires_grad=False)
        rate = self.settings.noise_rate
        self.validation = CrossValidation(run.given, run.n_classes, None if rate == "auto" else rate)
        self.register_buffer("drop", torch.zeros((), device=run.device))
        self.register_buffer("kept", run.given >= 0)

    def phases(self, epochs: int) -> tuple[int, ...]:
        """The iterations, then co-teaching; a run of one epoch has only one iteration."""
        total = max(1, min(round(self.settings.selection_fraction * epochs), epochs - 1))
        iterations = min(self.settings.iterations, total)
        return *(total * i // iterations for i in range(iterations)), total

    def begin_epoch(self, run: TrainerContext) -> tuple[Tensor, ...]:
        """Judge with an iteration's networks; at the start of a phase, choose samples and reset weights."""
        phases, validation = self.phases(run.settings.epochs), self.validation
        training = phases[-1]
        if run.epoch == 0:
            self.initial.load_state_dict(self.networks.state_dict())
        elif run.epoch <= training:
            first, second = (run.embed(name).logits for name in PAIRED)
            begun = sum(start < run.epoch for start in phases) - 1
            validation.judge((first, second), run.given, last=self.takes_last(begun))
        if 0 < run.epoch <= training and run.epoch in phases:
            validation.choose(remove=self.settings.noise == "symmetric")
            self.networks.load_state_dict(self.initial.state_dict())
            self.kept = validation.chosen.clone()
        if run.epoch >= training:
            return self._co_teaching_batches(run, run.epoch - training, run.settings.epochs - training)
        if run.epoch in phases:
            validation.halve(run.generator)
        steps, size = run.shuffle().shape
        return tuple(draw_batches(each, steps, size, run.generator) for each in validation.members())

    def takes_last(self, iteration: int) -> bool:
        """Whether the last epoch of an iteration, counted from 0, is used instead of the best one."""
        rate = float(self.validation.rate)
        much = self.settings.noise == "asymmetric" or rate > MUCH
        return (iteration > 0 and much) or (iteration > 1 and rate > SOME)

    def _co_teaching_batches(self, run: TrainerContext, epoch: int, epochs: int) -> tuple[Tensor, ...]:
        """The chosen samples; after some epochs, also remaining ones, in proportion, up to half a batch."""
        s, found, rate = self.settings, self.validation, float(self.validation.rate)
        chosen = found.chosen if bool(found.chosen.any()) else run.given >= 0
        left = found.left & ~chosen
        ways = run.n_classes - 1 if s.noise == "symmetric" else 1
        wrong = rate**2 / max(rate**2 + ways * (1 - rate) ** 2, 1e-12)
        ramp = s.ramp * epochs
        self.drop = torch.full_like(self.drop, wrong * (min(epoch / ramp, 1) if ramp else 1))
        steps, size = run.shuffle().shape
        batches = draw_batches(chosen, steps, size, run.generator)
        alone = s.chosen_alone * (2 if s.noise == "asymmetric" or rate > MUCH else 1)
        more = min(size * int(left.sum()) // max(int(chosen.sum()), 1), size // 2)
        if epoch < alone * epochs or not more:
            return (batches,)
        return batches, draw_batches(left, steps, more, run.generator)

    def losses(self, run: TrainerContext, *batches: Batch) -> dict[str, Tensor]:
        """Each network's loss on its own samples; in co-teaching, on the samples that the other one keeps."""
        if run.epoch < self.phases(run.settings.epochs)[-1]:
            learned = {}
            for name, loss, batch, part in zip(
                PAIRED, WEIGHTS, batches, self.validation.members(), strict=True
            ):
                (out,) = run.forward(run.weak_view(batch.inputs), network=name)
                learned[loss] = labeled_mean(given_losses(out.logits, batch.given), part[batch.index])
            return learned
        index, inputs, given = (
            torch.cat(parts) for parts in zip(*((b.index, b.inputs, b.given) for b in batches), strict=True)
        )
        pair, labeled = see(run, inputs, given), given >= 0
        count = remaining(labeled[: len(batches[0].index)], self.drop)
        small = keep_small(pair, labeled, count)
        self.kept[index] = small[0] & small[1]
        return teach(pair, small)

    def selection(self, run: TrainerContext) -> Selection:
        """The given labels; selected are the chosen samples, later those that both networks last kept."""
        return Selected(run.given.clamp(min=0), self.kept)

    def metrics(self, run: TrainerContext) -> dict[str, Any]:  # noqa: ARG002
        """The progress of the selection, the noise rate and the drop rate."""
        found = self.validation
        return {
            "chosen": int(found.chosen.sum()),
            "left": int(found.left.sum()),
            "noise_rate": float(found.rate),
            "drop_rate": float(self.drop),
        }

    def notes(self, run: TrainerContext) -> list[str]:
        """Report what was chosen, and the source of the noise rate."""
        found = self.validation
        if run.settings.epochs <= self.phases(run.settings.epochs)[-1]:
            return ["the only epoch was an iteration of the selection: nothing was chosen"]
        if not bool(found.chosen.any()):
            return ["no given label was predicted, and nothing was chosen: all labels were learned"]
        rate = "was estimated" if found.estimated else "was given"
        return [
            f"{int(found.chosen.sum())} samples were chosen, {int(found.left.sum())} remain and the others "
            f"were removed; the noise rate {rate} as {float(found.rate):.3f} (method.noise_rate)"
        ]
